// The cells of the KV cache: filled, empty, just written; colour says the sequence.
import { h, fill, alone, card, numbers, visible, plain, moved } from "./kit.js";
import { driver } from "./driver.js";

export function kvCacheZone(host) {
  const { model } = host;
  const { node, body, remark } = card("KV cache", { class: "lv-card lv-kv" });
  const grid = h("div", { class: "lv-cells", tabindex: 0, role: "group", "aria-label": "Cells of the KV cache. Arrow keys move." });
  const readout = h("output", { class: "lv-readout" }), formula = h("p", { class: "lv-remark lv-kv-formula" });
  const empty = h("p", { class: "lv-empty" }, "Cells appear when the first ubatch is given some (step 13).");
  const number = (label, at) => h("input", { type: "number", min: -1, value: at, "aria-label": label, class: "lv-narrow" });
  const from = number("From position", 0), to = number("Up to position, not included", 1);
  const forget = h("form", {
    class: "lv-row lv-forget", onsubmit: (e) => { e.preventDefault(); driver(host).work({ ask: "memory-op", op: "seq_rm", args: [0, Number(from.value), Number(to.value)] }); },
  }, h("span", { class: "lv-remark" }, "Forget positions"), from, h("span", { class: "lv-remark" }, "up to, not including,"), to, h("button", { type: "submit", class: "lv-button lv-small", "data-edit": "seq_rm", title: "seq_rm: remove these positions of sequence 0; between two decodes" }, "Forget"));
  body.append(grid, readout, forget, formula, empty);
  let squares = [], at = -1, shown = "";

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
    const perRow = Math.max(1, squares.findIndex((s, i) => i && s.offsetTop !== squares[0].offsetTop));
    const start = Math.max(at, 0);
    const to = moved(e.key, [Math.floor(start / perRow), start % perRow], Math.ceil(squares.length / perRow), perRow);
    if (!to) return;
    e.preventDefault();
    e.stopPropagation();
    show(Math.min(squares.length - 1, to[0] * perRow + to[1]), true);
  });

  const draw = () => {
    const about = model.get("cells") || {}, has = about.total !== undefined;
    empty.hidden = has;
    grid.hidden = readout.hidden = forget.hidden = formula.hidden = !has;
    if (!has) { squares = []; shown = ""; grid.replaceChildren(); remark.textContent = ""; return; }
    const pos = numbers(model.get("cell_pos"), Int32Array), seq = numbers(model.get("cell_seq"), Int32Array);
    const text = model.get("cell_text") || [], fresh = new Set(about.fresh);
    const part = pos.length < about.total ? ` · showing ${pos.length}` : "";
    remark.textContent = `${about.used.toLocaleString("en-US")} of ${about.total.toLocaleString("en-US")} cells used${part}` + (about.bytes ? ` · ${(about.bytes / 2 ** 20).toFixed(2)} MiB in all layers` : "");
    fill(formula, about.formula ? plain(about.formula.split("\n").join("; ")) : "");
    const state = [pos.join(), seq.join(), about.fresh.join(), about.first].join("|");
    if (state === shown) return;
    shown = state;
    const roomy = !!host.docked && pos.length <= 128;
    grid.classList.toggle("lv-roomy", roomy);
    squares = Array.from(pos, (p, i) => {
      const cell = about.first + i, used = p >= 0;
      return h("span", {
        class: "lv-cell" + (used ? "" : " lv-free") + (fresh.has(cell) ? " lv-fresh" : ""),
        "data-cell": cell, "data-pos": p, "data-seq": seq[i], style: used ? `--lv-seq:var(--lv-seq-${Math.max(seq[i], 0) % 6})` : undefined,
        title: used ? `cell ${cell}: position ${p}, sequence ${seq[i]}${text[i] ? `, “${visible(text[i])}”` : ""}${fresh.has(cell) ? ", just written" : ""}` : `cell ${cell}: empty`,
      }, ...(roomy ? [h("span", { class: "lv-cell-pos" }, used ? p : "–"), h("span", { class: "lv-piece" }, used ? visible(text[i] || "") : "")] : []));
    });
    fill(grid, ...squares);
    at = -1;
    readout.textContent = about.fresh.length ? `${about.fresh.length === 1 ? "1 cell" : about.fresh.length + " cells"} just written` : "";
  };
  return { node, draw, watch: ["cells", "cell_pos", "cell_seq", "cell_text"] };
}

export default alone("kv_cache", "Cells of the KV cache", kvCacheZone);
