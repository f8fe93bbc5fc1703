// Attention of one layer and head: links from the chosen query to its keys, and the whole matrix.
import { h, fill, svg, alone, card, piece, value, colours, paint, bytes, numbers, moved, roving, format } from "./kit.js";
import { driver } from "./driver.js";

export function attentionZone(host) {
  const { model, ask } = host;
  const { node, body, remark } = card("Attention", { class: "lv-card lv-attention" });
  const slider = h("input", { type: "range", min: 0, max: 0, step: 1, "aria-label": "Layer" });
  const layerText = h("output", { class: "lv-pick-value" });
  const follow = h("button", { type: "button", class: "lv-button lv-small", title: "Show the layer that is being computed", onclick: () => host.set("follow", !model.get("follow")) }, "follow layer");
  const heads = h("span", { class: "lv-heads", role: "group", "aria-label": "Head" });
  const ablate = h("button", { type: "button", class: "lv-button lv-small", "data-edit": "ablate", onclick: () => driver(host).work({ ask: "ablate", layer: model.get("layer"), heads: [model.get("head")] }) });
  const over = h("canvas", { "aria-hidden": "true" }), overMark = h("div", { class: "lv-mark" }), overText = h("output", { class: "lv-readout" });
  const overGrid = h("div", { class: "lv-heat lv-over", tabindex: 0, role: "application", "aria-roledescription": "heatmap", "aria-label": "All heads: row is the layer, column the head. Arrow keys choose one." }, over, overMark);
  const overTitle = h("p", { class: "lv-remark" });
  const overBox = h("div", { class: "lv-over-box" }, overTitle, overGrid, overText);
  const picks = h("div", { class: "lv-row lv-picks" }, h("label", {}, "layer ", slider, layerText), follow, h("span", { class: "lv-pick-heads" }, "head ", heads), ablate);
  const keys = h("div", { class: "lv-att-keys" });
  const links = svg("svg", { class: "lv-att-links", "aria-hidden": "true" });
  const queries = h("div", { class: "lv-att-queries", role: "group", "aria-label": "Query tokens. Choose one to see where it looks." });
  const tops = h("div", { class: "lv-att-tops", "aria-hidden": "true" });
  const canvas = h("canvas", { "aria-hidden": "true" });
  const rowMark = h("div", { class: "lv-mark lv-mark-row" });
  const cellMark = h("div", { class: "lv-mark", hidden: true });
  const matrix = h("div", { class: "lv-heat", tabindex: 0, role: "application", "aria-roledescription": "heatmap", "aria-label": "Attention matrix: row is the query, column the key. Arrow keys move." }, canvas, rowMark, cellMark);
  const stage = h("div", { class: "lv-att-stage" },
    h("div", { class: "lv-att-head", style: "grid-column: 1" }, "looks at"), h("div", { class: "lv-att-head", style: "grid-column: 3" }, "query"), tops,
    keys, links, queries, matrix);
  const readout = h("output", { class: "lv-readout" });
  const note = h("p", { class: "lv-remark" });
  const empty = h("p", { class: "lv-empty" });
  const legend = h("canvas", { class: "lv-legend", "aria-hidden": "true" });
  const scaleRow = h("div", { class: "lv-row lv-scale" }, "0", legend, "1 ", h("span", {}, "(colour by square root)"), h("span", { class: "lv-grow" }), readout);
  const main = h("div", { class: "lv-att-main" }, stage, scaleRow, note);
  body.append(picks, h("div", { class: "lv-att-body" }, main, overBox), empty);
  let overSize = [1, 1];
  const overAt = (e) => {
    const box = over.getBoundingClientRect(), about = model.get("overview_about") || {}, rows = model.get("n_layer"), columns = about.n_head || 0;
    const c = Math.floor(((e.clientX - box.left) / box.width) * columns), r = Math.floor(((e.clientY - box.top) / box.height) * rows);
    return r < 0 || c < 0 || r >= rows || c >= columns ? null : [r, c];
  };
  const overSay = (r, c) => {
    const about = model.get("overview_about") || {}, w = numbers(model.get("overview"), Float32Array)[r * about.n_head + c];
    fill(overText, `layer ${r}, head ${c}: `, Number.isNaN(w) || w === undefined ? "not held" : h("strong", {}, format(w)));
  };
  const pickHead = (r, c) => { model.set("layer", r); model.set("head", c); model.save_changes(); };
  overGrid.addEventListener("pointermove", (e) => { const at = overAt(e); if (at) overSay(...at); });
  overGrid.addEventListener("click", (e) => { const at = overAt(e); if (at) pickHead(...at); });
  overGrid.addEventListener("keydown", (e) => {
    if (e.key === "Escape") { overGrid.blur(); return; }
    const to = moved(e.key, [model.get("layer"), model.get("head")], model.get("n_layer"), (model.get("overview_about") || {}).n_head || 1);
    if (!to || e.ctrlKey || e.metaKey || e.altKey) return;
    e.preventDefault();
    e.stopPropagation();
    pickHead(...to);
    overSay(...to);
    host.say(overText.textContent);
  });
  const drawOver = (layer, head, axis) => {
    const about = model.get("overview_about") || {}, w = numbers(model.get("overview"), Float32Array), columns = about.n_head || 0, rows = model.get("n_layer");
    overBox.hidden = !w.length || !columns || columns > 64;
    if (overBox.hidden) return;
    const k = model.get("projector") ? 1.5 : 1, high = Math.max(3, Math.min(14, (host.docked ? 260 : 330) / rows)) * k, narrow = node.clientWidth < 760, wide = Math.max(4, Math.min(narrow ? 11 : 16, (narrow ? 110 : 150) / columns)) * k;
    overSize = [wide, high];
    paint(over, Uint8Array.from(w, (x) => (Number.isNaN(x) ? 255 : Math.round(Math.sqrt(Math.min(1, Math.max(0, x))) * 252))), rows, columns, colours(false, host.dark, true));
    over.style.width = wide * columns + "px";
    over.style.height = high * rows + "px";
    overGrid.style.width = over.style.width;
    Object.assign(overMark.style, { left: head * wide + "px", top: layer * high + "px", width: wide + "px", height: high + "px" });
    const name = (pos) => { const t = axis.find((a) => a.pos === pos); return t ? piece(t.text) : `position ${pos}`; };
    fill(overTitle, "how much ", name(about.query), " looks at ", about.key >= 0 ? name(about.key) : "one token after the first", ", every layer × head (blank: not held)");
    if (about.best && about.best.length && !overGrid.matches(":hover, :focus")) fill(overText, "most: ", h("button", { type: "button", class: "lv-button lv-small", "data-best": "", onclick: () => pickHead(about.best[0], about.best[1]) }, `layer ${about.best[0]}, head ${about.best[1]}`), " ", format(about.best[2]));
  };
  const settleHeads = roving(heads, "button"), settleQueries = roving(queries, "button"), settleKeys = roving(keys, "button");
  let at = [0, 0], size = [1, 1], asked = 0;

  slider.addEventListener("input", () => { layerText.textContent = `${slider.value} of ${model.get("n_layer")}`; });
  slider.addEventListener("change", () => host.set("layer", Number(slider.value)));
  const choose = (pos) => { if (model.get("query") !== pos) host.set("query", pos); };

  const look = async (spoken) => {
    const axis = model.get("axis");
    if (!axis.length) return;
    const [r, c] = at, mine = ++asked;
    cellMark.hidden = false;
    Object.assign(cellMark.style, { left: c * size[0] + "px", top: r * size[1] + "px", width: size[0] + "px", height: size[1] + "px" });
    const reply = await ask({ ask: "weight", row: r, column: c });
    if (mine !== asked || !reply.value || !axis[r] || !axis[c]) return;
    const w = reply.value;
    fill(readout, piece(axis[r].text), " → ", piece(axis[c].text), " ",
      w.value === null ? "not computed: a later token" : value(w.value, w.value, w.ref));
    if (spoken) host.say(`${axis[r].text} looks at ${axis[c].text}: ${w.value === null ? "not computed" : w.value}`);
  };
  let frame = 0;
  matrix.addEventListener("pointermove", (e) => {
    const box = canvas.getBoundingClientRect(), n = model.get("axis").length;
    const c = Math.floor(((e.clientX - box.left) / box.width) * n), r = Math.floor(((e.clientY - box.top) / box.height) * n);
    if (r < 0 || c < 0 || r >= n || c >= n || (r === at[0] && c === at[1] && !cellMark.hidden)) return;
    at = [r, c];
    if (!frame) frame = requestAnimationFrame(() => { frame = 0; look(false); });
  });
  matrix.addEventListener("click", () => { const a = model.get("axis")[at[0]]; if (a) choose(a.pos); });
  matrix.addEventListener("keydown", (e) => {
    if (e.key === "Escape") { matrix.blur(); return; }
    const axis = model.get("axis"), to = moved(e.key, at, axis.length, axis.length);
    if (e.key === "Enter" && axis[at[0]]) { choose(axis[at[0]].pos); return; }
    if (!to || e.ctrlKey || e.metaKey || e.altKey) return;
    e.preventDefault();
    e.stopPropagation();
    at = to;
    look(true);
  });

  const drawPicks = (layer, head) => {
    const nLayer = model.get("n_layer"), nHead = model.get("n_head");
    picks.hidden = !(model.get("layers") || []).length;
    slider.max = Math.max(0, nLayer - 1);
    if (document.activeElement !== slider || Number(slider.value) !== layer) slider.value = layer;
    layerText.textContent = `${layer} of ${nLayer}`;
    follow.setAttribute("aria-pressed", String(!!model.get("follow")));
    if (heads.children.length !== nHead) {
      fill(heads, ...Array.from({ length: nHead }, (_, i) => h("button", { type: "button", class: "lv-button lv-small", "data-head": i, onclick: () => host.set("head", i) }, i)));
    }
    [...heads.children].forEach((b, i) => b.setAttribute("aria-pressed", String(i === head)));
    settleHeads();
  };

  const draw = () => {
    const layer = model.get("layer"), head = model.get("head"), axis = model.get("axis") || [], about = model.get("attention_about") || {};
    const picture = bytes(model.get("attention")), n = axis.length, has = picture.length > 0 && picture.length === n * n;
    drawPicks(layer, head);
    const held = model.get("layers") || [];
    empty.hidden = has;
    main.hidden = overBox.hidden = !has;
    fill(ablate, `Ablate head ${head}`);
    ablate.title = `Take away what head ${head} of layer ${layer} adds, from here on`;
    ablate.hidden = !has;
    remark.textContent = has ? `kq_soft_max-${layer}, head ${head}` : "";
    empty.textContent = !held.length ? "Appears when the first layer's kq_soft_max has been computed (step 13)."
      : `Layer ${layer} is not held (${about.dropped ? "it did not fit the recorder's memory; it is kept from the next token on" : "it has not run yet"}). Held: ${held.length > 8 ? `${held[0]} to ${held[held.length - 1]}` : held.join(", ")}.`;
    if (!has) return;

    const scale = model.get("projector") ? 1.5 : 1, line = Math.round((n <= 12 ? 26 : host.docked && n > 16 ? 16 : 20) * scale);
    const rooms = node.clientWidth > 620 ? (node.clientWidth < 760 ? 150 : 205) * scale : 0;
    const room = node.clientWidth - 26 - rooms - (n <= 12 ? 340 : 330) * scale;
    const wide = Math.max(4, Math.min(line, room / n));
    size = [wide, line];
    const chosen = about.index, weights = numbers(model.get("row"), Float32Array);
    const table = colours(false, host.dark, true);
    stage.style.setProperty("--lv-line", line + "px");
    fill(keys, ...axis.map((a, j) => {
      const w = weights[j], known = !Number.isNaN(w);
      return h("button", { type: "button", "aria-pressed": String(model.get("key") === a.pos), title: "Show which heads look at this token", onclick: () => host.set("key", model.get("key") === a.pos ? -1 : a.pos), class: "lv-att-key" + (known ? "" : " lv-unknown"), "data-pos": a.pos, "data-token-id": a.id, style: known ? `--lv-p:${Math.sqrt(w).toFixed(3)}` : undefined },
        known ? value(w >= 0.0005 ? w.toFixed(3) : w === 0 ? "0" : "<0.001", w, `kq_soft_max-${layer}[${head},pos ${about.query},pos ${a.pos}]`) : "", piece(a.text));
    }));
    fill(queries, ...axis.map((a, i) => h("button", {
      type: "button", class: "lv-att-query", "data-pos": a.pos, "aria-pressed": String(i === chosen), title: `show where position ${a.pos} looks`,
      onclick: () => choose(a.pos), onpointerenter: () => choose(a.pos),
    }, piece(a.text))));
    settleQueries();
    settleKeys();
    drawOver(layer, head, axis);
    const height = line * n, width = Math.round(84 * scale);
    links.setAttribute("viewBox", `0 0 ${width} ${height}`);
    links.style.width = width + "px";
    links.style.height = height + "px";
    fill(links, ...axis.flatMap((a, j) => {
      const w = weights[j];
      if (Number.isNaN(w) || w < 0.004) return [];
      const y0 = (j + 0.5) * line, y1 = (chosen + 0.5) * line;
      return [svg("path", { d: `M0 ${y0} C${width * 0.55} ${y0} ${width * 0.45} ${y1} ${width} ${y1}`, "stroke-width": (1 + w * line * 0.7).toFixed(2), "stroke-opacity": (0.15 + 0.75 * Math.sqrt(w)).toFixed(3) })];
    }));
    tops.hidden = wide < 13;
    tops.style.gridTemplateColumns = `repeat(${n}, ${wide}px)`;
    fill(tops, ...axis.map((a) => h("span", {}, piece(a.text))));
    paint(canvas, picture, n, n, table);
    paint(legend, Uint8Array.from({ length: 253 }, (_, i) => i), 1, 253, table);
    canvas.style.width = wide * n + "px";
    canvas.style.height = height + "px";
    matrix.style.width = canvas.style.width;
    Object.assign(rowMark.style, { left: 0, top: chosen * line + "px", width: wide * n + "px", height: line + "px" });
    note.textContent = (n < about.total ? `showing tokens ${about.first}–${axis[n - 1].pos} of ${about.total.toLocaleString("en-US")} · ` : "") + "each row sums to 1 over all tokens; blank: later tokens, never looked at";
  };
  return { node, draw, watch: ["layer", "head", "follow", "layers", "n_layer", "n_head", "axis", "attention", "row", "attention_about", "key", "overview", "overview_about"] };
}

export default alone("attention", "Attention", attentionZone);
