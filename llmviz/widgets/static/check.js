// A question of a lesson: what is asked, a field for the kind of answer, and what came of it.
import { h, fill, alone } from "./kit.js";
import { FIELDS, rich } from "./check_fields.js";
import { CHECK_STYLE } from "./check_style.js";

const TITLES = { right: "Right", wrong: "Not yet", unread: "", shown: "The answer" };
const SIGNS = { right: "✓", wrong: "↻", unread: "i", shown: "→" };

function checkZone(host) {
  const { model } = host, kind = model.get("kind"), exercise = kind === "exercise";
  let busy = false;
  const work = (message) => {
    if (busy) return;
    busy = true;
    host.ask(message).finally(() => { busy = false; });
  };
  const submit = () => work({ do: "submit", given: field.read() });
  const field = FIELDS[kind](host, submit);
  const asked = h("div", { class: "lv-asked" });
  const check = h("button", { type: "button", class: "lv-button lv-check-go", "data-action": "check", onclick: submit }, exercise ? "Check my work" : "Check");
  const show = h("button", { type: "button", class: "lv-button lv-plain", "data-action": "show-answer", onclick: () => work({ do: "show" }) }, exercise ? "Show a solution" : "Show me");
  const tries = h("span", { class: "lv-remark lv-tries" });
  const verdict = h("div", { class: "lv-verdict", hidden: true });
  const note = h("p", { class: "lv-remark lv-check-note" });
  const node = h("div", { class: "lv-check", role: "group", "data-kind": kind, "data-key": model.get("key") },
    h("style", {}, CHECK_STYLE), asked, h("div", { class: "lv-answer" }, field.node, h("div", { class: "lv-check-row" }, check, show, tries)), verdict, note);
  let said = "";
  const draw = () => {
    const question = model.get("question") || "", v = model.get("verdict") || {}, state = v.state || "";
    fill(asked, rich(question));
    node.setAttribute("aria-label", question);
    node.dataset.state = state || (model.get("done") ? "done" : "open");
    field.draw();
    show.hidden = !model.get("can_show") || state === "shown" || state === "right";
    const n = model.get("attempts") || 0;
    tries.textContent = n ? (model.get("done") ? `right at try ${n}` : n === 1 ? "1 try" : `${n} tries`) : "";
    verdict.hidden = !state;
    verdict.dataset.state = state;
    const told = exercise || !v.answer ? null : h("b", { class: "lv-told" }, rich(v.answer), ".");
    const title = exercise && state === "shown" ? "One way to do it:" : TITLES[state] && TITLES[state] + (told ? ":" : ".");
    node.style.colorScheme = host.dark ? "dark" : "light"; // the browser's own boxes
    fill(verdict, h("span", { class: "lv-sign", "aria-hidden": "true" }, SIGNS[state]),
      h("div", { class: "lv-verdict-text" },
        h("p", {}, h("b", {}, title), " ", told, told ? " " : null, rich(v.text || "")),
        exercise && state === "shown" ? h("pre", { class: "lv-code lv-solution", tabindex: 0, "aria-label": "Solution" }, v.answer) : null));
    note.textContent = model.get("note") || "";
    note.hidden = !note.textContent;
    const words = state ? `${title} ${v.answer || ""} ${v.text || ""}` : "";
    if (words !== said) { said = words; host.say(words); }
  };
  return { node, draw };
}

export default alone("check", "Question", checkZone);
