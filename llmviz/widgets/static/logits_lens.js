// The logit lens: what the model would say after each layer, read through its own final norm and
// output matrix. Computed on request, after the rest has been drawn.
import { h, fill, svg, piece, value, format, percent, moved } from "./kit.js";
import { LENS_STYLE } from "./lens_style.js";

const SHOWN = 3; // tokens of each layer that fit beside the curve

export function lensPart(host) {
  const { model, ask } = host;
  const toggle = h("button", { type: "button", class: "lv-button lv-small", "data-lens": "", onclick: () => host.set("lens", !model.get("lens")) }, "Read every layer early");
  const about = h("p", { class: "lv-remark" }, "The logit lens: final norm and output matrix, applied to each layer's residual l_out. The model itself does this once, at its end.");
  const says = h("p", { class: "lv-lens-says" }), readout = h("output", { class: "lv-readout" });
  const table = h("table", { tabindex: 0, "aria-label": "Every layer read early. Arrow keys move from layer to layer." });
  const node = h("div", { class: "lv-lens" }, h("style", {}, LENS_STYLE), h("div", { class: "lv-lens-head" }, toggle, about), says, table, readout);
  let asked = "", at = -1;

  const rowsOf = () => [...table.querySelectorAll("tbody tr")];
  const refs = (il) => { const l = `lens(l_out-${il}[-1])`; return { logit: (id) => `${l}[${id}]`, p: (id) => `softmax(${l})[${id}]`, rank: (id) => `rank(${id}, ${l})`, entropy: `entropy(${l})` }; };
  const look = (i, spoken) => {
    const row = (model.get("lens_rows") || [])[i], a = model.get("lens_about") || {};
    if (!row) return;
    rowsOf().forEach((tr, k) => tr.toggleAttribute("data-at", k === i));
    at = i;
    const r = refs(row.layer);
    fill(readout, `after layer ${row.layer}: `, ...row.top.flatMap((k) => [piece(k.text), " ", value(percent(k.p), k.p, r.p(k.id)), "  "]), h("span", { class: "lv-remark" }, `p of ${a.text.trim() || "the token"}: `), value(percent(row.p), row.p, r.p(a.id)));
    if (spoken) host.say(`after layer ${row.layer} the likeliest is ${row.top[0].text}; ${a.text} is number ${row.rank}, entropy ${format(row.entropy)} nats`);
  };
  table.addEventListener("keydown", (e) => {
    if (e.key === "Escape") { table.blur(); return; }
    const rows = rowsOf(), to = moved(e.key === "Home" ? "PageUp" : e.key === "End" ? "PageDown" : e.key, [Math.max(at, 0), 0], rows.length, 1);
    if (!to || !rows.length || e.ctrlKey || e.metaKey || e.altKey) return;
    e.preventDefault();
    e.stopPropagation();
    look(e.key === "Home" ? 0 : e.key === "End" ? rows.length - 1 : at < 0 ? 0 : to[0], true);
  });
  table.addEventListener("pointerover", (e) => { const tr = e.target.closest("tbody tr"); if (tr) look(rowsOf().indexOf(tr), false); });

  const draw = (has) => {
    const on = !!model.get("lens"), a = model.get("lens_about") || {}, rows = model.get("lens_rows") || [];
    node.hidden = !has && !on;
    toggle.setAttribute("aria-pressed", String(on));
    says.hidden = table.hidden = readout.hidden = !on;
    // Only when the rest has been drawn, and never while the run is under way.
    const key = on && a.state === "waiting" && !model.get("running") ? `${model.get("here")} ${model.get("selected")} ${model.get("lens_token")}` : "";
    if (key && key !== asked) requestAnimationFrame(() => ask({ ask: "lens" }));
    asked = key;
    if (!on) return;
    table.hidden = readout.hidden = !rows.length;
    if (!rows.length) { fill(says, a.state === "missing" ? `It cannot be read: ${a.why}.` : model.get("running") ? "It is read when the run stands." : "reading …"); fill(table); return; }
    fill(says, ...(a.settled === null || a.settled === undefined ? ["No layer has ", piece(a.text), " as its likeliest token, not even the last."]
      : a.settled === 0 ? [piece(a.text), " is the likeliest token from the first layer on."]
      : [piece(a.text), a.chosen ? ", the chosen token, " : " ", "is the likeliest from ", h("strong", {}, `layer ${a.settled}`), ` of ${rows.length} on; after layer ${a.settled - 1} it was number `, h("strong", {}, rows[a.settled - 1].rank.toLocaleString("en-US")), "."]));
    // From number 1 on the right to the last of the vocabulary on the left, by the logarithm.
    const span = Math.log(a.n_vocab), x = (row) => 100 * (1 - Math.log(row.rank) / span);
    fill(table,
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "layer"), h("th", { scope: "col", colspan: SHOWN }, "likeliest if it ended here"),
        h("th", { scope: "col", "aria-hidden": "true" }, h("span", { class: "lv-lens-axis" }, h("span", {}, `last`), h("span", {}, "first"))), h("th", { scope: "col", class: "lv-lens-num" }, "rank of ", piece(a.text)), h("th", { scope: "col", class: "lv-lens-num" }, "logit"), h("th", { scope: "col", class: "lv-lens-num" }, "entropy, nats"), h("th", { "aria-hidden": "true" }))),
      h("tbody", {}, rows.map((row, i) => {
        const r = refs(row.layer), here = x(row), line = [];
        if (i) line.push(`${((here + x(rows[i - 1])) / 2).toFixed(2)},0`);
        line.push(`${here.toFixed(2)},50`);
        if (i + 1 < rows.length) line.push(`${((here + x(rows[i + 1])) / 2).toFixed(2)},100`);
        return h("tr", { "data-layer": row.layer }, h("th", { scope: "row" }, row.layer),
          Array.from({ length: SHOWN }, (_, k) => { const top = row.top[k]; return h("td", {}, top ? h("span", { class: "lv-lens-top", "data-token-id": top.id, "data-followed": top.id === a.id, style: `--lv-p:${Math.sqrt(top.p).toFixed(3)}`, title: `${percent(top.p)}, logit ${format(top.logit)}` }, piece(top.text)) : ""); }),
          h("td", { class: "lv-lens-rank", "aria-hidden": "true" }, h("div", { class: "lv-lens-plot" }, svg("svg", { viewBox: "0 0 100 100", preserveAspectRatio: "none" }, svg("polyline", { points: line.join(" ") })), h("span", { class: "lv-lens-dot", style: `left:${here.toFixed(2)}%` }))),
          h("td", { class: "lv-lens-num" }, value("#" + row.rank.toLocaleString("en-US"), row.rank, r.rank(a.id))),
          h("td", { class: "lv-lens-num" }, value(row.logit.toFixed(2).replace("-", "−"), row.logit, r.logit(a.id))),
          h("td", { class: "lv-lens-num" }, value(row.entropy.toFixed(2), row.entropy, r.entropy)),
          h("td", { class: "lv-lens-entropy", "aria-hidden": "true" }, h("span", { style: `width:${(100 * Math.min(1, row.entropy / a.most_entropy)).toFixed(1)}%` })));
      })));
    fill(readout, h("span", { class: "lv-remark" }, "shaded by probability; the rank runs from the last of the vocabulary to the first, by logarithm; entropy: its bar is full at a blind guess"));
    at = -1;
  };
  return { node, draw };
}
