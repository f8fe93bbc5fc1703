// The whole pass on one page: tokens as rows, one layer open, the others folded.
import { h, fill, svg, alone, card, piece, visible, value, percent, format, parse, colours, numbers, bytes } from "./kit.js";
import { driver } from "./driver.js";
import { layOut, mergeFor, isFolded, isOpen, stem } from "./flow_layout.js";
import { FLOW_STYLE } from "./flow_style.js";
import { cutStrips, stateOf, paintStage, ribbons, gradient, weightColours } from "./flow_paint.js";

const FLIGHT = 1100, OPENING = 260; // ms

export function flowZone(host) {
  const { model, ask } = host;
  const { node, head: title, body, remark } = card("The whole pass", { class: "lv-card lv-flow" });
  const layer = (tag, name) => h(tag, { class: name });
  const under = layer("div", "lv-flow-card"), rowMark = layer("div", "lv-flow-row"), over = layer("div", "lv-flow-over");
  const edgesSvg = svg("svg", { class: "lv-flow-edges", "aria-hidden": "true" });
  const parts = layer("div", "lv-flow-over");
  const canvas = h("canvas", { class: "lv-flow-canvas", "aria-hidden": "true" });
  const nowMark = h("div", { class: "lv-flow-now", hidden: true }), mark = h("div", { class: "lv-flow-mark", hidden: true });
  const hit = h("div", { class: "lv-flow-hit", tabindex: 0, role: "application", "aria-roledescription": "diagram" });
  const tokens = h("div", { role: "group", "aria-label": "Tokens. Choose one to follow its attention." });
  const list = h("div", { class: "lv-flow-list", role: "group", "aria-label": "Likeliest next tokens" });
  const picks = h("div", { class: "lv-flow-picks" });
  const stage = h("div", { class: "lv-flow-stage" }, under, rowMark, edgesSvg, canvas, over, parts, nowMark, mark, hit, tokens, list, picks);
  const scroll = h("div", { class: "lv-flow-scroll" }, stage);
  const readout = h("output", { class: "lv-readout" });
  const keys = h("span", { class: "lv-row" });
  const foot = h("div", { class: "lv-flow-foot" }, readout, keys);
  const start = h("p", { class: "lv-flow-start" });
  const hint = h("span", { class: "lv-remark" });
  const table = h("table", {}), tableBox = h("div", { class: "lv-hidden" }, table);
  const fetching = h("span", {});
  title.append(fetching);
  body.append(h("style", {}, FLOW_STYLE), start, scroll, foot, tableBox);

  let lay = null, strips = [], at = { col: 0, row: 0, bin: 0 }, asked = 0, flown = "", fetched = "", shownLayer = null, closed = false, top = 0, version = 0, ink = {};
  // Each part is built again only when what it shows has changed.
  const built = new Map();
  const when = (part, key, build) => {
    const text = JSON.stringify(key);
    if (built.get(part) === text) return;
    built.set(part, text);
    build();
  };
  const rowsOf = () => model.get("flow_rows") || [];
  let merge = 1, merged = [];
  const columnsOf = () => merged;
  const about = () => model.get("flow_at") || {};
  const pen = document.createElement("canvas").getContext("2d");
  const still = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

  // -- pointing and reading --------------------------------------------------------------------

  const named = (c) => (isFolded(c) ? `layer ${c.layer}` : c.layer >= 0 ? `${c.label === "+" ? "stream" : c.label}` : c.label);
  const openLayer = (il) => { if (il !== model.get("layer")) host.set("layer", il); };
  const chooseHead = (to) => { const n = model.get("flow").n_head; host.set("head", ((to % n) + n) % n); };
  const chooseQuery = (row) => { const r = rowsOf()[row]; if (r && r.state !== "next" && r.pos !== about().query) host.set("query", r.pos); };

  const idle = () => fill(readout, hint);

  // The value that a line of a strip shows: the strongest of those it stands for.
  const strongestOf = async (c, row, bin) => {
    const one = (k) => ask({ ask: "flow_value", column: c.id, row, bin: k });
    if (c.kind === "matrix" || merge === 1) return (await one(bin)).value;
    const raw = c.raw, bins = Array.from({ length: Math.min(raw, (bin + 1) * merge) - bin * merge }, (_, k) => bin * merge + k);
    const all = (await Promise.all(bins.map(one))).map((r) => r.value).filter((v) => v);
    const size = (v) => { const x = parse(v.value); return Number.isNaN(x) ? Infinity : Math.abs(x); };
    const known = all.filter((v) => v.value !== null);
    if (!known.length) return all[0];
    const best = known.reduce((a, b) => (size(b) > size(a) ? b : a));
    return { ...best, from: Math.min(...known.map((v) => v.from)), to: Math.max(...known.map((v) => v.to)) };
  };

  const look = async (spoken) => {
    const columns = columnsOf(), rows = rowsOf(), c = columns[at.col], row = rows[at.row];
    if (!c || !row || !lay) return;
    placeMark();
    const mine = ++asked, text = visible(row.text).replace(/\u00a0/g, " ");
    const got = row.state === "place" || (c.kind !== "matrix" && row.state === "next") ? { value: null } : await strongestOf(c, at.row, at.bin);
    if (mine !== asked || !got || closed) return;
    const many = got.to !== undefined && got.to > got.from;
    const pair = c.kind === "matrix" && rows[at.bin] ? [piece(row.text), " → ", piece(rows[at.bin].text), " "] : [piece(row.text), " "];
    const what = got.value === null
      ? [h("span", { class: "lv-remark" }, row.state === "next" ? "chosen, not in the pass yet" : about().done[at.col] ? "not computed: only the last token's row is needed" : "not computed yet")]
      : [h("code", {}, got.ref), " = ", value(format(parse(got.value)), got.value, got.ref, { "data-pass": got.pass }),
        h("span", { class: "lv-remark" }, got.mask === "-inf" ? "  the mask adds −inf: a later token" : many ? `  strongest of ${got.from}–${got.to}, of ${c.n.toLocaleString("en-US")} ${got.dtype}` : c.kind === "matrix" ? `  of ${c.heads} heads` : `  of ${c.n.toLocaleString("en-US")} ${got.dtype}`), got.pass !== about().pass_ ? h("span", { class: "lv-remark" }, `, in pass ${got.pass + 1}`) : ""];
    const broken = (about().broken || []).includes(c.id);
    fill(readout, h("strong", {}, isFolded(c) ? `layer ${c.layer} ` : `${c.label === "+" ? "stream" : c.label} `), h("span", { class: "lv-remark" }, `${c.about}: `), ...pair, ...what, " ",
      h("button", { type: "button", class: "lv-button lv-small", "data-flow": "tensor", title: `See all of ${c.id}`, onclick: () => driver(host).work({ ask: "flow_tensor", column: c.id }) }, "tensor"), " ",
      h("button", { type: "button", class: "lv-button lv-small", "data-flow": "break", "aria-pressed": String(broken), title: `Stop whenever ${c.id} has been computed`, onclick: () => ask({ ask: "flow_break", column: c.id }) }, "break here"));
    if (spoken) host.say(`${named(c)}, ${c.about}. Token ${text}. ${got.value === null ? "Not computed" : `${got.ref} is ${got.value}`}${isFolded(c) ? ". Enter opens this layer" : ""}`);
  };

  const boxOf = (col, row, bin) => {
    const c = columnsOf()[col], { pitch, top: lane, strip } = lay.sizes, { x, w } = lay.at[col];
    if (c.kind === "matrix") {
      const cell = w / lay.keys;
      return { left: x + bin * cell, top: top + row * pitch + lane, width: cell, height: strip };
    }
    return { left: x, top: top + row * pitch + lane, width: w, height: strip };
  };
  const px = (o) => Object.fromEntries(Object.entries(o).map(([k, v]) => [k, typeof v === "number" ? v.toFixed(1) + "px" : v]));
  const placeMark = () => {
    const b = boxOf(at.col, at.row, at.bin);
    mark.hidden = false;
    Object.assign(mark.style, px({ left: b.left - 2, top: b.top - 2, width: b.width + 4, height: b.height + 4 }));
  };

  const under1 = (e) => {
    const box = hit.getBoundingClientRect(), x = e.clientX - box.left + lay.tokenWide, y = e.clientY - box.top;
    const rows = rowsOf(), columns = columnsOf(), { pitch, top: lane, strip } = lay.sizes;
    const row = Math.floor(y / pitch);
    const col = columns.findIndex((c, i) => x >= lay.at[i].x - 2 && x <= lay.at[i].x + lay.at[i].w + (isFolded(c) ? 1 : 3));
    if (row < 0 || row >= lay.keys || col < 0) return null;
    const c = columns[col], inside = (y - row * pitch - lane) / strip;
    const bin = c.kind === "matrix" ? Math.floor(((x - lay.at[col].x) / lay.at[col].w) * lay.keys) : Math.floor(inside * c.bins);
    const most = c.kind === "matrix" ? lay.keys : c.bins;
    return { col, row, bin: Math.max(0, Math.min(most - 1, bin)) };
  };
  let frame = 0;
  hit.addEventListener("pointermove", (e) => {
    const to = lay && under1(e);
    hit.style.cursor = to && isFolded(columnsOf()[to.col]) ? "pointer" : to ? "crosshair" : "default";
    if (!to || (to.col === at.col && to.row === at.row && to.bin === at.bin && !mark.hidden)) return;
    at = to;
    if (!frame) frame = requestAnimationFrame(() => { frame = 0; look(false); });
  });
  hit.addEventListener("pointerleave", () => { if (document.activeElement !== hit) mark.hidden = true; });
  const act = () => {
    const c = columnsOf()[at.col];
    if (!c) return;
    if (isFolded(c)) openLayer(c.layer);
    else {
      host.set("selected_node", c.id);
      chooseQuery(at.row);
    }
  };
  hit.addEventListener("click", (e) => { const to = lay && under1(e); if (to) { at = to; act(); } });
  hit.addEventListener("focus", () => { if (hit.matches(":focus-visible")) look(true); });
  hit.addEventListener("blur", () => { mark.hidden = true; });
  hit.addEventListener("keydown", (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey || !lay) return;
    const columns = columnsOf(), n = lay.keys;
    if (e.key === "Escape") { hit.blur(); return; }
    if (e.key === "Enter" || e.key === " ") { e.preventDefault(); e.stopPropagation(); act(); return; }
    const step = { ArrowLeft: -1, ArrowRight: 1 }[e.key], bin = at.bin + (step || 0);
    if (step && columns[at.col].kind === "matrix" && bin >= 0 && bin < n) {
      // Inside a matrix the arrows go from key to key.
      e.preventDefault();
      e.stopPropagation();
      at = { ...at, bin };
      look(true);
      return;
    }
    const to = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1], Home: [-columns.length, 0], End: [columns.length, 0], PageUp: [0, -8], PageDown: [0, 8] }[e.key];
    if (!to) return;
    e.preventDefault();
    e.stopPropagation();
    at = { col: Math.max(0, Math.min(columns.length - 1, at.col + to[0])), row: Math.max(0, Math.min(n - 1, at.row + to[1])), bin: to[0] ? 0 : at.bin };
    if (to[0] < 0 && columns[at.col].kind === "matrix") at.bin = n - 1;
    const b = boxOf(at.col, at.row, at.bin);
    if (b.left < scroll.scrollLeft + 10 || b.left > scroll.scrollLeft + scroll.clientWidth - 40) scroll.scrollLeft = b.left - scroll.clientWidth / 2;
    look(true);
  });

  // -- drawing ---------------------------------------------------------------------------------

  const draw = () => {
    const flow = model.get("flow") || {}, columns = flow.columns || [], rows = rowsOf(), now = about();
    const empty = !columns.length || !rows.length || !!now.why, planned = !empty && !!now.planned;
    scroll.hidden = foot.hidden = empty;
    start.hidden = !empty && !planned;
    start.classList.toggle("lv-flow-plan", planned);
    stage.classList.toggle("lv-flow-planned", planned);
    const em = model.get("projector") ? 21 : 14, raw = Math.max(0, ...columns.map((c) => c.bins)), live = Math.max(1, rows.filter((r) => r.state !== "next").length);
    merge = mergeFor(raw, live, em / 14, roomForRows(em));
    merged = columns.map((c) => ({ ...c, raw: c.bins, bins: Math.ceil(c.bins / merge) }));
    drawWords(flow, now, rows, planned);
    if (empty) { lay = null; built.clear(); return; }
    const width = Math.max(300, Math.floor(body.getBoundingClientRect().width) - 1);
    const opened = shownLayer !== null && shownLayer !== flow.layer;
    strips = cutStrips(model, merge);
    when("layout", [flow.layer, merged.map((c) => [c.id, c.bins]), rows, width, em], () => {
      pen.font = `${Math.max(13, em * 0.93)}px ${getComputedStyle(node).fontFamily}`;
      const letter = 0.61 * Math.max(13, em * 0.95), longest = Math.max(...rows.map((r) => [...visible(r.text)].length)) * letter; // pieces stand in the fixed-width font
      lay = layOut({
        columns: merged, nRows: live, bins: Math.max(...merged.map((c) => c.bins)), width, em,
        tokenWide: Math.min(8.6 * em, Math.max(4.6 * em, longest + 1.2 * em)), listWide: 13 * em, measure: (t) => pen.measureText(t).width,
      });
      lay.version = ++version;
      measureStage(rows, em);
    });
    shownLayer = flow.layer;
    when("list", [lay.version, model.get("flow_top"), model.get("flow_chain"), now.phase], () => { drawList(em); lay.listEnd = [list.offsetTop, list.offsetHeight, list.offsetWidth]; });
    drawStage(merged, rows, now, flow);
    when("table", [flow.layer, now.done, now.now, now.scales], () => drawTable(merged, rows, now));
    if (!mark.hidden) look(false);
    if (opened && !model.get("running") && !still()) unfold();
    fly();
    fetchMissing(flow, now);
  };

  // Docked, the rows share the height of the panel with what stands above and below them.
  const roomForRows = (em) => {
    const box = host.docked && !host.root.classList.contains("lv-wide") && node.closest(".lv-stage");
    if (!box || getComputedStyle(box).overflowY !== "auto") return Infinity;
    return Math.max(0, box.clientHeight - 23 * em) * 1.12;
  };

  // A layer that was folded while it was computed: its nodes are computed again, silently where that
  // is done at once. Of a long pass it would hold up the next step: a person asks for it.
  const fetchMissing = (flow, now) => {
    const key = now.missing && !model.get("running") ? `${now.pass_} ${flow.layer}` : "";
    if (key && key !== fetched && now.again <= 0.3) ask({ ask: "flow_fetch" });
    fetched = key;
  };

  const drawWords = (flow, now, rows, planned) => {
    const phases = { load: "loading the model", prompt: "reading the prompt", pass: "computing", logits: "the logits are there", sample: "choosing a token", accept: "token chosen" };
    const c = merged[now.now], step = phases[now.phase] || "";
    const which = now.pass_ >= 0 ? `pass ${now.pass_ + 1}: ${now.n_new} token${now.n_new === 1 ? "" : "s"} in` : "";
    const place = now.phase === "pass" && c ? (c.layer >= 0 ? `layer ${c.layer}, ${c.id}` : c.id) : step;
    const next = now.phase === "load" ? "The model is being loaded." : now.phase === "prompt" && now.n_tokens ? `The text has been cut into ${now.n_tokens.toLocaleString("en-US")} tokens.`
      : now.phase ? "The prompt has not been cut into tokens yet (step 9)." : "Nothing has run yet. Take the first step, or run.";
    if (planned) fill(start, h("span", { class: "lv-tag" }, "not computed yet"), " ", next, h("span", { class: "lv-remark" }, flow.source === "file" ? " What the file's header tells of the pass: its layers, their tensors, their sizes." : " The graph that will run: every outline fills when it is computed (step 13)."));
    else start.textContent = now.why ? now.why : now.phase === "load" ? `${next} The pass appears with the context (step 7).` : now.phase ? "The pass appears with the context (step 7)." : next;
    const notes = [];
    if (now.n_tokens > rows.length && rows.length) notes.push(`showing ${rows.length} of ${now.n_tokens.toLocaleString("en-US")} tokens`);
    remark.textContent = [which, place, ...notes].filter(Boolean).join(" · ");
    hint.textContent = rows.some((r) => r.state === "cached") ? "Dimmed rows are earlier passes: only their K and V are used again, from the cache."
      : "Point at a strip to read its numbers; click a folded layer to open it.";
    if (planned) hint.textContent = `${flow.n_layer} layers, one of them open; click a folded layer to open it.`;
    const wide = !planned && merged.find((c) => c.bins && c.n > c.bins);
    if (wide) hint.textContent += ` A line is the strongest of ${Math.round(wide.n / wide.bins)} of ${wide.n.toLocaleString("en-US")} values; each strip has its own scale.`;
  };

  const measureStage = (rows, em) => {
    const { big, sizes } = lay, n = rows.length, line = Math.round(Math.max(13, em * 0.93) * 1.3);
    const drawnRows = n && rows[n - 1].state === "next" ? n - 1 : n, rowsHigh = drawnRows * sizes.pitch;
    top = Math.round(34 * big) + line * (1 + lay.levels) + 4;
    Object.assign(lay, { line, drawnRows, rowsHigh, slotY: top + rowsHigh, slotHigh: Math.round(30 * big) });
  };

  const drawStage = (columns, rows, now, flow) => {
    const { big, sizes } = lay, line = lay.line, n = rows.length;
    const captionY = Math.round(34 * big), labelY = captionY + line, levels = lay.levels;
    const { drawnRows, rowsHigh, slotHigh } = lay, footY = top + rowsHigh + 3, [listTop, listHigh] = lay.listEnd;
    const high = Math.max(top + rowsHigh + slotHigh + line + 12, listTop + listHigh + (lay.below ? 8 : 30 * big));
    lay.high = high;
    const shape = [lay.version, high];
    when("frame", shape, () => {
      Object.assign(stage.style, px({ width: lay.width, height: high }));
      Object.assign(under.style, px({ left: lay.card.x0, top: 0, width: lay.card.x1 - lay.card.x0, height: footY + line + 10 }));
      Object.assign(canvas.style, px({ left: 0, top }));
      Object.assign(hit.style, px({ left: lay.tokenWide, top, width: lay.right - lay.tokenWide + 4, height: rowsHigh }));
      hit.setAttribute("aria-label", `The pass: ${drawnRows} tokens, ${columns.length} columns, layer ${flow.layer} of ${flow.n_layer} open. Arrow keys move over tokens and columns; Enter opens a layer or selects a node.`);
      edgesSvg.setAttribute("width", lay.width);
      edgesSvg.setAttribute("height", high);
    });
    when("inks", [host.dark, model.get("theme")], () => { ink = inks(); });
    const mask = bytes(model.get("flow_mask")), view = { lay, columns, edges: flow.edges, strips, rows, dark: host.dark, ink, done: now.done, index: now.index, mask: mask.length === n * n ? mask : null };
    paintStage(canvas, view);
    const soft = columns.findIndex((c) => c.op === "SOFT_MAX" && c.kind === "matrix"), links = soft >= 0 && strips[soft].data ? strips[soft].data.join() : "";
    when("ribbons", [shape, now.done, now.index, flow.head, links, (model.get("flow_top") || []).length], () => fill(edgesSvg, svg("g", { transform: `translate(0 ${top})` }, ...ribbons(view)), ...outerEdges(rows)));
    when("row", [shape, now.index], () => {
      Object.assign(rowMark.style, px({ left: 0, top: top + now.index * sizes.pitch + 1, width: lay.right + 6, height: sizes.pitch - 2 }));
      rowMark.hidden = n < 2 || rows[0].state === "place";
    });
    const state = (i) => (i === now.now ? "now" : now.done[i] ? "done" : "todo");
    const text = (cls, x, y, ...inner) => { const t = h("div", { class: cls }, ...inner); Object.assign(t.style, px({ left: x, top: y })); return t; };
    when("labels", [shape, flow.head], () => fill(over, ...lay.labels.map((l) => {
      const t = text("lv-flow-label", l.x, labelY + (levels - 1 - l.level) * line, l.text === "+" ? "⊕" : l.text);
      t.dataset.column = columns[l.i].id;
      t.title = `${columns[l.i].id}: ${columns[l.i].about}`;
      return t;
    }), ...captions(captionY, footY, line, text)));
    lay.labels.forEach((l, k) => {
      const t = over.children[k], chosen = columns[l.i].id === model.get("selected_node");
      if (t.dataset.state !== state(l.i)) t.dataset.state = state(l.i);
      if (chosen !== t.hasAttribute("data-selected")) t.toggleAttribute("data-selected", chosen);
    });
    const row = bytes(model.get("flow_row"));
    when("weights", [shape, now.index, now.query, soft >= 0 && now.done[soft], flow.head, row.join()], () => fill(parts, ...weights(columns, rows, now, text)));
    const c = columns[now.now];
    nowMark.hidden = !c;
    if (c) Object.assign(nowMark.style, px({ left: lay.at[now.now].x - 4, top: top - 1, width: lay.at[now.now].w + 8, height: rowsHigh + 2 }));
    when("picks", [shape, flow.head, now.missing, now.again], () => drawPicks(flow));
    when("tokens", [shape, rows, now.index], () => drawTokens(rows, drawnRows, now));
    when("keys", host.dark, drawKeys);
  };

  // Sizes under the strips and titles above the groups.
  const captions = (y, footY, line, text) => {
    const out = [], g = lay.groups;
    for (const s of [g.before, g.after]) if (s) out.push(text("lv-flow-caption lv-flow-middle", s.mid, top - line - 4, s.text));
    if (g.attention) out.push(text("lv-flow-caption", g.attention.x0, y, h("b", {}, "attention"), model.get("flow").n_head ? ` of head ${model.get("flow").head}` : ""));
    if (g.mlp) out.push(text("lv-flow-caption", g.mlp.x0, y, h("b", {}, "feed-forward")));
    let free = -Infinity;
    for (const run of lay.runs) {
      const name = run.n.toLocaleString("en-US"), w = pen.measureText(name).width + 8, mid = (run.x0 + run.x1) / 2;
      if (mid - w / 2 < free) continue;
      free = mid + w / 2;
      const rule = text("lv-flow-rule", run.x0, footY + 2);
      rule.style.width = run.x1 - run.x0 + "px";
      out.push(rule, text("lv-flow-caption lv-flow-middle", mid, footY + 6, name));
    }
    columnsOf().forEach((c, i) => {
      const name = c.op === "SOFT_MAX" ? "sums to 1" : "╱ masked", { x, w } = lay.at[i];
      if (c.kind === "matrix" && pen.measureText(name).width < w + 12) out.push(text("lv-flow-caption lv-flow-middle", x + w / 2, footY + 6, name));
    });
    return out;
  };

  // The chosen token's weights, where the ribbons begin.
  const weights = (columns, rows, now, text) => {
    const v = columns.findIndex((c) => stem(c.id) === "Vcur"), soft = columns.findIndex((c) => c.op === "SOFT_MAX" && c.kind === "matrix");
    const row = numbers(model.get("flow_row"), Float32Array);
    if (v < 0 || soft < 0 || !now.done[soft] || row.length !== rows.length) return [];
    const { pitch, top: lane, strip } = lay.sizes, c = columns[soft];
    return rows.flatMap((r, k) => {
      if (!(row[k] >= (rows.length > 10 ? 0.05 : 0.01))) return [];
      const t = text("lv-flow-weight", lay.at[v].x + lay.at[v].w + 5, top + k * pitch + lane + strip / 2, value(row[k].toFixed(2), row[k], `${c.id}[${c.head},pos ${now.query},pos ${r.pos}]`));
      return [t];
    });
  };

  // From the strips to the list, and from the chosen token back to the prompt.
  const outerEdges = (rows) => {
    const out = [], last = lay.at.length - 1, { sizes, big } = lay, [listTop, listHigh, listWide] = lay.listEnd;
    const live = rows.map((r, i) => (r.state === "now" ? i : -1)).filter((i) => i >= 0);
    const r = live.length ? live[live.length - 1] : 0;
    const x0 = lay.at[last].x + lay.at[last].w, y0 = top + r * sizes.pitch + sizes.top, y1 = y0 + sizes.strip;
    const todo = (model.get("flow_top") || []).length ? "" : " lv-flow-todo";
    if (lay.below) {
      const xa = lay.at[last].x, yb = listTop - 4, xe = lay.listX + listWide, m = (y1 + yb) / 2;
      out.push(svg("path", { class: "lv-flow-band" + todo, d: `M${xa} ${y1}C${xa} ${m} ${lay.listX} ${m} ${lay.listX} ${yb}L${xe} ${yb}C${xe} ${m} ${x0} ${m} ${x0} ${y1}Z` }));
    } else {
      const x1 = lay.listX - 6, m = (x0 + x1) / 2, listEnd = top + 8 * 1.6 * 14 * big;
      out.push(svg("path", { class: "lv-flow-band" + todo, d: `M${x0} ${y0}C${m} ${y0} ${m} ${top} ${x1} ${top}L${x1} ${listEnd}C${m} ${listEnd} ${m} ${y1} ${x0} ${y1}Z` }));
    }
    const chosen = rows.length && rows[rows.length - 1].state === "next", live2 = chosen ? " lv-flow-live" : "";
    // Into the slot from below, clear of the sizes beside it.
    const y = lay.slotY + lay.slotHigh - 3 * big, x2 = lay.tokenWide - 22 * big, bendX = lay.listX + (lay.below ? -8 : 40 * big);
    const turn = lay.below ? listTop + listHigh / 2 : lay.high - 8, up = lay.below ? turn : Math.min(turn - 14, listTop + listHigh + 6);
    const down = lay.below ? `M${bendX} ${turn}` : `M${bendX} ${up}L${bendX} ${turn - 14}Q${bendX} ${turn} ${bendX - 14} ${turn}`;
    lay.turn = turn;
    out.push(svg("path", { class: "lv-flow-return" + live2, d: `${down}L${x2 + 12} ${turn}Q${x2} ${turn} ${x2} ${turn - 12}L${x2} ${y + 8}` }));
    out.push(svg("path", { class: "lv-flow-arrow" + live2, d: `M${x2} ${y}l-5 9h10z` }));
    return out;
  };

  const drawTokens = (rows, drawnRows, now) => {
    const { pitch } = lay.sizes, chips = rows.slice(0, drawnRows).map((r, i) => {
      const b = r.state === "place" ? h("span", { class: "lv-flow-token", "data-state": "place" }, h("span", { class: "lv-piece" }, "token …")) : h("button", {
        type: "button", tabindex: -1, class: "lv-flow-token", "data-token-id": r.id, "data-pos": r.pos, "data-state": r.state,
        "aria-pressed": String(i === now.index), title: `position ${r.pos}, token ${r.id}: follow its attention`, onclick: () => chooseQuery(i),
      }, piece(r.text));
      Object.assign(b.style, px({ left: 0, top: top + i * pitch, width: lay.tokenWide, height: pitch }), { position: "absolute" });
      return b;
    });
    const next = rows[drawnRows];
    const slot = h("div", { class: "lv-flow-token lv-flow-slot", "data-state": next ? "next" : "open", "data-token-id": next ? next.id : undefined, "data-pos": next ? next.pos : undefined, title: "where the chosen token goes" }, next ? piece(next.text) : h("span", { class: "lv-piece" }, "?"));
    Object.assign(slot.style, px({ left: 0, top: lay.slotY, width: lay.tokenWide, height: lay.slotHigh }), { position: "absolute", cursor: "default" });
    fill(tokens, ...chips, slot);
  };

  const drawPicks = (flow) => {
    const step = (label, text, off, f) => h("button", { type: "button", class: "lv-flow-step", "aria-label": label, title: label, disabled: off, onclick: f }, text);
    const { missing, again } = about();
    fill(picks,
      step("Layer before", "‹", flow.layer <= 0, () => openLayer(flow.layer - 1)), h("b", {}, `Layer ${flow.layer}`), step("Next layer", "›", flow.layer >= flow.n_layer - 1, () => openLayer(flow.layer + 1)),
      h("span", { class: "lv-flow-of" }, `of ${flow.n_layer}`),
      flow.n_head ? [step("Head before", "‹", flow.n_head < 2, () => chooseHead(flow.head - 1)), h("b", {}, `Head ${flow.head}`), step("Next head", "›", flow.n_head < 2, () => chooseHead(flow.head + 1)), h("span", { class: "lv-flow-of" }, `of ${flow.n_head}` + (flow.n_head_kv && flow.n_head_kv < flow.n_head ? (lay.below ? `, ${flow.n_head_kv} KV` : `, ${flow.n_head_kv} of K and V`) : ""))] : null);
    fill(fetching, !missing ? null : again <= 0.3 ? h("span", { class: "lv-remark" }, "computing it again …")
        : h("button", { type: "button", class: "lv-button lv-small", "data-flow-fetch": "", title: "Not all of this pass was kept. Computing it again, up to here, shows the open layer.", onclick: (e) => { e.currentTarget.textContent = "computing …"; ask({ ask: "flow_fetch" }); } }, `compute it again (${again.toFixed(1)} s)`));
    Object.assign(picks.style, px({ left: lay.card.x0 + 8, top: 4 }));
  };

  const drawList = (em) => {
    const options = model.get("flow_top") || [], chain = model.get("flow_chain") || [], now = about();
    list.classList.toggle("lv-flow-wide", lay.below);
    Object.assign(list.style, px({ left: lay.listX, top: lay.below ? lay.slotY + 62 * lay.big : top - 24 * lay.big, width: lay.below ? 2.1 * 13 * em : 13 * em - 4 }));
    if (!options.length) {
      fill(list, h("div", { class: "lv-flow-outline" }, h("div", {}, "next token"), h("div", { class: "lv-remark" }, now.phase === "pass" ? "when the pass is through" : "not computed yet")));
      return;
    }
    const most = Math.max(...options.map((a) => Math.max(a.p_raw, a.p || 0)), 1e-9);
    const bar = (p, kind) => h("span", { class: `lv-bar-line lv-${kind}`, style: `width:${((100 * (p || 0)) / most).toFixed(2)}%` });
    const chosen = options.find((a) => a.chosen), final = options.some((a) => a.p !== null);
    fill(list, h("div", { class: "lv-flow-caption" }, h("b", {}, "next token"), final ? " final p" : " raw p"), h("div", { class: "lv-flow-options" }, options.map((a) => h("div", { class: "lv-flow-option", "data-token-id": a.id, "data-cut": a.cut, "data-chosen": a.chosen, title: a.cut ? "cut by a sampler" : a.chosen ? `chosen${a.rank ? `, though ${a.rank} were likelier` : ""}` : undefined },
      piece(a.text), h("span", { "aria-hidden": "true" }, bar(a.p_raw, "raw"), a.p === null ? null : bar(a.p, "final")),
      !final ? value(percent(a.p_raw), a.p_raw, `p_raw[${a.id}]`) : a.p === null ? h("span", { class: "lv-num" }, a.cut ? "cut" : "–") : value(percent(a.p), a.p, `p[${a.id}]`)))),
    h("div", { class: "lv-flow-chain" }, chain.length
      ? [...chain.flatMap((s, i) => [i ? " → " : "", h("b", { class: now.phase === "sample" && i === chain.length - 1 ? "lv-flow-live" : undefined }, s.name.replace(/_/g, "-"))]), chosen ? [" → ", piece(chosen.text)] : ""]
      : "softmax of the logits; no sampler has looked yet"));
  };

  const drawKeys = () => {
    const dark = host.dark;
    fill(keys, h("span", { class: "lv-flow-key" }, "values −", h("i", { style: `background:${gradient(colours(true, dark, false))}` }), "+"),
      h("span", { class: "lv-flow-key" }, "weights 0", h("i", { style: `background:${gradient(weightColours(dark))}` }), "1"));
    if (!readout.childNodes.length) idle();
  };

  const drawTable = (columns, rows, now) => {
    const states = (i) => (i === now.now ? "being computed" : now.done[i] ? "computed" : "not yet");
    fill(table, h("caption", {}, "The columns of the pass, left to right"),
      h("thead", {}, h("tr", {}, ["column", "node", "operation", "shape", "state", "colours end at"].map((t) => h("th", { scope: "col" }, t)))),
      h("tbody", {}, columns.map((c, i) => h("tr", {}, h("th", { scope: "row" }, named(c)), h("td", {}, c.id), h("td", {}, c.op), h("td", {}, `[${c.shape.join(", ")}]`), h("td", {}, states(i)), h("td", {}, format(now.scales[i] || 0))))));
  };

  const inks = () => {
    const probe = (v) => { const p = h("span", { style: `color:var(${v})` }); node.append(p); const c = getComputedStyle(p).color; p.remove(); return c; };
    return { line: probe("--lv-line"), soft: probe("--lv-soft") };
  };

  // -- motion ----------------------------------------------------------------------------------

  const unfold = () => {
    for (const part of [under, canvas, edgesSvg]) part.animate([{ opacity: 0.25 }, { opacity: 1 }], { duration: OPENING, easing: "ease-out" });
    under.animate([{ transform: "scaleX(0.15)" }, { transform: "none" }], { duration: OPENING, easing: "ease-out" });
  };

  // The chosen token goes back to the prompt, once.
  const fly = () => {
    const rows = rowsOf(), next = rows[rows.length - 1], chosen = list.querySelector("[data-chosen]");
    const key = next && next.state === "next" ? `${next.pos} ${next.id}` : "";
    if (key === flown) return;
    flown = key;
    if (!key || !chosen || still() || about().phase !== "accept") return;
    const from = chosen.querySelector(".lv-piece").getBoundingClientRect(), box = stage.getBoundingClientRect();
    const x = from.left - box.left, y = from.top - box.top, chip = h("div", { class: "lv-flow-fly", "aria-hidden": "true" }, piece(next.text));
    Object.assign(chip.style, { position: "absolute", left: "0", top: "0" });
    stage.append(chip);
    const step = (a, b) => ({ transform: `translate(${a.toFixed(0)}px, ${b.toFixed(0)}px)` }), turn = lay.turn - 14;
    const end = chip.animate([{ ...step(x, y), offset: 0 }, { ...step(lay.below ? lay.listX - 60 : x + 24, turn), offset: 0.22 }, { ...step(lay.tokenWide - 34, turn), offset: 0.86 }, { ...step(lay.tokenWide - 46, lay.slotY + 4), offset: 1 }], { duration: FLIGHT, easing: "cubic-bezier(.45,.05,.4,1)" });
    end.onfinish = end.oncancel = () => chip.remove();
  };

  const watch = ["flow", "flow_rows", "flow_at", "flow_open", "flow_folded", "flow_scores", "flow_weights", "flow_mask", "flow_row", "flow_top", "flow_chain", "layer", "head", "query", "selected_node"];
  return { node, draw, watch, end: () => { closed = true; } };
}

export default alone("flow", "The whole pass, from tokens to the next token", flowZone);
