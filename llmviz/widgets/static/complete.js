// A text field whose last word can be completed: the kernel knows the names.
import { h, fill, plain } from "./kit.js";

export function completing(host, attributes, places) {
  const list = h("ul", { class: "lv-complete", role: "listbox", hidden: true });
  const input = h("input", { type: "text", maxlength: 400, autocomplete: "off", spellcheck: "false", role: "combobox", "aria-expanded": "false", ...attributes });
  let offers = [], at = -1, asked = 0, timer = 0;
  const hide = () => { clearTimeout(timer); asked++; offers = []; at = -1; list.hidden = true; list.replaceChildren(); input.setAttribute("aria-expanded", "false"); };
  const take = (o) => {
    const end = input.selectionStart, before = input.value.slice(0, end - o.word.length) + o.text;
    input.value = before + input.value.slice(end);
    input.setSelectionRange(before.length, before.length);
    hide();
    input.focus();
    if (/[-( "]$/.test(o.text)) look();
  };
  const mark = () => [...list.children].forEach((li, i) => li.setAttribute("aria-selected", String(i === at)));
  const look = async () => {
    const mine = ++asked, text = input.value.slice(0, input.selectionStart);
    const reply = await host.ask({ ask: "complete", text, places });
    if (mine !== asked || !reply.value || document.activeElement !== input) return;
    offers = reply.value;
    at = -1;
    list.hidden = !offers.length;
    input.setAttribute("aria-expanded", String(!!offers.length));
    fill(list, ...offers.map((o) => h("li", { role: "option", title: `${o.text}: ${o.meaning}`, onpointerdown: (e) => { e.preventDefault(); take(o); } }, h("code", {}, plain(o.text)), h("span", { class: "lv-remark" }, o.meaning))));
  };
  input.addEventListener("input", () => { offers = []; clearTimeout(timer); timer = setTimeout(look, 80); });
  input.addEventListener("focus", () => { if (!input.value) look(); });
  input.addEventListener("blur", hide);
  input.addEventListener("keydown", (e) => {
    if (e.key === "Escape") { if (!list.hidden) { e.stopPropagation(); hide(); } else input.blur(); return; }
    if (list.hidden || !offers.length) return;
    if (e.key === "ArrowDown" || e.key === "ArrowUp") {
      e.preventDefault();
      at = (at + (e.key === "ArrowDown" ? 1 : -1) + offers.length) % offers.length;
      mark();
    } else if ((e.key === "Enter" && at >= 0) || (e.key === "Tab" && !e.shiftKey && input.value)) {
      e.preventDefault();
      take(offers[Math.max(0, at)]);
    }
  });
  host.onEnd(hide);
  return { node: h("span", { class: "lv-field" }, input, list), input, hide };
}
