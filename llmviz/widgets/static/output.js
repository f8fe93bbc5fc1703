// What came out: the generated tokens one below the other, with what else was likely.
import { h, fill, alone, card, piece, percent, value } from "./kit.js";
import { driver } from "./driver.js";
import { alternativesSheet } from "./tokens.js";

export function outputZone(host) {
  const { model } = host, drive = driver(host);
  const { node, body, remark } = card("Output", { class: "lv-card lv-output" });
  const table = h("table", {});
  const empty = h("p", { class: "lv-empty" }, "Appears with the first generated token (step 16). Press Next token.");
  const note = h("p", { class: "lv-remark" }, "raw p: softmax of all logits; final p: after the sampler chain. Click a token to travel to it, point at it to take another one.");
  body.append(table, note, empty);
  const sheet = alternativesSheet(host, node);
  node.append(sheet.node);
  const draw = () => {
    const rows = model.get("output") || [], about = model.get("output_about") || {};
    empty.hidden = rows.length > 0;
    table.hidden = note.hidden = !rows.length;
    remark.textContent = rows.length ? (rows.length < about.total ? `showing ${rows.length} of ${about.total.toLocaleString("en-US")} generated tokens` : `${about.total} generated token${about.total === 1 ? "" : "s"}`) : "";
    sheet.hide();
    fill(table,
      h("thead", {}, h("tr", {}, ["position", "token", "", "raw p", "final p", "rank", "next likeliest"].map((c) => h("th", { scope: "col" }, c)))),
      h("tbody", {}, rows.map((t) => {
        const chip = h("button", {
          type: "button", class: "lv-token", "data-out": t.pos, "aria-label": `${t.text}, position ${t.pos}: travel there`, style: `--lv-p:${Math.sqrt(t.p_raw || 0).toFixed(3)}`,
          onclick: () => drive.travel(t.n), oncontextmenu: (e) => { e.preventDefault(); sheet.open(chip, t.pos, false); },
          onpointerenter: () => sheet.near(chip, t.pos), onpointerleave: () => sheet.far(),
        }, piece(t.text));
        return h("tr", { class: t.ahead ? "lv-ahead" : "" },
          h("td", {}, t.pos), h("td", {}, chip),
          h("td", { class: "lv-bars", "aria-hidden": "true" }, h("span", { class: "lv-bar-line lv-raw", style: `width:${(100 * (t.p_raw || 0)).toFixed(1)}%` }), t.p === null ? null : h("span", { class: "lv-bar-line lv-final", style: `width:${(100 * t.p).toFixed(1)}%` })),
          h("td", {}, value(percent(t.p_raw), t.p_raw, `out[${t.pos}].p_raw`)),
          h("td", {}, t.p === null ? "–" : value(percent(t.p), t.p, `out[${t.pos}].p`)),
          h("td", {}, value(String(t.rank), t.rank, `out[${t.pos}].rank`)),
          h("td", {}, t.others.map((o) => [piece(o.text), h("span", { class: "lv-remark" }, ` ${percent(o.p_raw)}  `)])));
      })));
  };
  return { node, draw, watch: ["output", "output_about"] };
}

export default alone("output", "What came out", outputZone);
