// The cells of the KV cache: filled, empty, just written; colour says the sequence. Below: what they
// take, and how long the K and the V of each cell are, layer by layer.
import { h, fill, alone, card, piece, value, format, parse, bytes, numbers, colours, paint, visible, plain, moved } from "./kit.js";
import { driver } from "./driver.js";
import { KV_STYLE } from "./kv_style.js";

const ROOM = 4.6, MAPPED = 256; // em of a square with room for its token; cells of a map

export function kvCacheZone(host) {
  const { model } = host;
  const { node, body, remark } = card("KV cache", { class: "lv-card lv-kv" });
  const list = h("div", {}), formula = h("p", { class: "lv-remark lv-kv-formula" });
  const empty = h("p", { class: "lv-empty" }, "Cells appear when the first ubatch is given some (step 13).");
  const number = (label, at) => h("input", { type: "number", min: -1, value: at, "aria-label": label, class: "lv-narrow" });
  const from = number("From position", 0), to = number("Up to position, not included", 1);
  const forget = h("form", {
    class: "lv-row lv-forget", onsubmit: (e) => { e.preventDefault(); driver(host).work({ ask: "memory-op", op: "seq_rm", args: [0, Number(from.value), Number(to.value)] }); },
  }, h("span", { class: "lv-remark" }, "Forget positions"), from, h("span", { class: "lv-remark" }, "up to, not including,"), to, h("button", { type: "submit", class: "lv-button lv-small", "data-edit": "seq_rm", title: "seq_rm: remove these positions of sequence 0; between two decodes" }, "Forget"));
  body.append(h("style", {}, KV_STYLE), list, forget, formula, empty);
  let parts = [];

  const draw = () => {
    const about = model.get("cells") || {}, has = about.total !== undefined, strips = model.get("strips") || [];
    empty.hidden = has;
    list.hidden = forget.hidden = formula.hidden = !has;
    if (!has) { parts = []; fill(list); remark.textContent = ""; return; }
    if (parts.length !== strips.length) {
      parts = strips.map((_, i) => stripPart(host, i));
      fill(list, ...parts.map((p) => p.node));
    }
    const shown = strips.reduce((n, s) => n + s.count, 0), total = strips.reduce((n, s) => n + s.total, 0);
    const part = shown < total ? ` · showing ${shown}` : "";
    remark.textContent = `${about.used.toLocaleString("en-US")} of ${about.total.toLocaleString("en-US")} cells used${part}` + (about.bytes ? ` · ${mib(about.bytes)} in all layers` : "");
    fill(formula, about.formula ? plain(about.formula.split("\n").join("; ")) : "");
    const pos = numbers(model.get("cell_pos"), Int32Array), seq = numbers(model.get("cell_seq"), Int32Array), text = model.get("cell_text") || [], norms = bytes(model.get("kv_norms"));
    let at = 0, byte = 0;
    strips.forEach((s, i) => {
      const size = (s.layers || []).length * s.count, end = at + s.count;
      parts[i].draw(s, { pos: pos.subarray(at, end), seq: seq.subarray(at, end), text: text.slice(at, end), k: norms.subarray(byte, byte + size), v: norms.subarray(byte + size, byte + 2 * size) });
      at = end;
      byte += 2 * size;
    });
  };
  return { node, draw, watch: ["cells", "cell_pos", "cell_seq", "cell_text", "strips", "kv_norms"] };
}

const mib = (n) => `${(n / 2 ** 20).toFixed(2)} MiB`;

