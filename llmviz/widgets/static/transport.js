// The transport: buttons, keys, the status.
import { h, svg } from "./kit.js";
import { driver } from "./driver.js";

// action, label, key, hint, path, the trait that says whether it can be done
const BUTTONS = [
  ["prev-token", "", "P", "Previous token: back to where the token before was chosen", "M14 4H8v8h6zM5 4.5 2 8l3 3.5", "can_prev"],
  ["back", "Back", "⇧F10", "Step back: to the event before", "M13 8H3.4M7 4.2 3.2 8 7 11.8", "can_back"],
  ["into", "Into", "F11", "Step into: go to the very next event", "M8 2v7M4.8 6 8 9.2 11.2 6M8 12.6v.1", "can_forward"],
  ["over", "Over", "F10", "Step over: go past what is inside this scope", "M2 9a6 5.4 0 0 1 11-2.2M13.4 3v4H9.4M8 12.6v.1", "can_forward"],
  ["out", "Out", "⇧F11", "Step out: go to the end of the enclosing scope", "M8 9.4V2.4M4.8 5.4 8 2.2l3.2 3.2M8 12.6v.1", "can_forward"],
  ["next-token", "Next token", "N", "Run until the next token has been chosen", "M2 4h6v8H2zM11 4.5 14 8l-3 3.5", "can_forward"],
  ["run", "Run", "F5", "Run to a breakpoint or to the end", "M4 2.5v11l9-5.5z", "can_forward"],
];

const STEPPING = new Set(BUTTONS.map(([action]) => action).filter((action) => action !== "run"));
const PATHS = { pause: "M4.5 3v10M11.5 3v10", restart: "M3 8a5 5 0 1 0 1.6-3.7M3 2.6v3h3" };

function icon(path) {
  return svg("svg", { viewBox: "0 0 16 16", "aria-hidden": "true" }, svg("path", { d: path }));
}

// The second one with Shift.
const KEYS = { F10: ["over", "back"], F11: ["into", "out"], n: ["next-token"], p: ["prev-token"] };

