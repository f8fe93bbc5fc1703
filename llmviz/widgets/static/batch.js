// What goes in at once? The batch as a table, the ubatches it is cut into, cells, and the mask.
import { h, fill, alone, card, numbers, piece, plain, visible, value, format, roving, moved } from "./kit.js";
import { BATCH_STYLE } from "./batch_style.js";

const count = (n) => n.toLocaleString("en-US");
const plural = (n, word) => `${count(n)} ${word}${n === 1 ? "" : "s"}`;
const seqs = (list) => (list.length ? `sequence${list.length === 1 ? "" : "s"} ${list.join(", ")}` : "no sequence");
const HOW = {
  split_simple: "in the order of the batch",
  split_equal: "the same number of tokens of each sequence",
  split_seq: "one sequence after the other",
};
const STATE = { dry: "hypothetical", planned: "planned", running: "running", done: "decoded" };
const SOURCE = {
  input: "the graph's own input",
  planned: "what the graph will be given, worked out in advance",
  again: "worked out again on the cells as they are now: it ran before this view was open",
};

export function batchZone(host) {
  const { model } = host;
  const { node, body, remark } = card("What goes in at once?", { class: "lv-card lv-batch" });
  const seq = (list) => `--lv-c:var(--lv-seq-${(list[0] || 0) % 6})`;
  const pill = (list) => h("span", { class: "lv-batch-seq", style: seq(list), title: seqs(list) }, `seq ${list.join("+")}`);
  const state = h("span", { class: "lv-tag", "data-state": "" }), say = h("span", { class: "lv-remark" });
  const head = h("p", { class: "lv-row" }, state, say), empty = h("p", { class: "lv-empty" });
  const key = h("div", { class: "lv-batch-key" });

  const pager = (trait, step, name) => {
    const said = h("span", { class: "lv-remark" });
    const button = (text, by) => h("button", { type: "button", class: "lv-button lv-small", "data-action": `${name}-${by < 0 ? "before" : "after"}`, "aria-label": `${name}: ${by < 0 ? "before" : "after"}`, onclick: () => host.set(trait, Math.max(0, (model.get(trait) || 0) + by)) }, text);
    const buttons = h("span", { class: "lv-pager" }, button("‹", -step), button("›", step));
    return { said, buttons, say(from, shown, of, what) { buttons.hidden = shown >= of; said.textContent = shown >= of ? `${count(of)} ${what}` : `showing ${count(shown)} of ${count(of)} ${what}, from ${count(from)} on`; } };
  };
  const tablePager = pager("first", 60, "tokens"), rowPager = pager("mask_row", 28, "mask rows"), cellPager = pager("mask_cell", 80, "mask cells");
  const table = h("table", { class: "lv-batch-table" }), scroll = h("div", { class: "lv-batch-scroll" }, table);
  const cuts = h("div", { class: "lv-batch-cuts" }), cutsHead = h("h4", {}), cutsMore = h("span", { class: "lv-remark" });
  const settleRows = roving(table, "button"), settleCuts = roving(cuts, "button.lv-batch-head");
  const caches = h("span", { class: "lv-joined" });
  const maskHead = h("h4", {}), maskSay = h("p", { class: "lv-remark" }), canvas = h("canvas", {}), lit = h("div", { class: "lv-mark", hidden: true }), own = h("div", { class: "lv-batch-own", hidden: true }), pointed = h("div", { class: "lv-mark lv-batch-pointed", hidden: true });
  const labels = h("div", { class: "lv-batch-labels" }), tops = h("div", { class: "lv-batch-tops" });
  const heat = h("div", { class: "lv-heat", tabindex: 0, role: "group", "aria-label": "Mask of the ubatch. Arrow keys move over tokens and cells." }, canvas, lit, own, pointed);
  const grid = h("div", { class: "lv-batch-grid" }, h("span", {}), tops, labels, heat);
  const readout = h("output", { class: "lv-readout" }), maskTable = h("div", { class: "lv-hidden" });
  const mask = h("section", { class: "lv-batch-part", "aria-label": "Mask" }, h("div", { class: "lv-row" }, maskHead, caches), maskSay, h("div", { class: "lv-row" }, rowPager.buttons, rowPager.said, cellPager.buttons, cellPager.said), grid, readout, maskTable);
  const cut = h("section", { class: "lv-batch-part", "aria-label": "Ubatches" }, cutsHead, cuts, cutsMore);
  const list = h("section", { class: "lv-batch-part", "aria-label": "The batch" }, h("div", { class: "lv-row" }, h("h4", {}, "The batch"), tablePager.buttons, tablePager.said), scroll);
  const parts = h("div", { class: "lv-batch-two" }, list, h("div", {}, cut, mask));
  body.append(h("style", {}, BATCH_STYLE), head, empty, key, parts);

  const choose = (i) => host.set("selected", model.get("selected") === i ? -1 : i);
  const ask = (e) => { const t = e.target.closest && e.target.closest("[data-token]"); if (t) choose(Number(t.dataset.token)); };
  table.addEventListener("click", ask);
  labels.addEventListener("click", ask);
  cuts.addEventListener("click", (e) => {
    if (e.target.closest("[data-token]")) { ask(e); return; }
    const u = e.target.closest("[data-ubatch]");
    if (u) host.set("ubatch", Number(u.dataset.ubatch));
  });

  const drawTable = () => {
    const rows = model.get("rows") || [], about = model.get("about") || {}, chosen = model.get("selected");
    const held = table.contains(document.activeElement) ? document.activeElement.closest("tr").dataset.i : null;
    const cells = (about.caches || []).length > 0, streams = rows.some((r) => r.stream > 0);
    tablePager.say(model.get("first") || 0, rows.length, about.n_tokens || 0, (about.n_tokens || 0) === 1 ? "token" : "tokens");
    fill(table, h("caption", { class: "lv-hidden" }, "Tokens of the batch"), h("thead", {}, h("tr", {}, [["", "index in the batch"], ["token", ""], ["id", ""], ["pos", "position in its sequences"], ["seq_id", ""], ["logits", "whether its logits are wanted"], ["ubatch", ""], ...(cells ? [["cell", "of the KV cache"]] : [])].map(([x, title]) => h("th", { scope: "col", title: title || null }, x)))),
      h("tbody", {}, rows.map((r, k) => h("tr", { "data-i": r.i, "data-token": r.i, "data-cut": k > 0 && rows[k - 1].ubatch !== r.ubatch, "aria-selected": String(r.i === chosen), style: seq(r.seqs) },
        h("td", {}, String(r.i)), h("td", {}, h("button", { type: "button", tabindex: -1, "data-token-id": r.id, "data-pos": r.pos, "aria-pressed": String(r.i === chosen), "aria-label": `token ${r.i}: ${visible(r.text)}, position ${r.pos}, ${seqs(r.seqs)}${r.output ? ", logits wanted" : ""}, ubatch ${r.ubatch}${r.cell >= 0 ? `, cell ${r.cell}` : ""}` }, piece(r.text))),
        h("td", {}, String(r.id)), h("td", {}, value(count(r.pos), r.pos, `batch.pos[${r.i}]`)), h("td", {}, pill(r.seqs)), h("td", { class: "lv-batch-flag" }, r.output ? h("span", { title: "logits wanted" }, "●", h("span", { class: "lv-hidden" }, "yes")) : h("span", { class: "lv-hidden" }, "no")),
        h("td", {}, r.ubatch >= 0 ? value(String(r.ubatch), r.ubatch, `ubatch_of[${r.i}]`) : "–"), cells ? h("td", {}, r.cell >= 0 ? [streams ? h("span", { class: "lv-remark" }, `${r.stream}/`) : null, value(count(r.cell), r.cell, `slot[${r.i}]`, { "data-stream": r.stream })] : "–") : null))));
    settleRows();
    if (held !== null) { const again = table.querySelector(`tr[data-i="${held}"] button`); if (again) again.focus({ preventScroll: true }); }
    const at = table.querySelector("tr[aria-selected=true]");
    if (at) { const t = at.offsetTop, box = scroll; if (t < box.scrollTop + 30 || t + at.offsetHeight > box.scrollTop + box.clientHeight) box.scrollTop = t - box.clientHeight / 2; }
  };

  const drawCuts = () => {
    const shown = model.get("ubatches") || [], about = model.get("about") || {}, now = model.get("ubatch"), chosen = model.get("selected");
    cutsHead.textContent = shown.length ? `${about.n_ubatches === 1 ? "One ubatch" : `Cut into ${plural(about.n_ubatches, "ubatch").replace("ubatchs", "ubatches")}`} of at most ${count(about.n_ubatch)} tokens` : "Not cut";
    cutsMore.textContent = [shown.length ? `${about.how}: ${HOW[about.how] || ""}` : "", shown.length < (about.n_ubatches || 0) ? `showing ${shown.length} of ${count(about.n_ubatches)} ubatches` : ""].filter(Boolean).join(" · ");
    const held = cuts.contains(document.activeElement) ? document.activeElement.closest("[data-ubatch]").dataset.ubatch : null;
    const word = { waiting: "", now: "computing now", done: "in the cache" };
    fill(cuts, shown.map((u) => h("div", { class: "lv-batch-cut", "data-ubatch": u.i, "data-of": u.state, "aria-current": u.i === now ? "true" : null },
      h("button", { type: "button", class: "lv-batch-head", tabindex: -1, "aria-pressed": String(u.i === now) }, h("b", {}, `ubatch ${u.i}`), h("span", { class: "lv-remark" }, [u.equal_seqs && u.n_seqs > 1 ? `${u.n_seq_tokens} × ${plural(u.n_seqs, "sequence")}` : plural(u.n_tokens, "token"), u.n_outputs ? plural(u.n_outputs, "output") : "no output", word[u.state]].filter(Boolean).join(" · "))),
      h("div", { class: "lv-batch-chips" }, u.first ? h("span", { class: "lv-remark" }, `${count(u.first)} before …`) : null, u.tokens.map((k) => h("span", { class: "lv-batch-chip", style: seq(k.seqs), "data-token": k.i, "data-lit": k.i === chosen, title: `token ${k.i}, ${seqs(k.seqs)}` }, piece(k.text))), u.first + u.tokens.length < u.n_tokens ? h("span", { class: "lv-remark" }, `… ${count(u.n_tokens - u.first - u.tokens.length)} more`) : null),
      u.cells ? h("div", { class: "lv-batch-slot" }, "→ cells ", h("code", {}, u.cells)) : null)));
    settleCuts();
    if (held !== null) { const again = cuts.querySelector(`[data-ubatch="${held}"] .lv-batch-head`); if (again) again.focus({ preventScroll: true }); }
  };

  // -- the mask ----------------------------------------------------------------------------------
  let at = null, cell = 18, line = 22, data = new Float32Array(0), about = {};
  const px = () => parseFloat(getComputedStyle(host.root).fontSize) || 14;
  const place = (box, r, c, rows = 1, columns = 1) => {
    box.hidden = r < 0 || c < 0 || r >= about.rows.length || c >= about.n_cells;
    if (!box.hidden) Object.assign(box.style, { top: `${r * line}px`, left: `${c * cell}px`, height: `${rows * line}px`, width: `${columns * cell}px` });
  };
  const tell = (r, c, spoken) => {
    const row = about.rows[r];
    if (!row || c < 0 || c >= about.n_cells) return;
    const of = about.cells.find((x) => x.stream === row.stream), v = data[r * about.n_cells + c], pos = of.pos[c], where = about.first_cell + c;
    const may = v === -Infinity ? "may not look at" : "may look at";
    const what = pos < 0 ? "empty" : `position ${pos}, ${seqs(of.seqs[c])}${of.text[c] ? `, “${visible(of.text[c])}”` : ""}`;
    fill(readout, piece(row.text), ` ${may} cell ${count(where)} (${what}): `, value(format(v), v, `${about.name}[${row.row},${where}]`), h("span", { class: "lv-remark" }, v === -Infinity ? " is added to its score, so nothing is left of it" : " is added to its score"));
    if (spoken) host.say(readout.textContent);
    place(pointed, r, c);
  };
  const find = (e) => { const box = canvas.getBoundingClientRect(); return [Math.floor((e.clientY - box.top) / line), Math.floor((e.clientX - box.left) / cell)]; };
  heat.addEventListener("pointermove", (e) => { if (about.rows) { at = find(e); tell(...at); } });
  heat.addEventListener("pointerleave", () => { pointed.hidden = true; rest(); });
  heat.addEventListener("click", (e) => { if (!about.rows) return; const row = about.rows[find(e)[0]]; if (row) choose(row.i); });
  heat.addEventListener("keydown", (e) => {
    if (!about.rows) return;
    if (e.key === "Escape") { heat.blur(); return; }
    if (e.key === "Enter") { if (at) choose(about.rows[at[0]].i); return; }
    const to = moved(e.key, at || [0, 0], about.rows.length, about.n_cells);
    if (!to) return;
    e.preventDefault();
    e.stopPropagation();
    tell(...(at = to), true);
  });
  const rest = () => {
    const row = (about.rows || []).find((r) => r.i === model.get("selected"));
    if (row) fill(readout, piece(row.text), ` is token ${row.i}: row ${row.row} of ubatch ${about.ubatch}, cell ${count(row.cell)}. It sees cells `, h("code", {}, row.sees), ".");
    else fill(readout, h("span", { class: "lv-remark" }, "Point at a square to read it; click a token to follow it."));
  };

  const drawMask = () => {
    about = model.get("mask") || {};
    const all = model.get("about") || {};
    mask.hidden = !about.rows;
    if (!about.rows) return;
    data = numbers(model.get("mask_values"), Float32Array);
    at = null;
    pointed.hidden = true;
    const chosen = model.get("selected"), n = about.n_cells, styles = getComputedStyle(host.root);
    const colour = (name) => styles.getPropertyValue(name).trim();
    maskHead.textContent = `The mask of ubatch ${about.ubatch}`;
    fill(maskSay, "A row for each token, a column for each cell: coloured where it may look, ● its own cell. ", h("code", {}, about.name), ` float32 [${count(about.n_rows)}, ${count(about.n_kv)}] · ${SOURCE[about.source]}`);
    rowPager.say(about.first_row, about.rows.length, about.n_rows, about.n_rows === 1 ? "token" : "tokens");
    const empty_ = about.n_kv - about.used;
    cellPager.say(about.first_cell, n, about.used, about.used === 1 ? "cell" : "cells");
    if (empty_) cellPager.said.textContent += ` · ${plural(empty_, "empty cell")} after them, seen by nobody`;
    fill(caches, (all.caches || []).length > 1 ? (all.caches || []).map((c) => h("button", { type: "button", class: "lv-button lv-small", "data-cache": c, "aria-pressed": String(c === model.get("cache")), onclick: () => host.set("cache", c) }, c ? "layers with a window" : "layers that see all")) : null);
    const em = px(), room = Math.max(200, (mask.clientWidth || 560) - 12.5 * em);
    cell = Math.max(6, Math.min(1.9 * em, Math.floor(room / n)));
    line = Math.max(18, Math.round((about.rows.length > 16 ? 1.35 : 1.65) * em));
    const gap = cell >= 10 ? 1 : 0;
    const ratio = window.devicePixelRatio || 1;
    canvas.width = Math.round(n * cell * ratio);
    canvas.height = Math.round(about.rows.length * line * ratio);
    Object.assign(canvas.style, { width: `${n * cell}px`, height: `${about.rows.length * line}px` });
    const ctx = canvas.getContext("2d");
    ctx.scale(ratio, ratio);
    const probe = h("i", {});
    host.root.append(probe);
    const solve = (text) => { probe.style.color = text; return getComputedStyle(probe).color; };
    const off = solve("var(--lv-hover)"), palette = Array.from({ length: 6 }, (_, k) => colour(`--lv-seq-${k}`));
    probe.remove();
    about.rows.forEach((row, r) => {
      for (let c = 0; c < n; c++) {
        const v = data[r * n + c], see = v !== -Infinity;
        ctx.fillStyle = see ? palette[(row.seqs[0] || 0) % 6] : off;
        ctx.fillRect(c * cell + gap / 2, r * line + 0.5, cell - gap, line - 1);
        if (c === row.cell - about.first_cell) { ctx.fillStyle = colour("--lv-bg"); ctx.beginPath(); ctx.arc((c + 0.5) * cell, (r + 0.5) * line, Math.max(1.5, Math.min(cell, line) / 6), 0, 7); ctx.fill(); }
      }
    });
    fill(labels, about.rows.map((row) => h("button", { type: "button", tabindex: -1, class: "lv-batch-label", style: `height:${line}px;${seq(row.seqs)}`, "data-token": row.i, "data-row": row.row, "aria-pressed": String(row.i === chosen), title: `token ${row.i}, position ${row.pos}, ${seqs(row.seqs)}` }, piece(row.text), h("span", { class: "lv-remark" }, about.cells.length > 1 ? `stream ${row.stream}` : ""))));
    labels.querySelectorAll("button").forEach((b, k) => { b.tabIndex = k ? -1 : 0; });
    const wide = cell >= 1.7 * em;
    fill(tops, about.cells.map((of) => h("div", { class: "lv-batch-top", title: "cells, each with its position, coloured by its sequence" }, about.cells.length > 1 ? h("span", { class: "lv-batch-stream lv-remark" }, `stream ${of.stream}`) : null,
      of.pos.map((p, c) => h("span", { class: "lv-batch-cell", style: `width:${cell}px;${p >= 0 ? seq(of.seqs[c]) : ""}`, "data-cell": about.first_cell + c, "data-pos": p, "data-seq": of.seqs[c].join(","), "data-free": p < 0, "data-lit": about.rows.some((r) => r.i === chosen && r.stream === of.stream && r.cell === about.first_cell + c), title: p >= 0 ? `cell ${about.first_cell + c}: position ${p}, ${seqs(of.seqs[c])}` : `cell ${about.first_cell + c}: empty` }, wide ? String(about.first_cell + c) : "")))));
    const r = about.rows.findIndex((x) => x.i === chosen);
    place(lit, r, 0, 1, n);
    lit.dataset.row = r < 0 ? "" : about.rows[r].row;
    fill(maskTable, h("table", {}, h("caption", {}, `What each token of ubatch ${about.ubatch} may look at`), h("tbody", {}, about.rows.map((x) => h("tr", {}, h("th", { scope: "row" }, `${x.row} ${visible(x.text)}`), h("td", {}, `cell ${x.cell}`), h("td", {}, `sees cells ${x.sees}`))))));
    rest();
  };

  const draw = () => {
    const all = model.get("about") || {}, there = (all.n_tokens || 0) > 0;
    parts.hidden = head.hidden = key.hidden = !there;
    empty.hidden = there && !all.reason;
    empty.textContent = all.reason ? plain(all.reason) : "";
    if (!there) { remark.textContent = ""; return; }
    remark.textContent = [plural(all.n_tokens, "token"), plural(all.sequences.length, "sequence"), `${count(all.n_outputs)} with logits`].join(" · ");
    state.textContent = STATE[all.state] || all.state;
    state.dataset.state = all.state;
    say.textContent = all.say;
    key.hidden = all.sequences.length < 2;
    fill(key, all.sequences.slice(0, 12).map((s) => h("span", { style: seq([s]) }, h("i"), `sequence ${s}`)), all.sequences.length > 12 ? h("span", { class: "lv-remark" }, `and ${all.sequences.length - 12} more`) : null);
    drawTable();
    drawCuts();
    drawMask();
    const k = model.get("selected"), row = (model.get("rows") || []).find((r) => r.i === k);
    if (row) host.say(`token ${k}, ${visible(row.text)}: ubatch ${row.ubatch}, row ${row.row}${row.cell >= 0 ? `, cell ${row.cell}` : ""}`);
  };
  return { node, draw };
}

export default alone("batch", "What goes in at once", batchZone);
