// Attention of one layer and head: links from the chosen query to its keys, and the whole matrix, at
// each of three stages: raw scores, scores after scale and mask, weights.
import { h, fill, svg, alone, card, piece, value, colours, css, paint, bytes, numbers, moved, roving, format, parse } from "./kit.js";
import { driver } from "./driver.js";
import { overviewZone } from "./attention_overview.js";
import { ATTENTION_STYLE } from "./attention_style.js";

const STAGES = [["scores", "scores"], ["masked", "scaled + masked"], ["softmax", "softmax"]];

const AT_ONCE = 0.3, SOON = 4; // seconds that a replay may take by itself; when a person has asked

export function attentionZone(host) {
  const { model, ask } = host;
  const { node, body, remark } = card("Attention", { class: "lv-card lv-attention" });
  const slider = h("input", { type: "range", min: 0, max: 0, step: 1, "aria-label": "Layer" });
  const layerText = h("output", { class: "lv-pick-value" });
  const follow = h("button", { type: "button", class: "lv-button lv-small", title: "Show the layer that is being computed", onclick: () => host.set("follow", !model.get("follow")) }, "follow layer");
  const heads = h("span", { class: "lv-heads", role: "group", "aria-label": "Head" });
  const ablate = h("button", { type: "button", class: "lv-button lv-small", "data-edit": "ablate", onclick: () => driver(host).work({ ask: "ablate", layer: model.get("layer"), heads: [model.get("head")] }) });
  const over = overviewZone(host, node);
  const picks = h("div", { class: "lv-row lv-picks" }, h("label", {}, "layer ", slider, layerText), follow, h("span", { class: "lv-pick-heads" }, "head ", heads), ablate);
  let wanted = false; // a person asked for this stage just now
  const turnTo = (id) => { wanted = true; host.set("stage", id); };
  const turns = STAGES.map(([id, name], i) => h("button", { type: "button", class: "lv-button lv-small", "data-stage": id, title: `Key ${i + 1}`, onclick: () => turnTo(id) }, h("b", { "aria-hidden": "true" }, i + 1), name));
  const turnGroup = h("span", { class: "lv-row", role: "group", "aria-label": "Stage. Keys 1, 2 and 3." }, turns.flatMap((b, i) => (i ? [h("span", { class: "lv-att-arrow", "aria-hidden": "true" }, "→"), b] : [b])));
  const says = h("span", { class: "lv-att-says" });
  const turn = h("div", { class: "lv-att-turn" }, turnGroup, says);
  const keys = h("div", { class: "lv-att-keys" });
  const links = svg("svg", { class: "lv-att-links", "aria-hidden": "true" });
  const queries = h("div", { class: "lv-att-queries", role: "group", "aria-label": "Query tokens. Choose one to see where it looks." });
  const tops = h("div", { class: "lv-att-tops", "aria-hidden": "true" });
  const canvas = h("canvas", { "aria-hidden": "true" }), shutLines = svg("svg", { class: "lv-att-shut", "aria-hidden": "true" });
  const rowMark = h("div", { class: "lv-mark lv-mark-row" });
  const cellMark = h("div", { class: "lv-mark", hidden: true });
  const matrix = h("div", { class: "lv-heat", tabindex: 0, role: "application", "aria-roledescription": "heatmap", "aria-label": "Attention matrix: row is the query, column the key. Arrow keys move; 1, 2 and 3 choose the stage." }, canvas, shutLines, rowMark, cellMark);
  const sumHead = h("div", { class: "lv-att-head", style: "grid-column: 5; padding-left: 0.5em" }, "sum"), sums = h("div", { class: "lv-att-sums", "aria-hidden": "true" }), sum = h("div", { class: "lv-att-sum" });
  const looks = h("div", { class: "lv-att-head", style: "grid-column: 1" });
  const stage = h("div", { class: "lv-att-stage" }, looks, h("div", { class: "lv-att-head", style: "grid-column: 3" }, "query"), tops, sumHead, keys, links, queries, matrix, sums, sum);
  const readout = h("output", { class: "lv-readout" });
  const note = h("p", { class: "lv-remark" });
  const empty = h("p", { class: "lv-empty" });
  const legend = h("canvas", { class: "lv-legend", "aria-hidden": "true" }), low = h("span", {}), high = h("span", {}), kind = h("span", {});
  const main = h("div", { class: "lv-att-main" }, stage, h("div", { class: "lv-row lv-scale" }, low, legend, high, kind, h("span", { class: "lv-grow" }), readout), note);
  body.append(h("style", {}, ATTENTION_STYLE), picks, turn, h("div", { class: "lv-att-body" }, main, over.node), empty);

  const settleHeads = roving(heads, "button"), settleQueries = roving(queries, "button"), settleKeys = roving(keys, "button"), settleTurns = roving(turnGroup, "button");
  let at = [0, 0], size = [1, 1], asked = 0, fetched = "", fetching = false;

  slider.addEventListener("input", () => { layerText.textContent = `${slider.value} of ${model.get("n_layer")}`; });
  slider.addEventListener("change", () => host.set("layer", Number(slider.value)));
  const choose = (pos) => { if (model.get("query") !== pos) host.set("query", pos); };
  node.addEventListener("keydown", (e) => {
    const to = STAGES[Number(e.key) - 1];
    if (!to || e.ctrlKey || e.metaKey || e.altKey || e.target.matches("input:not([type=range])")) return;
    e.preventDefault();
    e.stopPropagation();
    turnTo(to[0]);
    host.say(`${to[1]}`);
  });

  const brief = (x) => String(Number(x.toPrecision(4))); // 0.125, not 0.1250
  const exact = (text, ref) => value(format(parse(text)), text, ref);
  const look = async (spoken) => {
    const axis = model.get("axis");
    if (!axis.length) return;
    const [r, c] = at, mine = ++asked, about = model.get("attention_about") || {};
    cellMark.hidden = false;
    Object.assign(cellMark.style, { left: c * size[0] + "px", top: r * size[1] + "px", width: size[0] + "px", height: size[1] + "px" });
    const reply = await ask({ ask: "weight", row: r, column: c });
    if (mine !== asked || !reply.value || !axis[r] || !axis[c]) return;
    const w = reply.value, shut = w.mask === "-inf";
    const numbersOf = w.value === null ? ["not computed: a later token"]
      : about.stage === "softmax" ? [value(w.value, w.value, w.ref), w.sum !== undefined ? h("span", { class: "lv-remark" }, " of a row that sums to ", value(w.sum.toFixed(6), w.sum, `sum(kq_soft_max-${model.get("layer")}[${model.get("head")},pos ${axis[r].pos}])`)) : ""]
      : about.stage === "scores" ? [value(w.value, w.value, w.ref), h("span", { class: "lv-remark" }, shut ? " a later token: the mask will shut it" : "")]
      : [exact(w.raw, w.raw_ref), ` × ${brief(about.scale)} + `, /slope/.test(about.node) && !shut ? "slope × " : "", shut ? "mask −inf" : `mask ${w.mask === null ? "none" : format(parse(w.mask))}`, " = ", shut ? value("masked", w.value, w.ref) : value(w.value, w.value, w.ref)];
    fill(readout, piece(axis[r].text), " → ", piece(axis[c].text), " ", ...numbersOf);
    if (spoken) host.say(`${axis[r].text} looks at ${axis[c].text}: ${w.value === null ? "not computed" : about.stage === "masked" && shut ? "masked" : w.value}`);
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

  const drawPicks = (layer, head, held) => {
    const nLayer = model.get("n_layer"), nHead = model.get("n_head");
    picks.hidden = turn.hidden = !held.length;
    slider.max = Math.max(0, nLayer - 1);
    if (document.activeElement !== slider || Number(slider.value) !== layer) slider.value = layer;
    layerText.textContent = `${layer} of ${nLayer}`;
    follow.setAttribute("aria-pressed", String(!!model.get("follow")));
    if (heads.children.length !== nHead) {
      fill(heads, ...Array.from({ length: nHead }, (_, i) => h("button", { type: "button", class: "lv-button lv-small", "data-head": i, onclick: () => host.set("head", i) }, i)));
    }
    [...heads.children].forEach((b, i) => b.setAttribute("aria-pressed", String(i === head)));
    settleHeads();
    turns.forEach((b) => b.setAttribute("aria-pressed", String(b.dataset.stage === model.get("stage"))));
    settleTurns();
  };

  const words = (about, layer) => {
    const scale = about.scale === null || about.scale === undefined ? "scale" : brief(about.scale);
    fill(says, ...({
      scores: [h("code", {}, about.node || `kq-${layer}`), " = K · Q: how well each key fits the query. No unit; nothing is shut yet, so later tokens have scores too."],
      masked: [h("code", {}, `${(about.node || `kq-${layer}`).split(" ")[0]} × ${scale} + mask`), ": what enters the softmax. The mask is 0 where a token may look, −inf where not."],
      softmax: [h("code", {}, `kq_soft_max-${layer}`), " = exp(x) ÷ the sum of exp(x)", about.sinks ? " in the row and of the sink, which gets no weight: rows sum to less than 1." : " in its row: weights, and each row sums to 1."],
    })[model.get("stage")]);
  };

  // Scores that went by before anybody asked are computed again, silently where that is done at
  // once; of a long run it would hold up the next step, so a person asks for it.
  const fetchScores = async () => {
    fetching = true;
    draw();
    await ask({ ask: "scores" });
    fetching = false;
    draw();
  };
  const fetchMissing = (about) => {
    const missing = about.stage !== "softmax" && about.missing && about.can_fetch && !model.get("running");
    const key = missing ? [about.stage, model.get("layer"), about.first, about.total, about.missing].join() : "", soon = about.again <= (wanted ? SOON : AT_ONCE);
    if (key && key !== fetched && soon && !fetching) { wanted = false; fetchScores(); }
    fetched = key;
    return missing && !soon && !fetching;
  };

  const draw = () => {
    const layer = model.get("layer"), head = model.get("head"), axis = model.get("axis") || [], about = model.get("attention_about") || {};
    const picture = bytes(model.get("attention")), n = axis.length, has = picture.length > 0 && picture.length === n * n;
    const held = model.get("layers") || [], soft = about.stage === "softmax", masked = about.stage === "masked";
    drawPicks(layer, head, held);
    words(about, layer);
    const late = fetchMissing(about);
    empty.hidden = has;
    main.hidden = !has;
    fill(ablate, `Ablate head ${head}`);
    ablate.title = `Take away what head ${head} of layer ${layer} adds, from here on`;
    ablate.hidden = !has;
    remark.textContent = has ? `${soft ? `kq_soft_max-${layer}` : about.node}, head ${head}` : "";
    empty.textContent = about.why ? `This stage cannot be shown: ${about.why}.` : !held.length ? "Appears when the first layer's kq_soft_max has been computed (step 13)."
      : `Layer ${layer} is not held (${about.dropped ? "it did not fit the recorder's memory; it is kept from the next token on" : "it has not run yet"}). Held: ${held.length > 8 ? `${held[0]} to ${held[held.length - 1]}` : held.join(", ")}.`;
    over.draw();
    if (!has) return;

    const scale = model.get("projector") ? 1.5 : 1, roomy = node.clientWidth > 900 * scale && n <= (host.docked ? 12 : 20);
    const line = Math.round((roomy ? Math.min(40, 420 / n) : n <= 12 ? 26 : host.docked && n > 16 ? 16 : 20) * scale);
    const rooms = over.node.hidden ? 0 : node.clientWidth > 620 ? (node.clientWidth < 760 ? 150 : 205) * scale : 0;
    const room = node.clientWidth - 26 - rooms - ((n <= 12 ? 340 : 330) + (soft && node.clientWidth > 760 ? 50 : 0)) * scale;
    const wide = Math.max(4, Math.min(line, room / n));
    size = [wide, line];
    const chosen = about.index, row = numbers(model.get("row"), Float32Array), most = about.high || 1, shut = bytes(model.get("shut"));
    const table = soft ? colours(false, host.dark, true) : colours(true, host.dark, true);
    const level = (w) => Math.round((Math.max(-1, Math.min(1, w / most)) + 1) * 126);
    const refOf = (pos) => (soft ? `kq_soft_max-${layer}[${head},pos ${about.query},pos ${pos}]` : (about.node || "").replace(/^\S+/, (name) => `${name}[${head},pos ${about.query},pos ${pos}]`));
    looks.textContent = soft ? "looks at" : "key";
    stage.style.setProperty("--lv-line", line + "px");
    fill(keys, ...axis.map((a, j) => {
      const w = row[j], known = !Number.isNaN(w), closed = masked && w === -Infinity;
      const shown = closed ? "masked" : !known ? "" : soft ? (w >= 0.0005 ? w.toFixed(3) : w === 0 ? "0" : "<0.001") : w.toFixed(2).replace("-", "−");
      const style = !known || closed ? undefined : soft ? `--lv-p:${Math.sqrt(w).toFixed(3)}` : `--lv-p:${Math.min(1, Math.abs(w) / most).toFixed(3)};--lv-s:${css(table[w < 0 ? 40 : 212])}`;
      return h("button", { type: "button", "aria-pressed": String(model.get("key") === a.pos), title: "Show which heads look at this token", onclick: () => host.set("key", model.get("key") === a.pos ? -1 : a.pos), class: "lv-att-key" + (known ? "" : " lv-unknown") + (soft ? "" : " lv-signed") + (closed ? " lv-shut" : ""), "data-pos": a.pos, "data-token-id": a.id, style },
        known ? value(shown, closed ? "-inf" : w, refOf(a.pos)) : "", piece(a.text));
    }));
    fill(queries, ...axis.map((a, i) => h("button", {
      type: "button", class: "lv-att-query", "data-pos": a.pos, "aria-pressed": String(i === chosen), title: `show where position ${a.pos} looks`,
      onclick: () => choose(a.pos), onpointerenter: () => choose(a.pos),
    }, piece(a.text))));
    settleQueries();
    settleKeys();
    const height = line * n, width = Math.round(84 * scale);
    links.setAttribute("viewBox", `0 0 ${width} ${height}`);
    links.classList.toggle("lv-dark", host.dark);
    links.style.width = width + "px";
    links.style.height = height + "px";
    fill(links, ...axis.flatMap((a, j) => {
      const w = row[j], part = soft ? w : Math.min(1, Math.abs(w) / most);
      if (!Number.isFinite(w) || part < 0.004) return [];
      const y0 = (j + 0.5) * line, y1 = (chosen + 0.5) * line;
      return [svg("path", { class: soft ? "" : w < 0 ? "lv-neg" : "lv-pos", d: `M0 ${y0} C${width * 0.55} ${y0} ${width * 0.45} ${y1} ${width} ${y1}`, "stroke-width": (1 + part * line * (soft ? 0.7 : 0.3)).toFixed(2), "stroke-opacity": (0.15 + 0.75 * Math.sqrt(part)).toFixed(3) })];
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
    // A cell that the mask shuts is struck out: it has no number any more.
    const closed = masked && shut.length === n * n ? [...shut].flatMap((s, i) => (s ? [`M${((i % n) * wide + 2).toFixed(1)} ${(Math.floor(i / n) + 1) * line - 2}L${((i % n + 1) * wide - 2).toFixed(1)} ${Math.floor(i / n) * line + 2}`] : [])) : [];
    for (const [name, to] of [["width", wide * n], ["height", height]]) shutLines.setAttribute(name, to);
    fill(shutLines, closed.length ? svg("path", { d: closed.join("") }) : null);
    drawSums(about, axis, row, soft, layer, head);
    low.textContent = soft ? "0" : format(-most);
    high.textContent = soft ? "1 " : "+" + format(most);
    fill(kind, ...(soft ? ["(colour by square root)"] : masked ? [h("i", { class: "lv-att-swatch lv-hatch" }), " masked"] : ["float32, no unit"]));
    const part = n < about.total ? `showing tokens ${about.first}–${axis[n - 1].pos} of ${about.total.toLocaleString("en-US")} · ` : "";
    fill(note, part + (fetching ? "computing the scores of earlier passes again …" : soft ? (about.sinks ? "what is missing to 1 went to the sink" : "each row sums to 1 over all tokens") + "; blank: later tokens, never looked at"
      : (about.missing && about.why ? `${about.why} · ` : "") + "blank: not in the cache yet when this row was computed"),
      late ? h("button", { type: "button", class: "lv-button lv-small", "data-scores": "", title: "Run these passes once more, silently; the run stays where it is", onclick: fetchScores }, `compute the scores of ${about.missing} earlier row${about.missing === 1 ? "" : "s"} again (up to ${about.again.toFixed(1)} s)`) : null);
  };

  // The chosen row's sum under its weights, and every row's beside it.
  const drawSums = (about, axis, row, soft, layer, head) => {
    const all = soft && about.sums ? about.sums : [], aside = node.clientWidth > 760, ref = (i) => `sum(kq_soft_max-${layer}[${head},pos ${axis[i].pos}])`;
    sum.hidden = !all.length;
    sumHead.hidden = sums.hidden = !all.length || !aside;
    if (!all.length) { fill(sum); fill(sums); return; }
    fill(sums, ...all.map((x, i) => h("span", { "data-now": i === about.index }, x === null ? "" : value(x.toFixed(3), x, ref(i)))));
    const here = all[about.index], shown = row.reduce((a, w) => a + (Number.isNaN(w) ? 0 : w), 0);
    fill(sum, here === null ? "" : [h("b", {}, "Σ "), value(here.toFixed(3), here, ref(about.index)), here - shown > 5e-4 ? h("span", { class: "lv-remark" }, `${(here - shown).toFixed(3)} of it on earlier tokens`) : ""]);
  };
  return { node, draw, watch: ["layer", "head", "follow", "stage", "layers", "n_layer", "n_head", "axis", "attention", "row", "shut", "attention_about", "key", "measure", "overview", "overview_about", "running"] };
}

export default alone("attention", "Attention", attentionZone);