export function transportZone(host) {
  const { model, root } = host, drive = driver(host);
  const buttons = {};
  // A button that can do nothing now keeps the focus: whoever pressed it last finds it again.
  const off = (b) => b.getAttribute("aria-disabled") === "true";
  const button = (action, label, key, hint, path, click) => {
    buttons[action] = h("button", {
      type: "button", class: "lv-button", "data-action": action, title: key ? `${hint} (${key})` : hint,
      "aria-label": label ? undefined : hint, "aria-keyshortcuts": key.replace("⇧", "Shift+") || undefined,
      onclick: () => { if (!off(buttons[action])) click(); },
    }, icon(path), label ? h("span", {}, label) : null, key && label ? h("kbd", { "aria-hidden": "true" }, key) : null);
    return buttons[action];
  };
  const text = h("span", { class: "lv-status-text" }), done = h("span", { class: "lv-num", "aria-hidden": "true" }), more = h("span", { class: "lv-remark" });
  const status = h("span", { class: "lv-status", role: "status" }, text, done, more);
  const way = h("div", { class: "lv-way", role: "progressbar", "aria-label": "How far the way has come", "aria-valuemin": 0, "aria-valuemax": 100, hidden: true });
  const projector = h("button", {
    type: "button", class: "lv-button lv-plain", "data-action": "projector", title: "Larger text, for a projector",
    onclick: () => host.set("projector", !model.get("projector")),
  }, h("span", { class: "lv-big-a", "aria-hidden": "true" }, "A"), h("span", {}, "Projector"));
  const bar = h("div", { class: "lv-bar", role: "toolbar", "aria-label": "Stepping" },
    BUTTONS.map(([action, label, key, hint, path]) => button(action, label, key, hint, path, () => drive.go(action))),
    button("pause", "Pause", "F5", "Stand at the next event (Esc, too)", PATHS.pause, drive.pause),
    button("restart", "Restart", "", "Begin again at the first event", PATHS.restart, () => host.ask({ ask: "restart" })),
    h("span", { class: "lv-grow" }), status, projector, way);
  // One tab stop, which stays where it was used last; arrows move between the buttons.
  const all = [...bar.querySelectorAll("button")], items = () => all.filter((b) => !off(b) && !b.hidden);
  let home = buttons.into;
  const settle = () => { for (const b of all) { const to = b === home ? "0" : "-1"; if (b.getAttribute("tabindex") !== to) b.setAttribute("tabindex", to); } };
  bar.addEventListener("focusin", (e) => { if (all.includes(e.target)) { home = e.target; settle(); } });
  bar.addEventListener("keydown", (e) => {
    const at = items().indexOf(document.activeElement), n = items().length;
    if (e.key === "Enter" && e.repeat) { // a held Enter is a held button
      e.preventDefault();
      const action = document.activeElement.dataset.action;
      if (STEPPING.has(action) && !off(document.activeElement)) drive.go(action, undefined, true);
      return;
    }
    const to = { ArrowRight: at + 1, ArrowLeft: at < 0 ? n - 1 : at - 1, Home: 0, End: n - 1 }[e.key];
    if (to === undefined || !n) return;
    e.preventDefault();
    e.stopPropagation();
    items()[(to + n) % n].focus();
  });

  const keys = (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey || e.defaultPrevented) return;
    const typing = e.target.matches("input:not([type=checkbox]):not([type=range]), select, textarea");
    if (e.key === "F5" && !e.shiftKey) {
      if (!e.repeat) { if (drive.busy) drive.pause(); else drive.go("run"); }
    } else if (e.key === "Escape" && drive.busy && !typing) {
      drive.pause();
    } else {
      const plainKey = e.key.length === 1, action = (KEYS[e.key] || [])[e.shiftKey ? 1 : 0];
      if (!action || (plainKey && typing)) return;
      drive.go(action, undefined, e.repeat);
    }
    e.preventDefault();
    e.stopPropagation();
  };
  root.addEventListener("keydown", keys);

  let working = false, waiting = 0, slow = 0;
  const put = (node, said) => { if (node.textContent !== said) node.textContent = said; };
  function draw() {
    const running = !!model.get("running"), state = model.get("status"), to = model.get("way") || {};
    const shut = running && !drive.waits;
    const can = (b, yes) => { const is = String(!yes); if (b.getAttribute("aria-disabled") !== is) b.setAttribute("aria-disabled", is); };
    for (const [action, , , , , trait] of BUTTONS) can(buttons[action], !shut && model.get(trait));
    can(buttons.restart, !running && model.get("can_restart") && state !== "ready");
    // Run and Pause take each other's place, and each other's focus.
    const [shown, gone] = running ? [buttons.pause, buttons.run] : [buttons.run, buttons.pause];
    const focused = document.activeElement === gone;
    shown.hidden = false;
    if (focused) shown.focus();
    gone.hidden = true;
    if (home === gone) home = shown;
    settle();
    bar.classList.toggle("lv-working", running || working);
    const under = running && to.fraction !== undefined;
    if (status.dataset.status !== state) status.dataset.status = state;
    put(text, model.get("status_text"));
    if (text.title !== text.textContent) text.title = text.textContent;
    put(done, under ? `${Math.round(100 * to.fraction)}\u202f%` : "");
    put(more, waiting ? `${waiting} more press${waiting === 1 ? "" : "es"} to do` : "");
    projector.setAttribute("aria-pressed", String(!!model.get("projector")));
    way.hidden = !under;
    if (under) { way.style.setProperty("--lv-done", to.fraction); way.setAttribute("aria-valuenow", Math.round(100 * to.fraction)); }
  }
  drive.follow((now) => {
    // A step that takes long enough to be noticed is shown to be at work.
    if (now.busy && !working) slow = setTimeout(() => bar.classList.add("lv-slow"), 150);
    if (!now.busy) { clearTimeout(slow); bar.classList.remove("lv-slow"); }
    working = now.busy;
    waiting = now.waiting;
    draw();
  });
  host.onEnd(() => clearTimeout(slow));
  return { node: bar, draw, watch: ["running", "status", "status_text", "way", "can_restart", "can_forward", "can_back", "can_prev", "projector"] };
}
