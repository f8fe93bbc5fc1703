// Breakpoints: a place or a condition as text, with how often each was met.
import { h, fill, plain, alone, card } from "./kit.js";
import { completing } from "./complete.js";

export function breaksZone(host) {
  const { model, ask } = host;
  const { node, body, remark } = card("Breakpoints", { class: "lv-card lv-quiet lv-breaks-card" });
  const list = h("ul", { class: "lv-breaks" });
  const field = completing(host, { placeholder: "entropy > 3", "aria-label": "Stop where: a name or glob, step 13, layer 5, token \"Paris\", or a condition" }, true);
  const once = h("button", { type: "button", class: "lv-button lv-small", "aria-pressed": "false", title: "Stop once, then switch it off", "aria-label": "Stop once", onclick: () => once.setAttribute("aria-pressed", String(once.getAttribute("aria-pressed") !== "true")) }, "1×");
  const form = h("form", {
    class: "lv-break-form",
    onsubmit: (e) => {
      e.preventDefault();
      field.hide();
      if (!field.input.value.trim()) return;
      ask({ ask: "break", where: field.input.value, once: once.getAttribute("aria-pressed") === "true" }).then((r) => {
        if (r.error || r.lost) return;
        field.input.value = "";
        once.setAttribute("aria-pressed", "false");
      });
    },
  }, field.node, once, h("button", { type: "submit", class: "lv-button lv-small" }, "Add"));
  body.append(list, form);
  let shown = "";
  const draw = () => {
    const points = model.get("breakpoints") || [], state = JSON.stringify(points);
    if (state === shown) return;
    shown = state;
    remark.textContent = points.length ? String(points.length) : "";
    fill(list, ...points.map((b) => h("li", { "data-break": b.id },
      h("div", { class: "lv-line" },
        h("label", {},
          h("input", { type: "checkbox", checked: b.enabled, onchange: () => ask({ ask: "toggle-break", which: b.id }) }),
          h("code", {}, plain(b.label))),
        b.once ? h("span", { class: "lv-tag", title: "stops once" }, "once") : null,
        h("span", { class: "lv-remark", title: `met ${b.hits} time${b.hits === 1 ? "" : "s"}${b.ignore ? `, the first ${b.ignore} do not stop` : ""}` }, `${b.hits}×`),
        h("button", { type: "button", class: "lv-x", "aria-label": `Remove breakpoint ${b.label}`, title: "Remove", onclick: () => ask({ ask: "unbreak", which: b.id }) }, "×")),
      b.why ? h("p", { class: "lv-why" }, plain(b.why)) : null)));
  };
  return { node, draw, watch: ["breakpoints"] };
}

export default alone("breaks", "Breakpoints", breaksZone);