// One cache: its cells, what they take, and its two maps.
function stripPart(host, which) {
  const { model } = host;
  const title = h("h4", {}), grid = h("div", { class: "lv-cells", tabindex: 0, role: "group", "aria-label": "Cells of the KV cache. Arrow keys move." });
  const readout = h("output", { class: "lv-readout" }), legend = h("div", { class: "lv-kv-legend lv-remark" });
  const bar = h("div", { class: "lv-kv-bar", "aria-hidden": "true" }), words = h("div", { class: "lv-kv-words" }), size = h("div", { class: "lv-kv-size" }, bar, words);
  const maps = ["k", "v"].map((what) => normMap(host, which, what)), norms = h("div", { class: "lv-kv-norms" }, maps.map((m) => m.node));
  const node = h("section", { class: "lv-kv-strip" }, title, grid, readout, legend, size, norms);
  let squares = [], at = -1, shown = "", perRow = 1;

  const show = (i, spoken) => {
    if (!squares[i]) return;
    if (squares[at]) squares[at].classList.remove("lv-at");
    at = i;
    squares[i].classList.add("lv-at");
    readout.textContent = squares[i].title;
    if (spoken) host.say(squares[i].title);
  };
  grid.addEventListener("pointerover", (e) => { const i = squares.indexOf(e.target.closest("[data-cell]")); if (i >= 0) show(i, false); });
  grid.addEventListener("keydown", (e) => {
    if (e.key === "Escape") { grid.blur(); return; }
    const row = Math.max(1, squares.findIndex((s, i) => i && s.offsetTop !== squares[0].offsetTop)), start = Math.max(at, 0);
    const to = moved(e.key, [Math.floor(start / row), start % row], Math.ceil(squares.length / row), row);
    if (!to) return;
    e.preventDefault();
    e.stopPropagation();
    show(Math.min(squares.length - 1, to[0] * row + to[1]), true);
  });

  const draw = (s, { pos, seq, text, k, v }) => {
    title.hidden = !s.title;
    fill(title, s.title, h("span", { class: "lv-remark" }, `${s.used.toLocaleString("en-US")} of ${s.total.toLocaleString("en-US")} cells used`));
    const fresh = new Set(s.fresh), heads = new Set(s.heads || []), roomy = !!host.docked && pos.length <= 128;
    const em = model.get("projector") ? 21 : 14;
    perRow = Math.max(1, Math.floor((grid.clientWidth + 4) / (ROOM * em + 4)));
    // Rows behind the last one in use are alike: one of them stays.
    let used = 0;
    pos.forEach((p, i) => { if (p >= 0) used = i + 1; });
    for (const head of heads) if (head - s.first >= used && head - s.first <= used + 1) used = head - s.first + 1;
    const count = roomy ? Math.min(pos.length, (Math.ceil(used / perRow) + 1) * perRow) : pos.length;
    const rest = s.total - s.first - count; // behind the window nothing is in use
    const state = [pos.join(), seq.join(), s.fresh.join(), [...heads].join(), s.first, count].join("|");
    if (state !== shown) {
      shown = state;
      grid.classList.toggle("lv-roomy", roomy);
      squares = Array.from(pos.subarray(0, count), (p, i) => {
        const cell = s.first + i, is = p >= 0, search = heads.has(cell) ? "; the next search for free cells begins here" : "";
        return h("span", {
          class: "lv-cell" + (is ? "" : " lv-free") + (fresh.has(cell) ? " lv-fresh" : "") + (search ? " lv-head" : ""),
          "data-cell": cell, "data-pos": p, "data-seq": seq[i], style: is ? `--lv-seq:var(--lv-seq-${Math.max(seq[i], 0) % 6})` : undefined,
          title: (is ? `cell ${cell}: position ${p}, sequence ${seq[i]}${text[i] ? `, “${visible(text[i])}”` : ""}${fresh.has(cell) ? ", just written" : ""}` : `cell ${cell}: empty`) + search,
        }, ...(roomy ? [h("span", { class: "lv-cell-pos" }, is ? p : "–"), h("span", { class: "lv-piece" }, is ? visible(text[i] || "") : "")] : []));
      });
      fill(grid, ...squares);
      at = -1;
      readout.textContent = s.fresh.length ? `${s.fresh.length === 1 ? "1 cell" : s.fresh.length + " cells"} just written` : "";
    }
    const kinds = [...new Set(seq)].filter((x) => x >= 0).sort((a, b) => a - b);
    fill(legend, rest > 0 && (count < pos.length || pos.length < s.total) ? h("span", {}, `and ${rest.toLocaleString("en-US")} more empty cells`) : null, ...kinds.slice(0, 6).map((x) => h("span", {}, h("i", { style: `background:var(--lv-seq-${x % 6})` }), `sequence ${x}`)),
      heads.size ? h("span", {}, h("i", { class: "lv-kv-search" }), `the next search for free cells begins at cell ${[...heads].slice(0, 4).map((x) => x.toLocaleString("en-US")).join(", ")}${heads.size > 4 ? " …" : ""}`) : null);
    size.hidden = !s.bytes;
    if (s.bytes) {
      const share = (n) => `width:${((100 * n) / s.bytes).toFixed(2)}%`, count1 = (n) => `${n.toLocaleString("en-US")} cell${n === 1 ? "" : "s"}`;
      fill(bar, h("span", { class: "lv-kv-read", style: share(s.bytes_read) }), h("span", { class: "lv-kv-used", style: share(s.bytes_used) }));
      fill(words, h("span", {}, "used ", h("strong", {}, mib(s.bytes_used)), h("span", { class: "lv-remark" }, ` ${count1(s.used)}`)),
        h("span", { title: "attention reads whole blocks of cells, so that graphs can be reused" }, "read by attention ", h("strong", {}, mib(s.bytes_read)), h("span", { class: "lv-remark" }, ` ${count1(s.n_read)}, padded`)),
        h("span", {}, "in all ", h("strong", {}, mib(s.bytes)), h("span", { class: "lv-remark" }, ` ${count1(s.total)}`)));
    }
    norms.hidden = !(s.layers || []).length || !used;
    maps.forEach((m, i) => m.draw(s, i ? v : k, { pos, text, used: Math.min(MAPPED, pos.length, lastOf(pos)) }, norms));
  };
  return { node, draw };
}

function lastOf(pos) {
  for (let i = pos.length; i > 0; i--) if (pos[i - 1] >= 0) return i;
  return 0;
}

