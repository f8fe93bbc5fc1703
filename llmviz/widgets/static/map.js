// The map of the sixteen steps, the open scopes, and the explanation of a step.
import { h, fill, alone, card, roving } from "./kit.js";

function time(seconds) {
  if (seconds === undefined) return "";
  if (seconds >= 1) return seconds.toFixed(1) + " s";
  const ms = seconds * 1000;
  return ms < 0.1 ? "<0.1 ms" : (ms < 10 ? ms.toFixed(1) : Math.round(ms)) + " ms";
}

export function mapZone(host) {
  const { model } = host;
  const { node, body } = card("Steps", { class: "lv-card lv-quiet lv-map" });
  const list = h("ol", { class: "lv-steps" });
  body.append(list);
  const settle = roving(list, "button");
  let rows = [];
  const draw = () => {
    const steps = model.get("steps") || [], now = model.get("step"), seconds = model.get("seconds") || {};
    if (rows.length !== steps.length) {
      rows = steps.map((s) => {
        const spent = h("span", { class: "lv-time" });
        const button = h("button", {
          type: "button", "data-step": s.number,
          onclick: () => { host.set("shown_step", model.get("shown_step") === s.number ? 0 : s.number); },
        }, h("span", { class: "lv-step-number" }, s.number), h("span", { class: "lv-step-title" }, s.title), spent);
        return { button, spent };
      });
      fill(list, ...rows.map((r) => h("li", {}, r.button)));
    }
    const open = model.get("shown_step");
    steps.forEach((s, i) => {
      const { button, spent } = rows[i], ran = seconds[s.number];
      if (s.number === now) button.setAttribute("aria-current", "step");
      else button.removeAttribute("aria-current");
      button.dataset.state = s.number === now ? "now" : ran !== undefined ? "done" : "later";
      button.setAttribute("aria-pressed", String(open === s.number));
      spent.textContent = time(ran);
    });
    settle();
  };
  return { node, draw, watch: ["steps", "step", "shown_step", "seconds"] };
}

export function scopeZone(host) {
  const { model } = host;
  const { node, body } = card("Open scopes", { class: "lv-card lv-quiet" });
  const list = h("ol", { class: "lv-scopes" });
  body.append(list);
  const draw = () => {
    const scopes = model.get("scopes") || [];
    node.hidden = !scopes.length;
    fill(list, ...scopes.map((s, i) => h("li", { style: `--lv-depth:${i}`, "data-scope": s.name, "data-n": s.n }, h("code", {}, s.name))));
  };
  return { node, draw, watch: ["scopes"] };
}

export function explanationZone(host) {
  const { model } = host;
  const { node, body, head, remark } = card("", { class: "lv-card lv-explain" });
  const title = head.querySelector("h3");
  const draw = () => {
    const steps = model.get("steps") || [], open = model.get("shown_step") || model.get("step") || 1;
    const s = steps[open - 1];
    if (!s) return;
    title.textContent = s.title;
    const is = open === model.get("step") ? "now" : model.get("step") === 0 ? "first" : "";
    remark.textContent = `step ${open} of ${steps.length}${is && is !== "now" ? " · " + is : ""}`;
    fill(body, h("p", {}, s.explanation), s.functions.length ? h("p", { class: "lv-functions" }, "In llama.cpp: ", s.functions.map((f, i) => [i ? ", " : "", h("code", {}, f)])) : null);
  };
  // Reading about another step needs no kernel.
  host.on("change:shown_step", draw);
  return { node, draw, watch: ["steps", "step", "shown_step"] };
}

export default alone("map", "The sixteen steps", mapZone);
