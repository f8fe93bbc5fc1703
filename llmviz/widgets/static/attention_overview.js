// All heads of all layers as one grid: row = layer, column = head. A click opens the head.
import { h, fill, piece, value, colours, paint, numbers, moved, roving, format } from "./kit.js";

const HELD = 0, NOT_YET = 1, DROPPED = 2;

// What each measure says of a head, and what it is called in the engine's own terms.
const MEASURES = {
  pair: ["this token", "From the chosen token: the weight on the key that is marked on the left, else the largest on any token after the first."],
  previous: ["previous", "Average weight on the token just before. Near 1: a head that carries each token to the next (Clark et al. 2019)."],
  first: ["first", "Average weight on the first token. Near 1: a head at rest, with nothing to say here (Xiao et al. 2023)."],
  induction: ["induction", "Of A B … A: average weight from the second A to B. Near 1: a head that copies what came next before (Olsson et al. 2022)."],
};
const SCORE = { previous: "previous_token_score", first: "first_token_score", induction: "induction_score" };

export function overviewZone(host, card) {
  const { model, ask } = host;
  const canvas = h("canvas", { "aria-hidden": "true" }), mark = h("div", { class: "lv-mark" }), gone = h("div", {}), text = h("output", { class: "lv-readout" });
  const grid = h("div", { class: "lv-heat lv-over", tabindex: 0, role: "application", "aria-roledescription": "heatmap", "aria-label": "All heads: row is the layer, column the head. Arrow keys choose one." }, canvas, gone, mark);
  const title = h("p", { class: "lv-remark" }), notes = h("div", { class: "lv-over-notes" }), legend = h("canvas", { class: "lv-legend", "aria-hidden": "true" }), legendWord = h("span", { class: "lv-remark" });
  const buttons = Object.entries(MEASURES).map(([id, [name, about]]) => h("button", { type: "button", class: "lv-button lv-small", "data-measure": id, title: about, onclick: () => host.set("measure", id) }, name));
  const pick = h("div", { class: "lv-over-pick", role: "group", "aria-label": "What the grid of all heads shows" }, buttons);
  const settle = roving(pick, "button");
  const key = h("div", { class: "lv-over-key lv-remark" }, "0", legend, "1", legendWord);
  const node = h("div", { class: "lv-over-box" }, pick, grid, key, text, title, notes);
  let busy = false;

  const about = () => model.get("overview_about") || {};
  const at = (e) => {
    const box = canvas.getBoundingClientRect(), rows = model.get("n_layer"), columns = about().n_head || 0;
    const c = Math.floor(((e.clientX - box.left) / box.width) * columns), r = Math.floor(((e.clientY - box.top) / box.height) * rows);
    return r < 0 || c < 0 || r >= rows || c >= columns ? null : [r, c];
  };
  const refOf = (a, r, c) => (a.measure !== "pair" ? `${SCORE[a.measure]}(kq_soft_max-${r})[${c}]`
    : a.key >= 0 ? `kq_soft_max-${r}[${c},pos ${a.query},pos ${a.key}]` : `max(kq_soft_max-${r}[${c},pos ${a.query}])`);
  const say = (r, c) => {
    const a = about(), w = numbers(model.get("overview"), Float32Array)[r * a.n_head + c], state = (a.states || [])[r];
    const why = state === DROPPED ? "dropped to save memory" : state === NOT_YET ? "not computed yet" : state === HELD && a.measure !== "pair" ? "nothing to measure: no token fits" : "nothing here";
    fill(text, `layer ${r}, head ${c}: `, Number.isNaN(w) || w === undefined ? why : value(format(w), w, refOf(a, r, c)), a.measure !== "pair" && a.counts && a.counts[r] ? h("span", { class: "lv-remark" }, ` over ${a.counts[r].toLocaleString("en-US")} token${a.counts[r] === 1 ? "" : "s"}`) : "");
  };
  const choose = (r, c) => { model.set("layer", r); model.set("head", c); model.save_changes(); };
  grid.addEventListener("pointermove", (e) => { const to = at(e); if (to) say(...to); });
  grid.addEventListener("click", (e) => { const to = at(e); if (to) choose(...to); });
  grid.addEventListener("keydown", (e) => {
    if (e.key === "Escape") { grid.blur(); return; }
    const to = moved(e.key, [model.get("layer"), model.get("head")], model.get("n_layer"), about().n_head || 1);
    if (!to || e.ctrlKey || e.metaKey || e.altKey) return;
    e.preventDefault();
    e.stopPropagation();
    choose(...to);
    say(...to);
    host.say(text.textContent);
  });
  const again = async () => {
    busy = true;
    draw();
    await ask({ ask: "fill_heads" });
    busy = false;
    draw();
  };

  const runs = (states, state) => {
    const out = [];
    states.forEach((s, il) => { if (s !== state) return; const last = out[out.length - 1]; if (last && last[1] === il - 1) last[1] = il; else out.push([il, il]); });
    return out;
  };
  const layersOf = (list) => list.map(([a, b]) => (a === b ? a : `${a}–${b}`)).join(", ");

  const draw = () => {
    const a = about(), w = numbers(model.get("overview"), Float32Array), columns = a.n_head || 0, rows = model.get("n_layer"), measure = a.measure || "pair", pair = measure === "pair";
    node.hidden = !w.length || !columns || columns > 64;
    if (node.hidden) return;
    buttons.forEach((b) => b.setAttribute("aria-pressed", String(b.dataset.measure === measure)));
    settle();
    const k = model.get("projector") ? 1.5 : 1, narrow = card.clientWidth < 760;
    const high = Math.max(3, Math.min(narrow ? 14 : 26, (host.docked ? 260 : 330) / rows)) * k, wide = Math.max(4, Math.min(narrow ? 11 : 28, (narrow ? 110 : 150) / columns)) * k;
    const shade = pair ? (x) => Math.sqrt(x) : (x) => x, table = colours(false, host.dark, true);
    paint(canvas, Uint8Array.from(w, (x) => (Number.isNaN(x) ? 255 : Math.round(shade(Math.min(1, Math.max(0, x))) * 252))), rows, columns, table);
    paint(legend, Uint8Array.from({ length: 253 }, (_, i) => i), 1, 253, table);
    legendWord.textContent = pair ? "by square root" : "average weight";
    canvas.style.width = wide * columns + "px";
    canvas.style.height = high * rows + "px";
    grid.style.width = canvas.style.width;
    const head = model.get("head"), layer = model.get("layer");
    Object.assign(mark.style, { left: head * wide + "px", top: layer * high + "px", width: wide + "px", height: high + "px" });
    const dropped = runs(a.states || [], DROPPED), later = runs(a.states || [], NOT_YET);
    fill(gone, ...dropped.map(([from, to]) => { const box = h("div", { class: "lv-over-gone lv-hatch" }); Object.assign(box.style, { top: from * high + "px", width: wide * columns + "px", height: (to - from + 1) * high + "px" }); return box; }));
    const name = (pos) => { const t = (model.get("axis") || []).find((x) => x.pos === pos); return t ? piece(t.text) : `position ${pos}`; };
    fill(title, ...(pair ? ["how much ", name(a.query), " looks at ", a.key >= 0 ? name(a.key) : "one token after the first", ": row = layer, column = head"] : [MEASURES[measure][1]]));
    if (a.best && a.best.length && !grid.matches(":hover, :focus")) fill(text, "most: ", h("button", { type: "button", class: "lv-button lv-small", "data-best": "", onclick: () => choose(a.best[0], a.best[1]) }, `layer ${a.best[0]}, head ${a.best[1]}`), " ", value(format(a.best[2]), a.best[2], refOf(a, a.best[0], a.best[1])));
    else if (!grid.matches(":hover, :focus")) fill(text, measure === "induction" ? "no token of this text repeats yet: there is nothing to measure" : "");
    const counts = (a.counts || []).filter((x) => x), least = Math.min(...counts), most = Math.max(...counts);
    fill(notes,
      !pair && counts.length ? h("span", { class: "lv-remark" }, `average over ${least === most ? most.toLocaleString("en-US") : `${least.toLocaleString("en-US")} to ${most.toLocaleString("en-US")}`} ${measure === "induction" ? "repeated " : ""}token${most === 1 ? "" : "s"}`) : null,
      dropped.length ? h("span", { class: "lv-remark", "data-dropped": layersOf(dropped), title: a.dropped }, h("i", { class: "lv-att-swatch lv-hatch" }), ` layers ${layersOf(dropped)}: dropped by the recorder's budget`) : null,
      dropped.length && a.can_fill ? h("button", { type: "button", class: "lv-button lv-small", "data-fill": "", disabled: busy, title: "Run these passes once more, silently; the run stays where it is", onclick: again }, busy ? "computing …" : "Compute again") : null,
      later.length ? h("span", { class: "lv-remark", "data-later": layersOf(later) }, `layers ${layersOf(later)}: not computed yet`) : null);
  };
  return { node, draw };
}