// Layers down, cells across: the length of each cell's key or value.
function normMap(host, which, what) {
  const { model, ask } = host, name = what === "k" ? "keys" : "values";
  const canvas = h("canvas", { "aria-hidden": "true" }), mark = h("div", { class: "lv-mark", hidden: true }), rows = h("div", { class: "lv-kv-rows", "aria-hidden": "true" });
  const heat = h("div", { class: "lv-heat", tabindex: 0, role: "application", "aria-roledescription": "heatmap", "aria-label": `Length of the ${name}: row is the layer, column the cell. Arrow keys move.` }, rows, canvas, mark);
  const tops = h("div", { class: "lv-kv-tops", "aria-hidden": "true" }), legend = h("canvas", { class: "lv-legend", "aria-hidden": "true" }), high = h("span", {}), readout = h("output", { class: "lv-readout" });
  const node = h("div", { class: "lv-kv-map", "data-norms": what }, h("p", { class: "lv-remark" }, `length of the ${name} `, h("code", {}, `|${what.toUpperCase()}|`), ", layer by layer"), tops, heat, h("div", { class: "lv-row lv-scale" }, "0", legend, high, readout));
  let strip = null, cells = null, at = [0, 0], size = [1, 1], asked = 0, frame = 0;

  const look = async (spoken) => {
    if (!strip) return;
    const [r, c] = at, mine = ++asked, cell = strip.first + c;
    mark.hidden = false;
    Object.assign(mark.style, { left: c * size[0] + "px", top: r * size[1] + "px", width: size[0] + "px", height: size[1] + "px" });
    const got = (await ask({ ask: "kv_norm", strip: which, what, row: r, cell })).value;
    if (mine !== asked || !got) return;
    const said = got.value === null ? (cells.pos[c] < 0 ? "empty" : "not written yet") : got.value;
    fill(readout, `layer ${strip.layers[r]}, cell ${cell} `, piece(cells.text[c] || ""), " ", got.value === null ? said : value(format(parse(got.value)), got.value, got.ref));
    if (spoken) host.say(`${name} of layer ${strip.layers[r]}, cell ${cell}, ${cells.text[c] || ""}: ${said}`);
  };
  heat.addEventListener("pointermove", (e) => {
    const box = canvas.getBoundingClientRect(), c = Math.floor((e.clientX - box.left) / size[0]), r = Math.floor((e.clientY - box.top) / size[1]);
    if (!strip || r < 0 || c < 0 || r >= strip.layers.length || c >= cells.used || (r === at[0] && c === at[1] && !mark.hidden)) return;
    at = [r, c];
    if (!frame) frame = requestAnimationFrame(() => { frame = 0; look(false); });
  });
  heat.addEventListener("pointerleave", () => { if (document.activeElement !== heat) mark.hidden = true; });
  heat.addEventListener("keydown", (e) => {
    if (e.key === "Escape") { heat.blur(); return; }
    const to = strip && moved(e.key, at, strip.layers.length, cells.used);
    if (!to || e.ctrlKey || e.metaKey || e.altKey) return;
    e.preventDefault();
    e.stopPropagation();
    at = to;
    look(true);
  });

  const draw = (s, picture, held, box) => {
    const n = (s.layers || []).length;
    node.hidden = !n || picture.length !== n * s.count || !held.used;
    if (node.hidden) { strip = null; return; }
    strip = s;
    cells = held;
    at = [Math.min(at[0], n - 1), Math.min(at[1], held.used - 1)];
    const k = model.get("projector") ? 1.5 : 1, room = Math.max(120, (box.clientWidth > 560 ? box.clientWidth / 2 : box.clientWidth) - 80 * k);
    const wide = Math.max(1, Math.min(22 * k, room / held.used)), tall = Math.max(3, Math.min(12, (host.docked ? 200 : 240) / n)) * k;
    size = [wide, tall];
    const part = new Uint8Array(n * held.used);
    for (let r = 0; r < n; r++) part.set(picture.subarray(r * s.count, r * s.count + held.used), r * held.used);
    const table = colours(false, host.dark, true);
    paint(canvas, part, n, held.used, table);
    paint(legend, Uint8Array.from({ length: 253 }, (_, i) => i), 1, 253, table);
    canvas.style.width = heat.style.width = wide * held.used + "px";
    canvas.style.height = tall * n + "px";
    tops.hidden = wide < 14 * k;
    tops.style.gridTemplateColumns = `repeat(${held.used}, ${wide}px)`;
    fill(tops, ...(tops.hidden ? [] : Array.from({ length: held.used }, (_, i) => h("span", {}, held.pos[i] >= 0 ? piece(held.text[i] || "") : ""))));
    const every = Math.max(1, Math.ceil((16 * k) / tall));
    fill(rows, ...s.layers.flatMap((il, r) => { if (r % every) return []; const t = h("span", {}, il); t.style.top = (r + 0.5) * tall + "px"; return [t]; }));
    high.textContent = format(s[`${what}_high`]);
    if (!mark.hidden) look(false);
  };
  return { node, draw };
}

export default alone("kv_cache", "Cells of the KV cache", kvCacheZone);
