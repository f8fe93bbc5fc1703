// How each kind of question is answered: a field with its node, read() and draw().
import { h, fill, piece, roving, moved } from "./kit.js";

// `code` and **bold** in a sentence; everything else is text.
export function rich(text) {
  return String(text).split(/(`[^`\n]+`|\*\*[^*\n]+\*\*|\n)/).map((part) =>
    part === "\n" ? h("br") : /^`.+`$/.test(part) ? h("code", {}, part.slice(1, -1))
      : /^\*\*.+\*\*$/.test(part) ? h("b", {}, part.slice(2, -2)) : part);
}

let names = 0;

function number(host, submit) {
  const unit = (host.model.get("form") || {}).unit || "";
  const input = h("input", {
    type: "text", inputmode: "decimal", autocomplete: "off", spellcheck: "false", class: "lv-check-number", "aria-label": "Your number" + (unit ? `, in ${unit}` : ""), placeholder: "your guess",
    onkeydown: (e) => { if (e.key === "Enter" && !e.shiftKey) submit(); },
  });
  let shown = null;
  const draw = () => {
    const given = host.model.get("given");
    if (given !== shown && given !== null && given !== undefined) input.value = given;
    shown = given;
  };
  return { node: h("div", { class: "lv-check-row" }, input, unit ? h("span", { class: "lv-remark" }, unit) : null), read: () => input.value, draw };
}

function choose(host) {
  const { options, several } = host.model.get("form"), name = `lv-choice-${Date.now()}-${names++}`;
  const inputs = options.map((o) => h("input", { type: several ? "checkbox" : "radio", name, value: o }));
  const node = h("div", { class: "lv-choices", role: several ? "group" : "radiogroup", "aria-label": several ? "Choose all that are right" : "Choose one" },
    options.map((o, i) => h("label", { class: "lv-choice" }, inputs[i], h("span", {}, rich(o)))));
  let shown = null;
  const draw = () => {
    const given = host.model.get("given");
    if (given && given !== shown) inputs.forEach((input) => { input.checked = given.includes(input.value); });
    shown = given;
  };
  return { node, read: () => inputs.filter((i) => i.checked).map((i) => i.value), draw };
}

function order(host) {
  let items = [...host.model.get("form").items], shown = null, held = null;
  const list = h("ol", { class: "lv-order", "aria-label": "Put in order: space picks an item up, arrows move it" });
  const settle = roving(list, "li");
  const rows = new Map(items.map((text) => {
    const up = h("button", { type: "button", class: "lv-button lv-small lv-plain", tabindex: -1, "aria-label": `Up: ${text}`, onclick: () => move(text, -1) }, "▲");
    const down = h("button", { type: "button", class: "lv-button lv-small lv-plain", tabindex: -1, "aria-label": `Down: ${text}`, onclick: () => move(text, 1) }, "▼");
    return [text, h("li", { class: "lv-order-item", tabindex: -1, "data-item": text }, h("span", { class: "lv-order-text" }, rich(text)), up, down)];
  }));
  const place = () => {
    const focus = document.activeElement, inside = list.contains(focus);
    items.forEach((text, i) => {
      const row = rows.get(text);
      if (list.children[i] !== row) list.insertBefore(row, list.children[i] || null);
      row.classList.toggle("lv-held", held === text);
      row.setAttribute("aria-label", `${i + 1} of ${items.length}: ${text}${held === text ? ", picked up" : ""}`);
    });
    settle();
    if (inside && document.activeElement !== focus) focus.focus();
  };
  const move = (text, by) => {
    const at = items.indexOf(text), to = Math.max(0, Math.min(items.length - 1, at + by));
    if (to === at) return;
    items.splice(to, 0, ...items.splice(at, 1));
    place();
    host.say(`${text}: now ${to + 1} of ${items.length}`);
  };
  // Before the roving keys: with an item in hand, arrows move it and not the focus.
  list.addEventListener("keydown", (e) => {
    const row = e.target.closest("li");
    if (!row || e.target !== row) return;
    const text = row.dataset.item, by = { ArrowUp: -1, ArrowLeft: -1, ArrowDown: 1, ArrowRight: 1 }[e.key];
    if (e.key === " " || (e.key === "Enter" && !e.shiftKey) || (e.key === "Escape" && held)) {
      held = held === text || e.key === "Escape" ? null : text;
      place();
      host.say(held ? `${text} picked up` : `${text} put down`);
    } else if (held === text && by) {
      move(text, by);
      rows.get(text).focus();
    } else return;
    e.preventDefault();
    e.stopImmediatePropagation();
  }, true);
  let dragged = null;
  list.addEventListener("pointerdown", (e) => {
    const row = e.target.closest("li");
    if (!row || e.button || e.target.closest("button")) return;
    dragged = row.dataset.item;
    row.classList.add("lv-held");
    list.setPointerCapture(e.pointerId);
  });
  list.addEventListener("pointermove", (e) => {
    if (!dragged) return;
    const over = [...list.children].find((row) => { const b = row.getBoundingClientRect(); return e.clientY >= b.top && e.clientY < b.bottom; });
    if (over && over.dataset.item !== dragged) move(dragged, items.indexOf(over.dataset.item) - items.indexOf(dragged));
  });
  for (const end of ["pointerup", "pointercancel"]) list.addEventListener(end, () => { dragged = null; place(); });
  const draw = () => {
    const given = host.model.get("given");
    if (given && given !== shown) items = [...given];
    shown = given;
    place();
  };
  return { node: list, read: () => items, draw };
}

function mark(host) {
  const { rows, columns, values, axes } = host.model.get("form");
  const cells = rows.map((r, i) => columns.map((c, j) => h("button", {
    type: "button", class: "lv-mark-cell", tabindex: i || j ? -1 : 0, "aria-pressed": "false", "data-cell": `${i},${j}`, "aria-label": `${axes[0]} ${r}, ${axes[1]} ${c}${values.length ? ", " + values[i][j] : ""}`,
  }, values.length ? values[i][j] : "")));
  const set = (cell, on) => { cell.setAttribute("aria-pressed", String(on)); };
  const on = (cell) => cell.getAttribute("aria-pressed") === "true";
  const head = h("tr", {}, h("th", { class: "lv-mark-axes" }, rows.length > 1 ? `${axes[0]} ↓ ${axes[1]} →` : ""), columns.map((c) => h("th", { scope: "col" }, piece(c))));
  const table = h("table", { class: "lv-marks" + (values.length ? " lv-marks-values" : "") }, h("thead", {}, head),
    h("tbody", {}, rows.map((r, i) => h("tr", {}, h("th", { scope: "row" }, piece(r)), cells[i].map((c) => h("td", {}, c))))));
  const at = (cell) => cell.dataset.cell.split(",").map(Number);
  table.addEventListener("keydown", (e) => {
    const cell = e.target.closest(".lv-mark-cell"), to = cell && !e.altKey && !e.ctrlKey && !e.metaKey && moved(e.key, at(cell), rows.length, columns.length);
    if (!to) return;
    e.preventDefault();
    cell.tabIndex = -1;
    const next = cells[to[0]][to[1]];
    next.tabIndex = 0;
    next.focus();
  });
  // A click turns one cell; a drag gives all that it crosses the state of the first.
  let painting = null, painted = false;
  table.addEventListener("pointerdown", (e) => {
    const cell = e.target.closest(".lv-mark-cell");
    if (!cell || e.button) return;
    painting = !on(cell);
    painted = true;
    set(cell, painting);
    if (cell.hasPointerCapture(e.pointerId)) cell.releasePointerCapture(e.pointerId);
  });
  table.addEventListener("pointerover", (e) => {
    const cell = e.target.closest(".lv-mark-cell");
    if (painting !== null && cell && e.buttons & 1) set(cell, painting);
  });
  table.addEventListener("click", (e) => {
    const cell = e.target.closest(".lv-mark-cell");
    if (cell && !painted) set(cell, !on(cell)); // from the keyboard
    painted = false;
  });
  const stop = () => { painting = null; };
  window.addEventListener("pointerup", stop);
  host.onEnd(() => window.removeEventListener("pointerup", stop));
  let shown = null;
  const draw = () => {
    const given = host.model.get("given");
    if (given && given !== shown) {
      const marked = new Set(given.map(String));
      cells.flat().forEach((cell) => set(cell, marked.has(cell.dataset.cell)));
    }
    shown = given;
  };
  return { node: h("div", { class: "lv-marks-box" }, table), read: () => cells.flat().filter(on).map(at), draw };
}

function token(host, submit) {
  let tokens = [], chosen = null, shown = null, timer = 0, asked = 0;
  const input = h("input", {
    type: "text", autocomplete: "off", spellcheck: "false", class: "lv-check-text", "aria-label": "Type a text; spaces count", placeholder: "type a text; spaces count",
    oninput: () => { clearTimeout(timer); timer = setTimeout(cut, 120); },
    onkeydown: (e) => { if (e.key === "Enter" && !e.shiftKey) submit(); },
  });
  const chips = h("div", { class: "lv-chips", role: "group", "aria-label": "Its tokens: pick one" });
  const settle = roving(chips, "button");
  const list = () => {
    fill(chips, tokens.map((t, i) => h("button", {
      type: "button", class: "lv-chip", "data-token-id": t.id, "aria-pressed": String(i === chosen), title: `token ${t.id}`, onclick: () => { chosen = i; list(); chips.children[i].focus(); },
    }, piece(t.text), h("small", {}, t.id))));
    chips.hidden = !tokens.length;
    settle();
  };
  const cut = () => {
    const number = ++asked;
    host.ask({ do: "tokenize", text: input.value }).then((reply) => {
      if (number !== asked || reply.lost) return;
      tokens = reply.tokens || [];
      chosen = tokens.length === 1 ? 0 : null;
      list();
    });
  };
  host.onEnd(() => clearTimeout(timer));
  const draw = () => {
    const given = host.model.get("given");
    if (given && given !== shown && !tokens.some((t, i) => i === chosen && t.id === given.id)) {
      input.value = given.text;
      tokens = given.tokens;
      chosen = 0;
    }
    shown = given;
    list();
  };
  return { node: h("div", { class: "lv-check-row" }, input, chips), read: () => (chosen === null ? input.value : tokens[chosen].id), draw };
}

function exercise(host) {
  const name = (host.model.get("form") || {}).name;
  return { node: h("p", { class: "lv-remark" }, "Write it in the cell below, run that cell, then come back. It sets ", h("code", {}, name), "."), read: () => null, draw() {} };
}

export const FIELDS = { number, choose, order, mark, token, exercise };
