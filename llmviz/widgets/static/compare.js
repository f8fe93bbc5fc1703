// Where two runs part: relative error along depth, the nodes as a table, and one node of both.
import { h, fill, svg, alone, card, format, value, parse, shape, visible, plain, piece, percent, colours, css, paint, bytes, numbers, moved, roving } from "./kit.js";
import { COMPARE_STYLE } from "./compare_style.js";

const LEAST = -9; // power of ten of the smallest tolerance
const SHOWN = 400; // rows of the table
const power = (x) => "10" + String(x).replace("-", "⁻").replace(/\d/g, (d) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[d]);
const brief = (x) => x.toExponential(2).replace(/\.?0+e/, "e").replace("-", "−");
const short = (x) => (Number.isNaN(x) ? "–" : x === Infinity ? "∞" : x === 0 ? "0" : x.toExponential(2).replace("-", "−"));

// One mark for each kind of node: colour is never alone.
function mark(kind, x, y, r) {
  const path = {
    1: `M${x - r} ${y}H${x + r}M${x} ${y - r}V${y + r}`, 2: `M${x} ${y - r}L${x + r} ${y + r * 0.8}H${x - r}Z`,
    3: `M${x - r * 0.85} ${y - r * 0.85}h${r * 1.7}v${r * 1.7}h${-r * 1.7}Z`, 4: `M${x} ${y - r * 1.2}L${x + r * 1.2} ${y}L${x} ${y + r * 1.2}L${x - r * 1.2} ${y}Z`,
    5: `M${x - r * 0.8} ${y - r * 0.8}L${x + r * 0.8} ${y + r * 0.8}M${x + r * 0.8} ${y - r * 0.8}L${x - r * 0.8} ${y + r * 0.8}`,
  }[kind];
  const thin = kind === 1 || kind === 5;
  const node = path ? svg("path", { d: path, class: `lv-cp-dot lv-k-${kind}` }) : svg("circle", { cx: x, cy: y, r, class: `lv-cp-dot lv-k-${kind}` });
  if (thin) { node.style.stroke = "var(--lv-c)"; node.style.strokeWidth = "1.6"; }
  return node;
}

