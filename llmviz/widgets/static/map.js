// The map of the sixteen steps, the open scopes, and the explanation of a step.
import { h, fill, alone, card, plain, roving, glossed } from "./kit.js";
import { driver } from "./driver.js";

function time(seconds) {
  if (seconds === undefined) return "";
  if (seconds >= 1) return seconds.toFixed(1) + " s";
  const ms = seconds * 1000;
  return ms < 0.1 ? "<0.1 ms" : (ms < 10 ? ms.toFixed(1) : Math.round(ms)) + " ms";
}

export function mapZone(host) {
  const { model } = host, drive = driver(host);
  const { node, body } = card("Steps", { class: "lv-card lv-quiet lv-map" });
  const list = h("ol", { class: "lv-steps" });
  const badge = h("p", { class: "lv-remark lv-fidelity", "data-fidelity": "" });
  body.append(list, badge);
  const settle = roving(list, "button");
  let rows = [];
  // Pointing at a step explains it; that needs no kernel.
  const read = (number) => { if (host.explain) host.explain(number); };
  const draw = () => {
    const steps = model.get("steps") || [], now = model.get("step"), seconds = model.get("seconds") || {};
    if (rows.length !== steps.length) {
      rows = steps.map((s) => {
        const spent = h("span", { class: "lv-time" });
        const button = h("button", {
          type: "button", "data-step": s.number,
          onclick: () => { if (s.number !== model.get("step")) drive.work({ ask: "goto-step", step: s.number }); },
          onpointerenter: () => read(s.number), onpointerleave: () => read(0), onfocus: () => read(s.number), onblur: () => read(0),
        }, h("span", { class: "lv-step-number" }, s.number), h("span", { class: "lv-step-title" }, s.title), spent);
        return { button, spent };
      });
      fill(list, ...rows.map((r) => h("li", {}, r.button)));
    }
    steps.forEach((s, i) => {
      const { button, spent } = rows[i], ran = seconds[s.number];
      if (s.number === now) button.setAttribute("aria-current", "step");
      else button.removeAttribute("aria-current");
      button.dataset.state = s.number === now ? "now" : ran !== undefined ? "done" : "later";
      const known = (model.get("step_starts") || {})[s.number];
      button.title = `${s.functions.join(", ")}\n` + (s.number === now ? "the run stands in this step" : known !== undefined ? `Go to event ${known.toLocaleString("en-US")}, where it begins` : "Run to where it begins");
      spent.textContent = time(ran);
    });
    settle();
    const { text = "", title = "" } = model.get("fidelity") || {};
    badge.hidden = !text;
    badge.textContent = text;
    badge.title = title;
  };
  return { node, draw, watch: ["steps", "step", "seconds", "step_starts", "fidelity"] };
}

export function scopeZone(host) {
  const { model } = host, drive = driver(host);
  const list = h("ol", { class: "lv-scopes" });
  const node = h("nav", { class: "lv-scope-line", "aria-label": "Open scopes" }, list);
  const settle = roving(list, "button");
  const draw = () => {
    const scopes = model.get("scopes") || [];
    node.hidden = !scopes.length;
    fill(list, ...scopes.map((s) => h("li", { "data-scope": s.name, "data-n": s.n }, h("button", { type: "button", title: `Go to where ${plain(s.name)} begins, event ${s.n}`, onclick: () => drive.travel(s.n) }, plain(s.name)))));
    settle();
  };
  return { node, draw, watch: ["scopes"] };
}

export function explanationZone(host) {
  const { model } = host;
  const { node, body, head, remark } = card("", { class: "lv-card lv-explain" });
  const title = head.querySelector("h3");
  let pointed = 0, full = false;
  const more = h("button", { type: "button", class: "lv-button lv-small lv-plain lv-more-text", onclick: () => { full = !full; draw(); } });
  head.append(more);
  const draw = () => {
    const steps = model.get("steps") || [], open = pointed || model.get("shown_step") || model.get("step") || 1;
    const s = steps[open - 1];
    if (!s) return;
    title.textContent = s.title;
    const is = open === model.get("step") ? "now" : model.get("step") === 0 ? "first" : "";
    remark.textContent = `step ${open} of ${steps.length}${is && is !== "now" ? " · " + is : ""}`;
    const text = h("p", { class: full ? "" : "lv-clamp" }, glossed(s.explanation));
    more.setAttribute("aria-expanded", String(full));
    more.textContent = full ? "less" : "more";
    more.hidden = !host.docked;
    if (!host.docked) text.className = "";
    fill(body, text, s.functions.length ? h("p", { class: "lv-functions" }, "In llama.cpp: ", s.functions.map((f, i) => [i ? ", " : "", h("code", {}, f)])) : null);
  };
  host.explain = (number) => { if (number !== pointed) { pointed = number; draw(); } };
  host.on("change:shown_step", draw);
  return { node, draw, watch: ["steps", "step", "shown_step"] };
}

export default alone("map", "The sixteen steps", mapZone);
