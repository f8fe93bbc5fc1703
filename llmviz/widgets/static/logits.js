// The likeliest next tokens: raw probability and what the sampler chain left of it.
import { h, fill, alone, card, piece, percent, format, value } from "./kit.js";
import { driver } from "./driver.js";
import { lensPart } from "./logits_lens.js";

const FEW = 4; // rows that stay where every layer is read below

export function logitsZone(host) {
  const { model } = host;
  const { node, body, head, remark } = card("Next token", { class: "lv-card lv-logits" });
  const title = head.querySelector("h3");
  const table = h("table", {});
  const note = h("p", { class: "lv-remark" });
  const empty = h("p", { class: "lv-empty" }, "Appears with the logits (step 14).");
  const early = lensPart(host);
  body.append(table, note, early.node, empty);
  let open = -1;
  // Under a row: take the token, forbid it, or give it another logit.
  const changes = (a, about) => {
    const input = h("input", { type: "text", size: 7, value: String(a.logit), "aria-label": `Logit of this token` });
    const logit = (x) => { open = -1; driver(host).work({ ask: "edit-logit", token: a.id, value: x }); };
    return h("tr", { class: "lv-change-row" }, h("td", { colspan: 6 }, h("form", { class: "lv-row", onsubmit: (e) => { e.preventDefault(); logit(input.value); } },
      a.chosen ? null : h("button", { type: "button", class: "lv-button lv-small", "data-edit": "take", title: "Go on with this token", onclick: () => { open = -1; driver(host).work(about.sampled ? { ask: "choose-another", pos: about.pos, token: a.id } : { ask: "choose-token", token: a.id }); } }, "Take it"),
      h("button", { type: "button", class: "lv-button lv-small", "data-edit": "forbid", title: "Give it the logit −inf", onclick: () => logit("-inf") }, "Forbid it"),
      h("span", { class: "lv-joined" }, "logit ", input, h("button", { type: "submit", class: "lv-button lv-small", "data-edit": "logit" }, "Set")))));
  };
  const draw = () => {
    const all = model.get("top") || [], top = host.docked && model.get("lens") ? all.slice(0, FEW) : all, about = model.get("top_about") || {};
    const has = top.length > 0;
    empty.hidden = has;
    table.hidden = note.hidden = !has;
    early.draw(has);
    if (!has) { title.textContent = "Next token"; remark.textContent = ""; return; }
    title.textContent = about.sampled ? `Token ${about.pos}` : "Next token";
    remark.textContent = about.n_vocab ? `top ${top.length} of ${about.n_vocab.toLocaleString("en-US")}` : `top ${top.length} it was chosen from`;
    const final = top.some((a) => a.p !== null);
    const most = Math.max(...top.map((a) => Math.max(a.p_raw, a.p || 0)), 1e-9);
    const bar = (p, kind) => h("span", { class: `lv-bar-line lv-${kind}`, style: `width:${((100 * (p || 0)) / most).toFixed(2)}%` });
    fill(table,
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "piece"), h("th", { scope: "col", "aria-hidden": "true" }), h("th", { scope: "col" }, "raw p"), final ? h("th", { scope: "col" }, "final p") : null, h("th", { scope: "col" }, "logit"), h("th", {}, h("span", { class: "lv-hidden" }, "change")))),
      h("tbody", {}, top.map((a) => [h("tr", { "data-token-id": a.id, class: (a.chosen ? "lv-chosen" : "") + (a.cut ? " lv-cut" : ""), title: a.cut ? "cut by the sampler chain" : a.chosen ? "chosen" : undefined },
        h("td", {}, piece(a.text)),
        h("td", { class: "lv-bars", "aria-hidden": "true" }, bar(a.p_raw, "raw"), a.p === null ? null : bar(a.p, "final")),
        h("td", {}, value(percent(a.p_raw), a.p_raw, `p_raw[${a.id}]`)),
        final ? h("td", {}, a.p === null ? h("span", { class: "lv-remark" }, a.cut ? "cut" : "–") : value(percent(a.p), a.p, `p[${a.id}]`)) : null,
        h("td", {}, value(format(a.logit), a.logit, `logits[${a.id}]`)),
        h("td", { class: "lv-more" }, h("button", { type: "button", class: "lv-x", "data-more": a.id, "aria-expanded": String(open === a.id), "aria-label": `Change what becomes of ${a.text}`, title: "Change", onclick: () => { open = open === a.id ? -1 : a.id; draw(); } }, "…"))),
      open === a.id ? changes(a, about) : null])));
    fill(note, final ? "raw p: softmax of all logits; final p: after the sampler chain" : "raw p: softmax of all logits, before any sampler");
    if (about.entropy !== null && about.entropy !== undefined) note.append(". Entropy ", value(format(about.entropy), about.entropy, "entropy"), " nats");
  };
  return { node, draw, watch: ["top", "top_about", "lens", "lens_token", "lens_rows", "lens_about", "running"] };
}

export default alone("logits", "The likeliest next tokens", logitsZone);
