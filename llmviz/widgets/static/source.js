// The source line that ran, a few lines around it, and the llama.cpp source it follows.
import { h, fill, plain, alone, card, roving } from "./kit.js";

export function sourceZone(host) {
  const { model } = host;
  const { node, body } = card("Source", { class: "lv-card lv-source" });
  const tabs = h("div", { class: "lv-source-tabs", role: "group", "aria-label": "Which line" });
  const where = h("p", { class: "lv-source-where" }), code = h("pre", { class: "lv-code", tabindex: 0, "aria-label": "Source code" });
  const empty = h("p", { class: "lv-empty" }, "The line that ran appears here.");
  body.append(tabs, where, code, empty);
  const settle = roving(tabs, "button");
  let frame = 0;
  host.onEnd(() => cancelAnimationFrame(frame));
  const draw = () => {
    const all = model.get("source") || [], at = Math.min(model.get("source_shown") || 0, all.length - 1), s = all[at];
    empty.hidden = !!s;
    tabs.hidden = where.hidden = code.hidden = !s;
    if (!s) return;
    fill(tabs, ...all.map((p, i) => h("button", { type: "button", class: "lv-button lv-small", "data-source": i, "aria-pressed": String(i === at), onclick: () => host.set("source_shown", i) }, plain(p.role))));
    settle();
    fill(where, h("code", { "data-line": s.line }, `${s.file}:${s.line}`), s.mirrors ? h("span", { class: "lv-remark" }, ` ↔ llama.cpp ${s.mirrors}`) : null, s.note ? h("span", { class: "lv-remark lv-source-note" }, ` ${plain(s.note)}`) : null);
    // Indentation that all lines share says nothing in a narrow column.
    const shared = Math.min(...s.lines.filter((l) => l.trim()).map((l) => /^ */.exec(l)[0].length));
    fill(code, ...s.lines.map((l, i) => h("span", { class: "lv-code-line" + (s.first + i === s.line ? " lv-code-now" : ""), "aria-current": s.first + i === s.line ? "true" : undefined },
      h("span", { class: "lv-code-number" }, s.first + i), l.slice(Number.isFinite(shared) ? shared : 0) || " ")));
    // With the frame that shows it: measured here it would lay the page out twice.
    cancelAnimationFrame(frame);
    frame = requestAnimationFrame(() => {
      const now = code.querySelector(".lv-code-now");
      if (now && code.scrollHeight > code.clientHeight) code.scrollTop = Math.max(0, now.offsetTop - code.offsetTop - code.clientHeight / 3);
    });
  };
  host.on("change:source_shown", draw);
  return { node, draw, watch: ["source", "source_shown"] };
}

export default alone("source", "The source line that ran", sourceZone);
