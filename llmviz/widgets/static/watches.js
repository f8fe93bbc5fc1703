// Watches: expressions and what they are worth where the run stands.
import { h, fill, plain, alone, card, value } from "./kit.js";
import { completing } from "./complete.js";

export function watchesZone(host) {
  const { model, ask } = host;
  const { node, body } = card("Watches", { class: "lv-card lv-quiet lv-watches" });
  const list = h("ul", {});
  const field = completing(host, { placeholder: "norm(l_out-5)", "aria-label": "Watch an expression" }, false);
  const form = h("form", {
    class: "lv-break-form",
    onsubmit: (e) => {
      e.preventDefault();
      field.hide();
      if (!field.input.value.trim()) return;
      ask({ ask: "watch", text: field.input.value }).then((r) => { if (!r.error && !r.lost) field.input.value = ""; });
    },
  }, field.node, h("button", { type: "submit", class: "lv-button lv-small" }, "Add"));
  body.append(list, form);
  const draw = () => {
    fill(list, ...(model.get("watches") || []).map((w) => h("li", { "data-watch": w.id, "data-state": w.state },
      h("div", { class: "lv-line" },
        h("code", {}, plain(w.text)),
        w.state === "ok" ? (w.value !== null ? value(plain(w.shown), w.value, `watch ${w.text}`, { class: "lv-num lv-watch-value" }) : h("span", { class: "lv-watch-value" }, h("bdi", {}, plain(w.shown)))) : h("span", { class: "lv-remark lv-watch-value" }, w.state === "missing" ? "not yet" : ""),
        h("button", { type: "button", class: "lv-x", "aria-label": `Remove watch ${w.text}`, title: "Remove", onclick: () => ask({ ask: "unwatch", which: w.id }) }, "×")),
      w.state === "error" ? h("p", { class: "lv-why" }, plain(w.shown)) : null)));
  };
  return { node, draw, watch: ["watches"] };
}

export default alone("watches", "Watches", watchesZone);
