// What is in this file? Header bytes and what they mean, the tensors, one block taken apart.
import { h, svg, fill, alone, card, bytes, numbers, format, shape, value, visible, moved } from "./kit.js";
import { GGUF_STYLE } from "./gguf_style.js";

const ACROSS = 16, HEX_ROWS = 20, TREE_ROWS = 14, TABLE_ROWS = 14;
const two = (b) => b.toString(16).toUpperCase().padStart(2, "0");
const count = (n) => n.toLocaleString("en-US");
const size = (n) => (n >= 2 ** 30 ? `${(n / 2 ** 30).toFixed(2)} GiB` : n >= 2 ** 20 ? `${(n / 2 ** 20).toFixed(1)} MiB` : n >= 1024 ? `${(n / 1024).toFixed(1)} KiB` : `${n} B`);
// A number of the block's arithmetic, short but told apart.
const short = (x) => format(x);

export function ggufZone(host) {
  const { model, ask } = host;
  const { node, body, remark } = card("What is in this file?", { class: "lv-card lv-gguf" });
  const bar = h("div", { class: "lv-gguf-bar", role: "img" }), key = h("div", { class: "lv-gguf-key" });
  const pager = (name, trait, step, title) => {
    const say = h("span", { class: "lv-remark" });
    const button = (text, by, label) => h("button", { type: "button", class: "lv-button lv-small", "data-action": `${name}-${by < 0 ? "before" : "after"}`, "aria-label": label, title: label, onclick: () => host.set(trait, Math.max(0, (model.get(trait) || 0) + by)) }, text);
    return { say, node: h("div", { class: "lv-gguf-head" }, title, h("span", { class: "lv-pager" }, button("‹", -step, `${name}: before`), button("›", step, `${name}: after`)), say) };
  };
  const treePager = pager("fields", "tree_first", TREE_ROWS - 1, h("h4", {}, "The header, field by field"));
  const hexPager = pager("bytes", "hex_first", (HEX_ROWS - 1) * ACROSS, h("h4", {}, "Its bytes"));
  const tree = h("div", { class: "lv-gguf-tree", role: "group", "aria-label": "Fields of the header" });
  const hex = h("div", { class: "lv-gguf-hex", tabindex: 0, role: "group", "aria-label": "Bytes of the header. Arrow keys move; Enter chooses the field." });
  const says = h("output", { class: "lv-gguf-says lv-readout" });
  const search = h("input", { type: "search", placeholder: "filter, such as attn_q Q4_1", "aria-label": "Show tensors whose name or type holds", oninput: () => { clearTimeout(timer); timer = setTimeout(() => host.set("filter", search.value), 120); } });
  let timer = 0;
  host.onEnd(() => clearTimeout(timer));
  const tablePager = pager("tensors", "table_first", TABLE_ROWS - 1, h("h4", {}, "Tensors"));
  tablePager.node.insertBefore(search, tablePager.say);
  const table = h("table", { class: "lv-gguf-table" });
  const block = h("section", { class: "lv-gguf-block", "aria-label": "One block of the chosen tensor" });
  body.append(h("style", {}, GGUF_STYLE), bar, key,
    h("div", { class: "lv-gguf-two" }, h("div", {}, treePager.node, tree), h("div", {}, hexPager.node, hex)), says,
    tablePager.node, h("div", { class: "lv-numbers-box" }, table), block);
  let cells = [], letters = [], owner = [], at = 0, raw = new Uint8Array(0), fields = new Map(), asked = 0;

  // -- bytes and fields light each other ---------------------------------------------------------
  const light = (i, group) => {
    for (const list of [cells, letters]) list.forEach((c, k) => c.toggleAttribute("data-lit", owner[k] === i || (i < 0 && group !== undefined && fields.get(owner[k]) && fields.get(owner[k]).group === group)));
    for (const row of tree.querySelectorAll("[data-field]")) row.classList.toggle("lv-gguf-lit", Number(row.dataset.field) === i);
    const own = i >= 0 ? (fields.get(i) || {}).group : group;
    for (const row of tree.querySelectorAll("[data-group]")) row.classList.toggle("lv-gguf-lit", own !== undefined && Number(row.dataset.group) === own);
  };
  const dark = () => { light(-1); };
  const tell = (f, more, spoken) => {
    if (!f) return;
    fill(says, h("b", {}, visible(f.name)), ` = ${visible(f.text)}`, more ? [" · ", more] : null, h("br"),
      h("span", { class: "lv-remark" }, `${f.meaning} · ${f.size === 1 ? `byte ${count(f.offset)}` : `bytes ${count(f.offset)} to ${count(f.offset + f.size - 1)}`} (${count(f.size)})`));
    if (spoken) host.say(`${f.name} = ${f.text}${more ? ", " + more : ""}`);
  };
  const point = async (k, spoken) => {
    const i = owner[k], f = fields.get(i);
    if (!f) return;
    light(i);
    const mark = ++asked;
    if (f.n > 1) {
      tell(f, "…", false);
      const reply = await ask({ ask: "gguf-byte", offset: (model.get("hex_first") || 0) + k });
      if (mark !== asked || !reply.value) return;
      const v = reply.value;
      const a = v.start - (model.get("hex_first") || 0);
      cells.forEach((c, j) => c.toggleAttribute("data-lit", j >= a && j < a + v.size));
      letters.forEach((c, j) => c.toggleAttribute("data-lit", j >= a && j < a + v.size));
      tell(f, `element ${count(v.element)} of ${count(v.n)}: ${visible(v.text)}`, spoken);
    } else tell(f, "", spoken);
  };
  const where = (e) => { const c = e.target.closest && e.target.closest("[data-k]"); return c ? Number(c.dataset.k) : -1; };
  hex.addEventListener("pointerover", (e) => { const k = where(e); if (k >= 0) point(k); });
  hex.addEventListener("pointerleave", dark);
  hex.addEventListener("click", (e) => { const k = where(e); if (k >= 0) { at = k; host.set("field", owner[k]); } });
  hex.addEventListener("keydown", (e) => {
    if (e.key === "Escape") { hex.blur(); return; }
    if (e.key === "Enter") { host.set("field", owner[at]); return; }
    const first = model.get("hex_first") || 0;
    const row = Math.floor(at / ACROSS), rows = Math.ceil(cells.length / ACROSS);
    if (e.key === "PageDown" || (e.key === "ArrowDown" && row === rows - 1)) { e.preventDefault(); host.set("hex_first", first + (e.key === "PageDown" ? HEX_ROWS : 1) * ACROSS); return; }
    if (e.key === "PageUp" || (e.key === "ArrowUp" && row === 0)) { e.preventDefault(); host.set("hex_first", Math.max(0, first - (e.key === "PageUp" ? HEX_ROWS : 1) * ACROSS)); return; }
    const to = moved(e.key, [row, at % ACROSS], rows, ACROSS);
    if (!to) return;
    e.preventDefault();
    if (cells[at]) cells[at].removeAttribute("data-at");
    at = Math.min(cells.length - 1, to[0] * ACROSS + to[1]);
    cells[at].setAttribute("data-at", "");
    point(at, true);
  });
  hex.addEventListener("wheel", (e) => { if (!e.shiftKey && Math.abs(e.deltaY) > 20 && document.activeElement === hex) { e.preventDefault(); host.set("hex_first", Math.max(0, (model.get("hex_first") || 0) + Math.sign(e.deltaY) * 4 * ACROSS)); } }, { passive: false });
  tree.addEventListener("pointerover", (e) => {
    const row = e.target.closest("[data-field], [data-group]");
    if (!row) return;
    if (row.dataset.field !== undefined) { light(Number(row.dataset.field)); tell(fields.get(Number(row.dataset.field)) || row.field, ""); } else light(-1, Number(row.dataset.group));
  });
  tree.addEventListener("pointerleave", dark);
  tree.addEventListener("keydown", (e) => {
    const rows = [...tree.querySelectorAll("button")], i = rows.indexOf(document.activeElement);
    const to = { ArrowDown: i + 1, ArrowUp: i - 1, Home: 0, End: rows.length - 1 }[e.key];
    if (i < 0 || to === undefined) return;
    e.preventDefault();
    if (to < 0 || to >= rows.length) { host.set("tree_first", Math.max(0, (model.get("tree_first") || 0) + Math.sign(to - i) * (TREE_ROWS - 3))); return; }
    rows.forEach((r, k) => { r.tabIndex = k === to ? 0 : -1; });
    rows[to].focus();
  });

  const drawFile = () => {
    const f = model.get("file") || {}, types = model.get("types") || [];
    remark.textContent = `${visible(f.name).replace(/\u00a0/g, " ")} · ${visible(f.arch)} · ${f.ftype} · ${size(f.size)} · GGUF version ${f.version}${f.parts > 1 ? ` · ${f.parts} files, header of the first` : ""}`;
    bar.setAttribute("aria-label", types.map((x) => `${x.type} ${(100 * x.share).toFixed(1)} %`).join(", "));
    fill(bar, types.map((x, i) => h("span", { class: `lv-seg-${i % 7}`, style: `flex:${x.nbytes} 1 0`, title: `${x.type}: ${count(x.nbytes)} bytes`, "data-type": x.type })));
    fill(key, types.map((x, i) => h("span", { class: `lv-seg-${i % 7}` }, h("i"), h("strong", {}, x.type), " ", value(size(x.nbytes), x.nbytes, `bytes[${x.type}]`), h("span", { class: "lv-remark" }, ` ${x.share < 0.0005 ? "<0.1" : (100 * x.share).toFixed(1)} %${x.n ? `, ${count(x.n)} tensor${x.n === 1 ? "" : "s"}` : ""}`))));
  };

  const drawTree = () => {
    const groups = model.get("tree") || [], f = model.get("file") || {}, chosen = model.get("field");
    const kept = tree.contains(document.activeElement) ? document.activeElement.dataset : null;
    fill(tree, groups.map((g) => [
      h("button", { type: "button", class: "lv-gguf-group", tabindex: -1, "data-group": g.group, "data-open": g.fields.length > 0, "aria-expanded": String(g.fields.length > 0), title: visible(g.owner), onclick: () => host.set("field", g.value) },
        h("b", {}, visible(g.owner)), h("span", {}, visible(g.text)), h("span", {}, g.type || size(g.size))),
      g.fields.map((x) => { fields.set(x.i, x); const row = h("button", { type: "button", class: "lv-gguf-field", tabindex: -1, "data-field": x.i, "data-offset": x.offset, "data-size": x.size, "aria-pressed": String(x.i === chosen), onclick: () => host.set("field", x.i) }, h("span", {}, x.kind.replace(/_/g, " ")), h("code", {}, visible(x.text)), h("span", {}, `${count(x.size)} B`)); row.field = x; return row; }),
    ]));
    const rows = [...tree.querySelectorAll("button")];
    const again = kept && rows.find((r) => (kept.field !== undefined ? r.dataset.field === kept.field : r.dataset.group === kept.group));
    const stop = again || rows.find((r) => r.getAttribute("aria-pressed") === "true") || rows[0];
    if (stop) stop.tabIndex = 0;
    if (again) again.focus({ preventScroll: true });
    const first = model.get("tree_first") || 0;
    treePager.say.textContent = `showing ${first + 1} to ${first + groups.length} of ${count(f.n_groups || 0)} parts`;
  };

  const drawHex = () => {
    raw = bytes(model.get("hex_bytes"));
    owner = Array.from(numbers(model.get("hex_owner"), Int32Array));
    fields = new Map((model.get("hex_fields") || []).map((f) => [f.i, f]));
    const first = model.get("hex_first") || 0, chosen = model.get("field"), f = model.get("file") || {};
    cells = [];
    letters = [];
    const lines = [];
    for (let r = 0; r * ACROSS < raw.length; r++) {
      const line = h("div", { class: "lv-gguf-line" }, h("span", {}, (first + r * ACROSS).toString(16).toUpperCase().padStart(8, "0")));
      const left = [], right = [];
      for (let c = 0; c < ACROSS; c++) {
        const k = r * ACROSS + c;
        if (k >= raw.length) { left.push(h("span", { class: "lv-gguf-x" }, "  ")); continue; }
        const b = raw[k], marks = { class: "lv-gguf-x", "data-k": k, "data-field-of": owner[k], "data-odd": owner[k] % 2 === 1, "data-chosen": owner[k] === chosen };
        left.push(cells[k] = h("span", marks, two(b)));
        right.push(letters[k] = h("span", marks, b > 32 && b < 127 ? String.fromCharCode(b) : b === 32 ? "\u00a0" : "·"));
      }
      line.append(...left, h("span", { "aria-hidden": "true" }, right));
      lines.push(line);
    }
    fill(hex, lines);
    at = Math.min(at, Math.max(0, cells.length - 1));
    hexPager.say.textContent = `showing ${count(first)} to ${count(first + raw.length - 1)} of ${count(f.header || 0)} bytes, ${count(f.n_fields || 0)} fields`;
    tell(fields.get(chosen), "");
  };

  const drawTable = () => {
    const rows = model.get("table") || [], total = model.get("table_total") || 0, first = model.get("table_first") || 0, by = model.get("sort"), down = model.get("descending"), chosen = model.get("tensor");
    const f = model.get("file") || {};
    tablePager.say.textContent = total ? `showing ${first + 1} to ${first + rows.length} of ${count(total)}${total < f.n_tensors ? ` (${count(f.n_tensors)} in the file)` : ""}` : `none of ${count(f.n_tensors || 0)} fits`;
    const kept = table.contains(document.activeElement) ? document.activeElement.dataset : null;
    const head = (name) => h("th", { scope: "col", "aria-sort": name === by ? (down ? "descending" : "ascending") : null }, h("button", { type: "button", "data-sort": name, onclick: () => { if (by === name) host.set("descending", !down); else { model.set("descending", false); host.set("sort", name); } } }, name + (name === by ? (down ? " ↓" : " ↑") : "")));
    fill(table, h("caption", { class: "lv-hidden" }, "Tensors of the file"), h("thead", {}, h("tr", {}, ["name", "type", "shape", "offset", "size"].map(head))),
      h("tbody", {}, rows.map((x) => h("tr", { "data-tensor": x.name, "aria-selected": String(x.name === chosen), onclick: () => { model.set("block", 0); host.set("tensor", x.name); } },
        h("td", {}, h("button", { type: "button", "data-name": x.name }, visible(x.name))), h("td", {}, x.type), h("td", {}, shape(x.shape)), h("td", {}, value(count(x.offset), x.offset, `offset[${x.name}]`)), h("td", {}, value(size(x.size), x.size, `nbytes[${x.name}]`))))));
    if (kept) { const again = [...table.querySelectorAll("button")].find((b) => b.dataset.sort === kept.sort && b.dataset.name === kept.name); if (again) again.focus({ preventScroll: true }); }
    if (document.activeElement !== search) search.value = model.get("filter") || "";
  };

  // -- one block: bytes, and the values that they stand for ----------------------------------------
  const drawBlock = () => {
    const b = model.get("block_about") || {}, name = model.get("tensor"), n = model.get("block");
    if (b.reason) { fill(block, h("h4", {}, "One block"), h("p", { class: "lv-empty" }, b.reason)); return; }
    const data = bytes(model.get("block_raw")), v = numbers(model.get("block_values"), Float32Array), q = numbers(model.get("block_codes"), Int32Array);
    const scale = numbers(model.get("block_scale"), Float32Array), low = numbers(model.get("block_offset"), Float32Array);
    const kept = document.activeElement && block.contains(document.activeElement) ? document.activeElement.dataset.action || document.activeElement.dataset.block : "";
    const readout = h("output", { class: "lv-readout lv-gguf-equation" });
    const held = data.length ? Array.from(data, () => []) : [];
    b.holders.forEach((list, i) => list.forEach((k) => held[k].push(i)));
    const hexes = Array.from(data, (x, k) => h("span", { class: "lv-gguf-x", "data-byte": k }, two(x)));
    let dots = [];
    const show = (values, held_, text, spoken) => {
      dots.forEach((d, i) => d.toggleAttribute("data-lit", values.includes(i)));
      hexes.forEach((x, k) => x.toggleAttribute("data-lit", held_.includes(k)));
      fill(readout, text);
      if (spoken) host.say(readout.textContent);
    };
    const ref = (i) => `${name}[${b.row + Math.floor((b.column + i) / b.shape[b.shape.length - 1])},${(b.column + i) % b.shape[b.shape.length - 1]}]`;
    const equation = (i) => [`value ${i} of the block: `, q.length ? [short(scale[i]), " × ", b.zero ? `(${q[i]} − ${b.zero})` : String(q[i]).replace("-", "−"), low[i] ? ` ${low[i] < 0 ? "−" : "+"} ${short(Math.abs(low[i]))}` : "", " = "] : null, value(short(v[i]), v[i], ref(i)), h("span", { class: "lv-remark" }, q.length ? ` · its code ${String(q[i]).replace("-", "−")} is one of ${b.levels}` : "")];
    const one = (i, spoken) => show([i], b.holders[i], equation(i), spoken);
    const byte = (k) => {
      const p = b.parts.find((x) => k >= x.start && k < x.start + x.size), mine = held[k];
      show(mine.length ? mine : v.length <= 32 && p.value !== null ? Array.from(v, (_, i) => i) : [], [k],
        [`byte ${k} of ${p.name}: 0x${two(data[k])} = ${data[k].toString(2).padStart(8, "0")}`, mine.length ? ` · holds bits of ${mine.length === 1 ? "value" : "values"} ${mine.slice(0, 8).join(", ")}` : p.value !== null ? [` · ${p.name} = `, value(short(p.value), p.value, `block.${p.name}`)] : " · scales of the sub-blocks"]);
    };
    const W = Math.max(480, block.clientWidth || 1100), unit = parseFloat(getComputedStyle(host.root).fontSize), H = 13 * unit, left = 5.2 * unit, step = (W - left - 8) / v.length;
    const finite = Array.from(v).filter(Number.isFinite);
    let top = Math.max(0, ...finite), bottom = Math.min(0, ...finite);
    const codes = b.table || (b.levels && b.levels <= 32 ? Array.from({ length: b.levels }, (_, c) => c) : []);
    const levels = codes.length > 0 && scale.every(Number.isFinite) && low.every(Number.isFinite);
    if (levels) for (const i of [...v.keys()]) for (const c of [codes[0], codes[codes.length - 1]]) { const y = scale[i] * (c - b.zero) + low[i]; top = Math.max(top, y); bottom = Math.min(bottom, y); }
    if (!(top > bottom)) top = bottom + 1;
    const Y = (x) => 8 + (H - 16) * (1 - (x - bottom) / (top - bottom)), X = (i) => left + step * (i + 0.5);
    const plot = svg("svg", { class: "lv-gguf-plot", viewBox: `0 0 ${W} ${H + 1.6 * unit}`, tabindex: 0, role: "group", "aria-label": "Values of the block. Left and right move." });
    if (levels) {
      for (let i = 0; i < v.length;) {
        let j = i + 1;
        while (j < v.length && scale[j] === scale[i] && low[j] === low[i]) j++;
        for (const c of codes) {
          const y = Y(scale[i] * (c - b.zero) + low[i]);
          plot.append(svg("line", { class: "lv-q-level", x1: left + step * i + 1, x2: left + step * j - 1, y1: y, y2: y }));
        }
        i = j;
      }
    }
    plot.append(svg("line", { class: "lv-q-zero", x1: left, x2: W - 8, y1: Y(0), y2: Y(0) }));
    for (const x of [top, bottom, ...(Math.min(Y(0) - Y(top), Y(bottom) - Y(0)) > 1.2 * unit ? [0] : [])]) { const t_ = svg("text", { x: left - 6, y: Y(x) + 0.3 * unit, "text-anchor": "end", "font-size": Math.max(13, 0.93 * unit) }); t_.textContent = short(x); plot.append(t_); }
    const every = v.length > 32 ? 32 : 4;
    for (let i = 0; i < v.length; i += every) { const t_ = svg("text", { x: X(i), y: H + 1.1 * unit, "text-anchor": "middle", "font-size": Math.max(13, 0.93 * unit) }); t_.textContent = String(i); plot.append(t_); }
    dots = Array.from(v, (x, i) => {
      const y = Number.isFinite(x) ? Y(x) : Y(0);
      const g = svg("g", { "data-i": i }, svg("rect", { class: "lv-q-hit", x: left + step * i, y: 0, width: step, height: H }), svg("line", { class: "lv-q-stem", x1: X(i), x2: X(i), y1: Y(0), y2: y }), svg("circle", { class: "lv-q-dot", cx: X(i), cy: y, r: Math.min(5, Math.max(2, step * 0.3)) }));
      plot.append(g);
      return g;
    });
    let here = -1;
    plot.addEventListener("pointerover", (e) => { const g = e.target.closest("[data-i]"); if (g) one(here = Number(g.dataset.i)); });
    plot.addEventListener("keydown", (e) => {
      const to = { ArrowRight: here + 1, ArrowLeft: here - 1, Home: 0, End: v.length - 1 }[e.key];
      if (e.key === "Escape") { plot.blur(); return; }
      if (to === undefined) return;
      e.preventDefault();
      one(here = Math.max(0, Math.min(v.length - 1, to)), true);
    });
    const go = (to) => host.set("block", Math.max(0, Math.min(b.n_blocks - 1, to)));
    const input = h("input", { type: "number", min: 0, max: b.n_blocks - 1, value: n, "aria-label": "Block", "data-block": "number", onchange: () => go(Math.round(Number(input.value)) || 0) });
    const parts = h("div", { class: "lv-gguf-raw" }, (q.length ? b.parts : [{ name: b.type, start: 0, size: data.length, value: null }]).map((p, i) => h("div", { class: `lv-gguf-part lv-seg-${[2, 3, 1, 4, 5][i % 5]}`, "data-part": p.name },
      h("span", {}, h("code", {}, p.name), p.value !== null ? [" = ", value(short(p.value), p.value, `block.${p.name}`)] : h("span", { class: "lv-remark" }, `  ${p.size} bytes`)),
      h("div", {}, hexes.slice(p.start, p.start + p.size)))));
    parts.addEventListener("pointerover", (e) => { const x = e.target.closest("[data-byte]"); if (x) byte(Number(x.dataset.byte)); });
    fill(block, h("div", { class: "lv-gguf-head" }, h("h4", {}, q.length ? "One block: " : "Some values: ", h("code", {}, visible(name))),
      h("span", { class: "lv-pager" }, h("button", { type: "button", class: "lv-button lv-small", "data-action": "block-before", "aria-label": "The block before", onclick: () => go(n - 1) }, "‹"), input, h("button", { type: "button", class: "lv-button lv-small", "data-action": "block-after", "aria-label": "The block after", onclick: () => go(n + 1) }, "›")),
      h("span", { class: "lv-remark" }, `of ${count(b.n_blocks)} · ${b.type}: ${data.length} bytes for ${v.length} values, ${((8 * data.length) / v.length).toFixed(4).replace(/\.?0+$/, "")} bits each · at byte ${count(b.at)} · from ${ref(0)}`)),
      h("p", {}, h("code", {}, b.formula.replace(/\*/g, "×"))), parts, plot, readout,
      h("div", { class: "lv-hidden" }, h("table", {}, h("caption", {}, "Values of the block"), h("tbody", {}, Array.from(v, (x, i) => h("tr", {}, h("th", { scope: "row" }, String(i)), h("td", {}, q.length ? String(q[i]) : ""), h("td", {}, short(x))))))),
      levels ? h("p", { class: "lv-remark" }, `Grey lines: the ${b.levels} values that a code can stand for. Point at a value or at a byte.`) : h("p", { class: "lv-remark" }, "Point at a value or at a byte."));
    one(0);
    here = 0;
    const again = kept && block.querySelector(`[data-action="${kept}"], [data-block="${kept}"]`);
    if (again) again.focus({ preventScroll: true });
  };

  const draw = () => { drawFile(); drawHex(); drawTree(); drawTable(); drawBlock(); };
  return { node, draw };
}

export default alone("gguf", "What is in this file", ggufZone);