export function compareZone(host) {
  const { model, ask } = host;
  const { node, body, remark } = card("Where do two runs part?", { class: "lv-card lv-cp" });
  const runs = h("div", { class: "lv-cp-runs" });
  const verdict = h("p", { class: "lv-cp-verdict" });
  const again = h("button", { type: "button", class: "lv-button", "data-action": "compare-again", hidden: true, onclick: () => work({ ask: "compare-again" }) }, "A run has moved on: compare again");
  const passes = h("div", { class: "lv-cp-passes", role: "group", "aria-label": "Pass" });
  const slider = h("input", { type: "range", min: LEAST, max: 0, step: 0.25, "aria-label": "Tolerance, a power of ten" });
  const limit = h("output", {});
  const tolerance = h("label", { class: "lv-cp-tolerance" }, "tolerance", slider, limit);
  const chart = h("div", { class: "lv-cp-chart", tabindex: 0, role: "application", "aria-roledescription": "chart of nodes" });
  const key = h("div", { class: "lv-cp-key" });
  const readout = h("output", { class: "lv-readout" });
  const chosen = h("div", { class: "lv-cp-box lv-cp-node" });
  const search = h("input", { type: "search", placeholder: "name, op, note", "aria-label": "Filter the nodes" });
  const count = h("span", { class: "lv-remark" });
  const onlyOver = h("button", { type: "button", class: "lv-button lv-small", "aria-pressed": "false" }, "only over the tolerance");
  const tableBox = h("div", { class: "lv-cp-table-box" });
  const list = h("div", { class: "lv-cp-box" }, h("div", { class: "lv-row" }, h("h4", {}, "Nodes"), search, onlyOver, count), tableBox);
  const says = h("section", {}), texts = h("section", { class: "lv-cp-box" }), about = h("section", { class: "lv-cp-box" });
  const main = h("div", {}, h("div", { class: "lv-row lv-cp-bar" }, passes, tolerance, again), chart, key, h("div", { class: "lv-row" }, readout),
    h("div", { class: "lv-cp-two" }, h("div", {}, chosen, list), h("div", {}, says, texts, about)));
  const empty = h("p", { class: "lv-empty" });
  body.append(h("style", {}, COMPARE_STYLE), runs, verdict, empty, main);
  const settlePasses = roving(passes, "button");

  let errors = new Float64Array(0), most = new Float64Array(0), layers = new Int32Array(0), kinds = new Uint8Array(0), bounds = new Uint8Array(0);
  let names = [], ops = [], notes = [], at = 0, place = () => [0, 0], sort = "depth", down = false, size = [1, 1], cell = [0, 0], asked = 0;

  const work = async (message) => {
    if (node.classList.contains("lv-working")) return { lost: true };
    node.classList.add("lv-working");
    node.setAttribute("aria-busy", "true");
    const reply = await ask(message);
    node.classList.remove("lv-working");
    node.setAttribute("aria-busy", "false");
    return reply;
  };
  const over = (i) => errors[i] > model.get("tolerance");
  const where = (i) => (layers[i] >= 0 ? `layer ${layers[i]}` : "outside the layers");
  const errorText = (i) => (Number.isNaN(errors[i]) ? plain(notes[i]) || "not compared" : `${bounds[i] ? "at least " : ""}${short(errors[i])}`);
  const errorValue = (i) => (Number.isNaN(errors[i]) ? h("span", { class: "lv-remark" }, "–") : value((bounds[i] ? "≥ " : "") + short(errors[i]), errors[i], `error[${names[i]}]`));

  slider.addEventListener("input", () => { limit.textContent = brief(10 ** Number(slider.value)); });
  slider.addEventListener("change", () => host.set("tolerance", Number((10 ** Number(slider.value)).toPrecision(6))));
  search.addEventListener("input", () => drawTable());
  onlyOver.addEventListener("click", () => { onlyOver.setAttribute("aria-pressed", String(onlyOver.getAttribute("aria-pressed") !== "true")); drawTable(); });

  const drawHead = () => {
    const [a, b] = model.get("runs"), p = model.get("passes").find((x) => x.i === model.get("pass_")), first = model.get("first"), firstPass = model.get("first_pass");
    const run = (x, letter) => h("span", {}, h("span", { class: "lv-cp-letter" }, letter), h("bdi", {}, plain(x.label)), x.live ? null : h("span", { class: "lv-remark" }, "recorded"));
    fill(runs, run(a, "a"), run(b, "b"));
    again.hidden = !model.get("moved");
    if (!p) return;
    const limitText = brief(model.get("tolerance"));
    if (first >= 0) {
      fill(verdict, `First node over ${limitText}: `, h("code", {}, visible(names[first])), ` (${where(first)}), relative error `, errorValue(first), ".",
        firstPass >= 0 && firstPass < model.get("pass_") ? ` They part already in pass ${firstPass}.` : "");
    } else {
      fill(verdict, `No node of this pass is over ${limitText}.`, firstPass >= 0 ? ` Pass ${firstPass} has one.` : " No pass has one.");
    }
    remark.textContent = `${names.length.toLocaleString("en-US")} nodes of ${p.prompt ? "the prompt's pass" : "one token's pass"}, ${p.n_a === p.n_b ? p.n_a : `${p.n_a} and ${p.n_b}`} token${p.n_a === 1 && p.n_b === 1 ? "" : "s"}; the error is |b − a| / |a|`;
    fill(passes, h("span", { class: "lv-remark" }, "pass"), model.get("passes").map((x) => h("button", {
      type: "button", class: "lv-button lv-small", "data-pass": x.i, "aria-pressed": String(x.i === model.get("pass_")), "data-first": x.i === firstPass ? "" : undefined,
      title: `${x.prompt ? "prompt" : "token"}: ${plain(x.a)}${x.same ? "" : " | " + plain(x.b)}`, onclick: () => host.set("pass_", x.i),
    }, x.prompt ? `prompt${x.i ? ` ${x.i}` : ""}` : piece(x.a), x.prompt || x.same ? null : ["|", piece(x.b)])));
    settlePasses();
    slider.value = String(Math.log10(Math.max(1e-9, model.get("tolerance"))));
    limit.textContent = limitText;
  };

  // -- along depth ---------------------------------------------------------------------------------
  const drawChart = () => {
    const unit = parseFloat(getComputedStyle(host.root).fontSize), letter = Math.max(13, 0.93 * unit);
    const W = Math.max(420, node.clientWidth - 2 * unit), H = 19 * unit, left = 3.6 * unit, right = 1.2 * unit, foot = 3.3 * unit, top = 1.1 * unit;
    const n = names.length, inner = W - left - right, tall = H - foot - top;
    const X = (i) => left + (inner * (i + 0.5)) / Math.max(1, n);
    const [lowest, highest] = model.get("decades"), known = Array.from(errors), foot0 = known.some((e) => e === 0), broken = known.some((e) => e === Infinity);
    const head = broken ? 1.5 * unit : 0, range = tall - head - (foot0 ? 1.5 * unit : 0);
    const Y = (e) => {
      if (!(e > 0)) return top + tall;
      if (e === Infinity) return top;
      return top + head + range * (1 - (Math.max(lowest, Math.min(highest, Math.log10(e))) - lowest) / (highest - lowest));
    };
    place = (i) => [X(i), Number.isNaN(errors[i]) ? top + tall : Y(errors[i])];
    const picture = svg("svg", { viewBox: `0 0 ${W} ${H}`, "aria-hidden": "true" });
    const say = (text, x, y, anchor, name) => {
      const t_ = svg("text", { x, y, "text-anchor": anchor, "font-size": letter });
      if (name) t_.setAttribute("class", name);
      t_.textContent = text;
      picture.append(t_);
      return t_;
    };
    // Layers as bands, each named where there is room.
    let begin = 0, lastNamed = -1e9;
    for (let i = 1; i <= n; i++) {
      if (i < n && layers[i] === layers[begin]) continue;
      if (layers[begin] >= 0) {
        const x0 = left + (inner * begin) / n, x1 = left + (inner * i) / n, middle = (x0 + x1) / 2;
        if (layers[begin] % 2 === 0) picture.append(svg("rect", { class: "lv-cp-band", x: x0, y: top, width: x1 - x0, height: tall + 0.5 * unit }));
        if (middle - lastNamed > 1.9 * letter) { say(String(layers[begin]), middle, H - foot + 1.5 * unit, "middle"); lastNamed = middle; }
      }
      begin = i;
    }
    say("layer", left + inner / 2, H - 0.25 * unit, "middle");
    for (let p = lowest; p <= highest; p += highest - lowest > 8 ? 2 : 1) {
      const y = Y(10 ** p);
      picture.append(svg("line", { class: "lv-cp-grid", x1: left, x2: W - right, y1: y, y2: y }));
      say(power(p), left - 0.5 * unit, y + 0.33 * letter, "end");
    }
    for (const [is, e, text] of [[foot0, 0, "0"], [broken, Infinity, "∞"]]) {
      if (!is) continue;
      say(text, left - 0.5 * unit, Y(e) + 0.33 * letter, "end");
      picture.append(svg("line", { class: "lv-cp-grid", x1: left, x2: W - right, y1: Y(e), y2: Y(e) }));
    }
    const bar = Y(model.get("tolerance"));
    picture.append(svg("line", { class: "lv-cp-limit", x1: left, x2: W - right, y1: bar, y2: bar }));
    const r = Math.max(2.4, Math.min(0.32 * unit, (0.55 * inner) / Math.max(1, n) + 1.6));
    for (let i = 0; i < n; i++) {
      if (Number.isNaN(errors[i])) continue;
      const dot = mark(kinds[i], X(i), Y(errors[i]), r);
      dot.dataset.node = i;
      dot.setAttribute("data-value", errors[i]);
      if (bounds[i]) dot.setAttribute("data-bound", "");
      picture.append(dot);
    }
    const first = model.get("first");
    if (first >= 0) {
      const [x, y] = place(first), right_ = x < W * 0.62;
      picture.append(svg("circle", { class: "lv-cp-first", cx: x, cy: y, r: 0.6 * unit }));
      const above = y - 1.5 * unit > top ? y - 1.05 * unit : y + 1.6 * unit;
      say(`first: ${visible(names[first])}`, x + (right_ ? -0.3 : 0.3) * unit, above, right_ ? "start" : "end", "lv-cp-first-text");
    }
    const ring = svg("circle", { class: "lv-cp-ring", r: 0.42 * unit, cx: -99, cy: -99 }), line = svg("line", { class: "lv-cp-cursor", x1: left, x2: left, y1: top, y2: top + tall, visibility: "hidden" });
    picture.append(line, ring);
    chart.marks = { ring, line, W };
    fill(chart, picture);
    chart.setAttribute("aria-label", `Relative error of ${n} nodes along depth, on a scale of powers of ten. Left and right move, Enter lays the node side by side.`);
    fill(key, model.get("kinds").map((name, k) => {
      if (!kinds.includes(k)) return null;
      const small = svg("svg", { viewBox: "0 0 12 12", "aria-hidden": "true" }, mark(k, 6, 6, 4.5));
      return h("span", {}, small, name);
    }), bounds.includes(1) ? h("span", {}, "hollow: at least so much, from statistics") : null);
    drawRing();
  };
  const drawRing = () => {
    const i = model.get("chosen");
    if (!chart.marks || i < 0 || i >= names.length) return;
    const [x, y] = place(i);
    chart.marks.ring.setAttribute("cx", x);
    chart.marks.ring.setAttribute("cy", y);
  };
  const look = (i, spoken) => {
    at = i;
    const [x] = place(i);
    chart.marks.line.setAttribute("x1", x);
    chart.marks.line.setAttribute("x2", x);
    chart.marks.line.setAttribute("visibility", "visible");
    fill(readout, h("code", {}, visible(names[i])), ` ${ops[i]} · ${where(i)} · error `, Number.isNaN(errors[i]) ? errorText(i) : errorValue(i),
      Number.isNaN(most[i]) ? null : [" · largest difference ", value(format(most[i]), most[i], `max_abs[${names[i]}]`)]);
    if (spoken) host.say(readout.textContent);
  };
  const near = (e) => {
    const box = chart.getBoundingClientRect(), x = ((e.clientX - box.left) / box.width) * chart.marks.W;
    let best = 0;
    const dy = (i) => Math.abs(place(i)[1] - ((e.clientY - box.top) / box.height) * chart.firstChild.viewBox.baseVal.height);
    let score = Infinity;
    for (let i = 0; i < names.length; i++) { const d = Math.abs(place(i)[0] - x) + 0.15 * dy(i); if (d < score) { score = d; best = i; } }
    return best;
  };
  chart.addEventListener("pointermove", (e) => { if (names.length) look(near(e), false); });
  chart.addEventListener("click", (e) => { if (names.length) pick(near(e)); });
  chart.addEventListener("focus", () => { if (names.length) look(Math.max(0, model.get("chosen")), true); });
  chart.addEventListener("keydown", (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey || !names.length) return;
    if (e.key === "Escape") { chart.blur(); return; }
    if (e.key === "Enter" || e.key === " ") { e.preventDefault(); pick(at); return; }
    const far = Math.max(1, Math.round(names.length / 30));
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, ArrowDown: at + 1, ArrowUp: at - 1, PageDown: at + far, PageUp: at - far, Home: 0, End: names.length - 1 }[e.key];
    if (to === undefined) return;
    e.preventDefault();
    look(Math.max(0, Math.min(names.length - 1, to)), true);
  });
  const pick = (i) => { at = i; if (i !== model.get("chosen")) host.set("chosen", i); };

  // -- the nodes as a table --------------------------------------------------------------------------
  const COLUMNS = [["depth", "node"], ["op", "op"], ["layer", "layer"], ["error", "error"], ["max", "largest difference"], ["note", "note"]];
  const by = { depth: (i) => i, op: (i) => ops[i], layer: (i) => layers[i], error: (i) => (Number.isNaN(errors[i]) ? -1 : errors[i]), max: (i) => (Number.isNaN(most[i]) ? -1 : most[i]), note: (i) => notes[i] };
  const drawTable = () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean), narrow = onlyOver.getAttribute("aria-pressed") === "true";
    const found = Array.from(names.keys()).filter((i) => (!narrow || over(i)) && words.every((w) => `${names[i]} ${ops[i]} ${notes[i]}`.toLowerCase().includes(w)));
    found.sort((x, y) => { const p = by[sort](x), q = by[sort](y); return (p < q ? -1 : p > q ? 1 : 0) * (down ? -1 : 1) || x - y; });
    count.textContent = found.length > SHOWN ? `showing ${SHOWN} of ${found.length.toLocaleString("en-US")}` : `${found.length.toLocaleString("en-US")} of ${names.length.toLocaleString("en-US")}`;
    const picked = model.get("chosen"), focused = tableBox.contains(document.activeElement) ? document.activeElement.dataset : null, kept = focused && { ...focused };
    fill(tableBox, h("table", { class: "lv-cp-table" }, h("caption", { class: "lv-hidden" }, "Nodes of both runs and how far they are apart"),
      h("thead", {}, h("tr", {}, COLUMNS.map(([id, label]) => h("th", { scope: "col", "aria-sort": sort === id ? (down ? "descending" : "ascending") : undefined },
        h("button", { type: "button", "data-sort": id, onclick: () => { if (sort === id) down = !down; else { sort = id; down = id === "error" || id === "max"; } drawTable(); } }, label, sort === id ? (down ? " ▾" : " ▴") : ""))))),
      h("tbody", {}, found.slice(0, SHOWN).map((i) => h("tr", { "aria-selected": String(i === picked), "data-row": i, "data-over": over(i) ? "" : undefined, onclick: () => pick(i) },
        h("td", {}, h("button", { type: "button", "data-node-button": i }, visible(names[i]))), h("td", {}, ops[i]), h("td", {}, layers[i] >= 0 ? layers[i] : "–"),
        h("td", {}, errorValue(i)), h("td", {}, Number.isNaN(most[i]) ? "–" : value(format(most[i]), most[i], `max_abs[${names[i]}]`)), h("td", {}, plain(notes[i])))))));
    const same = kept && [...tableBox.querySelectorAll("button")].find((b) => b.dataset.sort === kept.sort && b.dataset.nodeButton === kept.nodeButton);
    if (same) same.focus({ preventScroll: true });
  };
  const scrollTo = (i) => {
    const row = tableBox.querySelector(`[data-row="${i}"]`);
    if (row) tableBox.scrollTop = Math.max(0, row.offsetTop - tableBox.clientHeight / 2);
  };

  // -- one node of both ------------------------------------------------------------------------------
  const drawNode = () => {
    const d = model.get("node") || {}, w = model.get("window") || {};
    if (d.i === undefined) { fill(chosen, h("p", { class: "lv-empty" }, "Choose a node.")); return; }
    const patched = model.get("patched") || {};
    const shapes = d.shapes.map((s) => (s ? shape(s) : "not there"));
    const put = (letter, from, k) => d.patches[k] && d.patches[k] !== "the shapes differ" ? null : h("button", {
      type: "button", class: "lv-button lv-small", "data-action": `compare-patch-${letter}`, disabled: !!d.patches[k], title: d.patches[k] || `On a branch of its own; ${letter} then runs on to where it stands`,
      onclick: () => work({ ask: "compare-patch", into: letter }).then((r) => { if (!r.error && !r.lost) host.say(patchText()); }),
    }, `Put ${from}'s value into ${letter}`);
    const title = h("div", { class: "lv-row" }, h("h4", {}, h("code", {}, visible(d.name))), h("span", { class: "lv-tag" }, d.op || "node"),
      h("code", {}, shapes[0] === shapes[1] ? shapes[0] : `a ${shapes[0]}, b ${shapes[1]}`), h("span", { class: "lv-remark" }, where(d.i)), h("span", { class: "lv-grow" }), put("a", "b", 0), put("b", "a", 1));
    const gloss = d.gloss ? h("p", {}, plain(d.gloss), d.axes.length ? h("span", { class: "lv-remark" }, ` · ${d.axes.join(" × ")}`) : null) : null;
    const note = d.note && d.note !== w.why ? h("p", { class: "lv-remark" }, plain(d.note)) : null;
    const done = patched.branch ? h("p", { class: "lv-cp-patched" }, ...patchParts()) : null;
    if (w.why !== undefined || !w.rows) { fill(chosen, title, gloss, h("p", { class: "lv-empty" }, plain(w.why || "")), done); return; }
    const lead = h("span", { class: "lv-lead" }, w.lead.map(([axis, length], i) => {
      const input = h("input", { type: "number", min: 0, max: length - 1, value: w.index[i], "aria-label": `Index of axis ${axis}`, onchange: () => host.set("slice", w.index.map((x, j) => (j === i ? Math.max(0, Math.min(length - 1, Math.round(Number(input.value)) || 0)) : x))) });
      return h("label", {}, `${d.axes[axis] || `axis ${axis}`} `, input, h("span", { class: "lv-remark" }, ` of ${length}`));
    }));
    const turn = (label, text, rows, columns, is) => h("button", { type: "button", class: "lv-button lv-small", "aria-label": label, title: label, disabled: !is, onclick: () => host.set("origin", [Math.max(0, w.row + rows), Math.max(0, w.column + columns)]) }, text);
    const whole = w.rows >= w.n_rows && w.columns >= w.n_columns;
    const pager = whole ? null : h("span", { class: "lv-pager" }, turn("Columns before", "‹", 0, -w.columns, w.column > 0), turn("Columns after", "›", 0, w.columns, w.column + w.columns < w.n_columns), turn("Rows before", "ˆ", -w.rows, 0, w.row > 0), turn("Rows after", "ˇ", w.rows, 0, w.row + w.rows < w.n_rows));
    const rest = h("span", { class: "lv-remark" }, `rows ${w.row}–${w.row + w.rows - 1} of ${w.n_rows.toLocaleString("en-US")}, columns ${w.column}–${w.column + w.columns - 1} of ${w.n_columns.toLocaleString("en-US")}`);
    const room = Math.max(160, (chosen.clientWidth || 600) - 6.6 * parseFloat(getComputedStyle(host.root).fontSize));
    const wide = Math.max(1, Math.min(22, Math.floor(room / w.columns))), tall = Math.max(3, Math.min(16, Math.floor(130 / w.rows)));
    size = [wide, tall];
    const marks = [], out = h("output", { class: "lv-readout" });
    const point = async (spoken) => {
      const [r, c] = cell, mine = ++asked;
      for (const m of marks) { m.hidden = false; Object.assign(m.style, { left: c * wide + "px", top: r * tall + "px", width: wide + "px", height: tall + "px" }); }
      const reply = await ask({ ask: "compare-values", node: d.i, row: w.row + r, column: w.column + c, rows: 1, columns: 1 });
      const v = reply.value;
      if (mine !== asked || !v || !v.a.length || !v.a[0].length) return;
      const [x, y, z] = [v.a[0][0], v.b[0][0], v.d[0][0]], ref = v.refs[0][0];
      fill(out, h("code", {}, ref), " a ", value(format(parse(x)), x, `a:${ref}`), ", b ", value(format(parse(y)), y, `b:${ref}`), ", b − a ", value(format(parse(z)), z, `d:${ref}`));
      if (spoken) host.say(`${ref}: a ${x}, b ${y}, difference ${z}`);
    };
    const heat = (label, which, signed) => {
      const canvas = h("canvas", { "aria-hidden": "true" }), m = h("div", { class: "lv-mark", hidden: true });
      marks.push(m);
      paint(canvas, bytes(model.get(which)), w.rows, w.columns, colours(signed, host.dark, false));
      Object.assign(canvas.style, { width: w.columns * wide + "px", height: w.rows * tall + "px" });
      const grid = h("div", { class: "lv-heat", tabindex: which === "picture_a" ? 0 : -1, role: "application", "aria-roledescription": "heatmap", "aria-label": `${label}: arrow keys move, both values and their difference are read out`, "data-heat": which, style: `width:${w.columns * wide}px` }, canvas, m);
      grid.addEventListener("pointermove", (e) => {
        const box = canvas.getBoundingClientRect(), c = Math.floor(((e.clientX - box.left) / box.width) * w.columns), r = Math.floor(((e.clientY - box.top) / box.height) * w.rows);
        if (r < 0 || c < 0 || r >= w.rows || c >= w.columns || (r === cell[0] && c === cell[1] && !m.hidden)) return;
        cell = [r, c];
        point(false);
      });
      grid.addEventListener("focus", () => { cell = [Math.min(cell[0], w.rows - 1), Math.min(cell[1], w.columns - 1)]; point(true); });
      grid.addEventListener("keydown", (e) => {
        if (e.ctrlKey || e.metaKey || e.altKey) return;
        if (e.key === "Escape") { grid.blur(); return; }
        const to = moved(e.key, cell, w.rows, w.columns);
        if (!to) return;
        e.preventDefault();
        cell = to;
        point(true);
      });
      return h("div", { class: "lv-cp-heat" }, h("span", {}, label), grid);
    };
    const legend = (signed) => { const c = h("canvas", { class: "lv-legend", "aria-hidden": "true" }); paint(c, Uint8Array.from({ length: 253 }, (_, i) => i), 1, 253, colours(signed, host.dark, false)); return c; };
    const at_ = d.at && d.at.length ? h("span", { class: "lv-remark" }, `largest difference ${format(most[d.i])} at [${d.at.join(", ")}]`) : null;
    const focused = document.activeElement && document.activeElement.dataset ? document.activeElement.dataset.heat : "";
    fill(chosen, title, gloss, note, h("div", { class: "lv-row" }, lead, rest, pager),
      h("div", { class: "lv-cp-heats" }, heat("a", "picture_a", w.signed), heat("b", "picture_b", w.signed), heat("b − a", "picture_d", true)),
      h("div", { class: "lv-row lv-scale" }, h("span", {}, "a, b"), h("span", {}, format(w.low)), legend(w.signed), h("span", {}, format(w.high)), h("span", { class: "lv-grow" }), h("span", {}, "b − a"), h("span", {}, format(w.d_low)), legend(true), h("span", {}, format(w.d_high))),
      h("div", { class: "lv-row" }, out, h("span", { class: "lv-grow" }), at_), done);
    out.textContent = "Point at a value.";
    if (focused) { const same = chosen.querySelector(`[data-heat="${focused}"]`); if (same) same.focus({ preventScroll: true }); }
  };
  const patchText = () => { const p = model.get("patched") || {}; return p.branch ? `${p.name} of ${p.source} put into ${p.into}. ${p.recovered === null ? "" : `The next token went ${percent(p.recovered)} of the way.`}` : ""; };
  const patchParts = () => {
    const p = model.get("patched");
    return [h("code", {}, visible(p.name)), ` of ${p.source} was put into ${p.into}; that run is on branch `, h("code", {}, visible(p.branch)), " now. ",
      p.recovered === null ? "" : ["The next token's probabilities went ", value(percent(p.recovered), p.recovered, "recovered"), ` of the way to those of ${p.source}.`]];
  };

  // -- what they want to say, and what else differs ----------------------------------------------------
  const drawSays = () => {
    const x = model.get("logits") || {};
    if (!x.a) { fill(says, h("h4", {}, "The next token"), h("p", { class: "lv-empty" }, "The logits after this pass are not known in both.")); return; }
    const rows = (letter) => [h("b", {}, h("span", { class: "lv-cp-letter" }, letter)), ...x[letter].map((c) => [piece(c.text, { "data-token-id": c.id }), h("span", { "aria-hidden": "true" }, h("span", { class: "lv-cp-p", style: `width:${(100 * c.p).toFixed(2)}%` })), value(percent(c.p), c.p, `${letter}:p_raw[${c.id}]`)])];
    fill(says, h("h4", {}, "The next token after this pass"),
      h("p", {}, x.same ? "Both find the same token likeliest." : ["a's likeliest is ", x.rank_in_b === null ? "not among b's ten" : `b's number ${x.rank_in_b + 1}`, "; b's is ", x.rank_in_a === null ? "not among a's ten." : `a's number ${x.rank_in_a + 1}.`]),
      x.kl !== null ? h("p", { class: "lv-remark" }, "KL divergence ", value(short(x.kl), x.kl, "kl"), " nats, logits' error ", value(short(x.error), x.error, "error[logits]"), x.moved ? `, ${x.moved} of a's ten likeliest have another rank` : "") : null,
      x.note ? h("p", { class: "lv-remark" }, plain(x.note)) : null, h("div", { class: "lv-cp-says" }, rows("a"), rows("b")));
  };
  const drawTexts = () => {
    const tokens = model.get("tokens"), total = model.get("tokens_total");
    const line = (letter) => h("div", {}, h("span", { class: "lv-cp-letter" }, letter), tokens.map((x) => x[letter] ? piece(x[letter].text, { "data-token-id": x[letter].id, "data-pos": x.i, "data-other": x.same ? undefined : "" }) : null));
    const first = tokens.find((x) => !x.same);
    fill(texts, h("h4", {}, first ? `Tokens, other ones from position ${first.i} on` : "Tokens: the same in both"), h("div", { class: "lv-cp-texts", tabindex: 0, role: "group", "aria-label": "Tokens of both runs" }, line("a"), line("b")),
      tokens.length < total ? h("p", { class: "lv-remark" }, `showing ${tokens.length} of ${total.toLocaleString("en-US")}, from position ${tokens[0].i}`) : null);
  };
  const drawAbout = () => {
    const all = model.get("matches"), same = all.filter((x) => x.same), other = all.filter((x) => !x.same);
    fill(about, h("h4", {}, "What matches"), h("p", { class: "lv-remark" }, same.length ? `the same: ${same.map((x) => x.what).join(", ")}` : "nothing that both tell"),
      other.length ? h("table", { class: "lv-cp-about" }, h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "another"), h("th", { scope: "col" }, "a"), h("th", { scope: "col" }, "b"))),
        h("tbody", {}, other.map((x) => h("tr", {}, h("th", { scope: "row" }, x.what), h("td", {}, plain(x.a)), h("td", {}, plain(x.b)))))) : null);
  };

  let drawnFor = "";
  const draw = () => {
    names = model.get("node_names") || [];
    ops = model.get("node_ops") || [];
    notes = model.get("node_notes") || [];
    errors = numbers(model.get("node_errors"), Float64Array);
    most = numbers(model.get("node_max"), Float64Array);
    layers = numbers(model.get("node_layers"), Int32Array);
    kinds = bytes(model.get("node_kinds"));
    bounds = bytes(model.get("node_bounds"));
    const has = names.length > 0;
    main.hidden = verdict.hidden = !has;
    empty.hidden = has;
    drawHead();
    if (!has) { empty.textContent = "No pass of one run has a counterpart in the other yet. Run both, then compare again."; body.append(again); again.hidden = false; return; }
    main.firstChild.append(again);
    drawChart();
    drawNode();
    drawTable();
    drawSays();
    drawTexts();
    drawAbout();
    const now = `${model.get("pass_")} ${model.get("chosen")}`;
    if (now !== drawnFor) { drawnFor = now; scrollTo(model.get("chosen")); }
    if (document.activeElement !== chart) readout.textContent = "Point at a mark, or move with the arrow keys; Enter lays the node side by side.";
    else look(Math.min(at, names.length - 1), false);
  };
  return { node, draw };
}

export default alone("compare", "Where two runs part", compareZone);
