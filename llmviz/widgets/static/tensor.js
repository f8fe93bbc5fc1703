// The current event: what it is, its statistics, and its values as a heatmap that can be pointed at.
import { h, fill, alone, card, format, value, parse, shape, visible, piece, colours, css, paint, bytes, moved, widthOf } from "./kit.js";
import { driver } from "./driver.js";

const NUMBERS = 8; // rows and columns of the table of numbers

export function tensorZone(host) {
  const { model, ask } = host;
  const { node, body, head } = card("", { class: "lv-card lv-now" });
  const across = widthOf(host, node);
  const name = h("h3", { class: host.docked ? "lv-tensor-name" : "lv-event-name" });
  const about = h("div", { class: "lv-event-about" });
  fill(head, name, about);
  const gloss = h("p", { class: "lv-gloss" });
  const sources = h("div", { class: "lv-sources" });
  const stats = h("dl", { class: "lv-stats" });
  const empty = h("p", { class: "lv-empty" }, "Press Into to take the first step.");
  const table = h("div", { class: "lv-details" });

  const canvas = h("canvas", { "aria-hidden": "true" });
  const mark = h("div", { class: "lv-mark", hidden: true });
  const grid = h("div", { class: "lv-heat", tabindex: 0, role: "application", "aria-roledescription": "heatmap" }, canvas, mark);
  const legend = h("canvas", { class: "lv-legend", "aria-hidden": "true" });
  const low = h("span", {}), high = h("span", {}), scaleNote = h("span", { class: "lv-remark" });
  const readout = h("output", { class: "lv-readout" });
  const lead = h("div", { class: "lv-lead" }), where = h("span", { class: "lv-remark" });
  const pages = {};
  const page = (key, label, text) => (pages[key] = h("button", { type: "button", class: "lv-button lv-small", "aria-label": label, title: label }, text));
  const pager = h("span", { class: "lv-pager" }, page("left", "Columns before", "‹"), page("right", "Columns after", "›"), page("up", "Rows before", "ˆ"), page("down", "Rows after", "ˇ"));
  const numbersTable = h("table", { class: "lv-numbers" });
  const toggle = h("button", { type: "button", class: "lv-button lv-small", "aria-pressed": "false" }, "Numbers");
  const numbersBox = h("div", { class: "lv-numbers-box lv-hidden" }, numbersTable);
  const heatBox = h("div", { class: "lv-heat-box" },
    h("div", { class: "lv-row" }, lead, where, pager, h("span", { class: "lv-grow" }), toggle),
    grid,
    h("div", { class: "lv-row lv-scale" }, low, legend, high, scaleNote, h("span", { class: "lv-grow" }), readout),
    numbersBox);
  body.append(gloss, sources, stats, table, heatBox, empty);

  let at = [0, 0], cell = [1, 1], shownFor = -1, asked = 0, held = false;

  toggle.addEventListener("click", () => {
    const open = numbersBox.classList.toggle("lv-hidden");
    toggle.setAttribute("aria-pressed", String(!open));
  });

  const turn = (rows, columns) => {
    const w = model.get("window");
    host.set("origin", [Math.max(0, w.row + rows), Math.max(0, w.column + columns)]);
  };
  pages.left.addEventListener("click", () => turn(0, -model.get("window").columns));
  pages.right.addEventListener("click", () => turn(0, model.get("window").columns));
  pages.up.addEventListener("click", () => turn(-model.get("window").rows, 0));
  pages.down.addEventListener("click", () => turn(model.get("window").rows, 0));

  // The value under the pointer comes from the engine, in full precision.
  const look = async (spoken) => {
    const w = model.get("window"), event = model.get("event");
    if (!w || !w.rows || held) return;
    const [r, c] = at;
    mark.hidden = false;
    Object.assign(mark.style, { left: c * cell[0] + "px", top: r * cell[1] + "px", width: cell[0] + "px", height: cell[1] + "px" });
    const mine = ++asked;
    const reply = await ask({ ask: "values", n: event.n, row: w.row + r, column: w.column + c, rows: NUMBERS, columns: NUMBERS });
    const block = reply.value;
    if (mine !== asked || !block || !block.values.length || block.n !== model.get("event").n) return;
    const exact = block.values[0][0], ref = block.refs[0][0];
    const can = (model.get("editable") || {}).kind && !(model.get("editable") || {}).why;
    fill(readout, h("code", {}, ref), " = ", value(exact, exact, ref), can ? h("button", { type: "button", class: "lv-button lv-small", "data-edit": "value", title: "Give this number another value", onclick: () => change(ref, exact) }, "Edit") : null);
    fill(numbersTable,
      h("caption", {}, `From row ${block.row}, column ${block.column} on`),
      h("tbody", {}, h("tr", {}, h("td", {}), block.values[0].map((_, j) => h("th", { scope: "col" }, block.column + j))),
        block.values.map((line, i) => h("tr", {}, h("th", { scope: "row" }, block.row + i), line.map((x, j) => h("td", {}, value(format(parse(x)), x, block.refs[i][j])))))));
    if (spoken) host.say(`${ref} is ${exact}`);
  };

  // One number gets another value; Escape leaves it as it is.
  const change = (ref, exact) => {
    asked++;
    const input = h("input", { type: "text", class: "lv-edit-number", value: exact, "aria-label": `New value of ${ref}` });
    const n = model.get("event").n, index = /\[([\d,]*)\]$/.exec(ref)[1].split(",").filter(Boolean).map(Number);
    const form = h("form", { class: "lv-joined", onsubmit: (e) => { e.preventDefault(); held = false; driver(host).work({ ask: "edit-value", n, index, value: input.value }); } },
      h("code", {}, ref), " = ", input, h("button", { type: "submit", class: "lv-button lv-small" }, "Set"));
    input.addEventListener("keydown", (e) => { if (e.key === "Escape") { e.stopPropagation(); held = false; look(false); grid.focus(); } });
    held = true;
    fill(readout, form);
    input.focus();
    input.select();
  };

  let frame = 0;
  const point = (e) => {
    const box = canvas.getBoundingClientRect(), w = model.get("window");
    if (!w || !w.rows || held) return;
    const c = Math.floor(((e.clientX - box.left) / box.width) * w.columns), r = Math.floor(((e.clientY - box.top) / box.height) * w.rows);
    if (r < 0 || c < 0 || r >= w.rows || c >= w.columns || (r === at[0] && c === at[1] && !mark.hidden)) return;
    at = [r, c];
    // At most one question per painted frame, however fast the pointer moves.
    if (!frame) frame = requestAnimationFrame(() => { frame = 0; look(false); });
  };
  grid.addEventListener("pointermove", point);
  grid.addEventListener("pointerdown", point);
  grid.addEventListener("keydown", (e) => {
    const w = model.get("window");
    if (!w || !w.rows || e.ctrlKey || e.metaKey || e.altKey) return;
    if (e.key === "Escape") { grid.blur(); return; }
    const to = moved(e.key, at, w.rows, w.columns);
    if (!to) return;
    e.preventDefault();
    e.stopPropagation();
    at = to;
    look(true);
  });
  grid.addEventListener("focus", () => look(false));

  const drawStats = (event) => {
    const s = event.statistics;
    const item = (label, x, ref) => h("div", {}, h("dt", {}, label), h("dd", {}, x === null ? "–" : value(format(x), x, `${event.name}.${ref}`)));
    fill(stats,
      h("div", {}, h("dt", {}, "shape"), h("dd", { class: "lv-shape" }, shape(event.shape), event.axes.length ? h("span", { class: "lv-axes" }, event.axes.join(" × ")) : null)),
      h("div", {}, h("dt", {}, "dtype"), h("dd", {}, event.dtype)),
      item("min", s.min, "min"), item("max", s.max, "max"), item("mean", s.mean, "mean"), item("std", s.std, "std"),
      item("NaN", s.nan, "nan"), s.inf ? item("inf", s.inf, "inf") : null);
  };

  const drawLead = (w) => {
    fill(lead, ...w.lead.map(([axis, n], i) => h("label", {}, `axis ${axis} `,
      h("input", {
        type: "number", min: 0, max: n - 1, value: w.index[i], "aria-label": `Index on axis ${axis}, 0 to ${n - 1}`,
        onchange: (e) => {
          const index = [...w.index];
          index[i] = Math.max(0, Math.min(n - 1, Number(e.target.value) || 0));
          host.set("slice", index);
        },
      }), ` of ${n}`)));
  };

  const drawHeat = (event, w) => {
    const table = colours(w.signed, host.dark, false);
    const room = Math.max(120, across() - 26), scale = model.get("projector") ? 1.5 : 1;
    const heat = host.docked ? 300 : 220;
    const wide = Math.max(2, Math.min(26 * scale, room / w.columns));
    const high1 = Math.max(4, Math.min(26 * scale, w.rows === 1 ? 26 * scale : (heat * scale) / w.rows, Math.max(wide * 3, 8)));
    cell = [wide, high1];
    paint(canvas, bytes(model.get("picture")), w.rows, w.columns, table);
    canvas.style.width = wide * w.columns + "px";
    canvas.style.height = high1 * w.rows + "px";
    grid.style.width = canvas.style.width;
    grid.setAttribute("aria-label", `Values of ${event.name}, rows ${w.row} to ${w.row + w.rows - 1} of ${w.n_rows}, columns ${w.column} to ${w.column + w.columns - 1} of ${w.n_columns}. Arrow keys move.`);
    paint(legend, Uint8Array.from({ length: 253 }, (_, i) => i), 1, 253, table);
    low.textContent = format(w.low);
    high.textContent = format(w.high);
    const notes = [];
    if (w.rest !== null && w.rest !== undefined) notes.push(`columns ${w.column + w.columns}–${w.n_columns - 1} all hold ${format(parse(w.rest))}`);
    if (w.clipped) notes.push(`${w.clipped} outlier${w.clipped > 1 ? "s" : ""} beyond the scale`);
    fill(scaleNote, notes.join(" · "));
    if (event.statistics.inf) scaleNote.append(" ", h("span", { class: "lv-swatch", style: `background:${css(table[253])}` }), " −inf");
    if (event.statistics.nan) scaleNote.append(" ", h("span", { class: "lv-swatch", style: `background:${css(table[255])}` }), " NaN");
    const part = (a, n, of, what, axis) => (n < of ? `${what}s ${a}–${a + n - 1} of ${of.toLocaleString("en-US")}` : `${of.toLocaleString("en-US")} ${what}${of === 1 ? "" : "s"}`) + (axis ? ` (${axis})` : "");
    where.textContent = (event.shape.length > 1 ? part(w.row, w.rows, w.n_rows, "row", event.axes[w.row_axis]) + " × " : "") + part(w.column, w.columns, w.n_columns, "column", event.axes[event.axes.length - 1]);
    pages.left.disabled = w.column === 0;
    pages.right.disabled = w.column + w.columns >= w.n_columns;
    pages.up.disabled = w.row === 0;
    pages.down.disabled = w.row + w.rows >= w.n_rows;
    pages.left.hidden = pages.right.hidden = w.columns === w.n_columns;
    pages.up.hidden = pages.down.hidden = w.rows === w.n_rows;
  };

  const drawDetails = (d) => {
    const one = (c) => c.value !== undefined ? value(c.text === undefined ? format(parse(c.value)) : c.text, c.value, c.ref)
      : c.piece ? piece(c.text) : c.code ? h("code", { class: "lv-bytes" }, c.text) : h("span", {}, visible(c.text).replace(/\u00a0/g, " "));
    table.replaceChildren();
    if (!d || (!d.rows.length && !d.note)) return;
    if (d.rows.length) table.append(h("table", {},
      d.columns.length ? h("thead", {}, h("tr", {}, d.columns.map((c) => h("th", { scope: "col" }, c)))) : null,
      h("tbody", {}, d.rows.map((row) => h("tr", { class: row[0] && row[0].mark ? "lv-chosen" : undefined },
        row.map((c, i) => (!d.columns.length && i === 0 ? h("th", { scope: "row" }, visible(c.text).replace(/\u00a0/g, " ")) : h("td", {}, one(c)))))))));
    if (d.note) table.append(h("p", { class: "lv-remark" }, visible(d.note).replace(/\u00a0/g, " ")));
  };

  const KIND = { enter: "a scope begins", exit: "a scope ends", node: "tensor", data: "data" };
  const draw = () => {
    const event = model.get("event") || {}, w = model.get("window") || {};
    const none = event.n === undefined;
    empty.hidden = !none;
    node.dataset.kind = event.kind || "none";
    if (none) {
      name.textContent = "Nothing has run yet";
      about.replaceChildren();
    } else {
      name.textContent = visible(event.name).replace(/\u00a0/g, " ");
      fill(about, h("span", { class: "lv-tag" }, event.op || KIND[event.kind]), event.edited ? h("span", { class: "lv-tag lv-edited" }, "edited") : "", h("span", { class: "lv-remark" }, `event ${event.n.toLocaleString("en-US")}`));
    }
    gloss.textContent = event.gloss || "";
    gloss.hidden = !event.gloss;
    sources.replaceChildren();
    if (event.sources && event.sources.length) sources.append("from ", ...event.sources.flatMap((s, i) => [i ? ", " : "", h("code", {}, s)]));
    const array = !!event.shape && !!event.statistics;
    stats.hidden = heatBox.hidden = !array;
    drawDetails(array ? null : event.details);
    if (!array) return;
    if (shownFor !== event.n) {
      shownFor = event.n;
      mark.hidden = true;
      held = false;
      asked++;
      at = [0, 0];
      fill(readout, h("span", { class: "lv-remark" }, "point at a cell to read it"));
      numbersTable.replaceChildren();
    }
    drawStats(event);
    drawLead(w);
    drawHeat(event, w);
    if (!mark.hidden || !numbersBox.classList.contains("lv-hidden")) look(false);
  };
  return { node, draw, watch: ["event", "window", "picture", "editable"] };
}

export default alone("tensor", "The current value", tensorZone);
