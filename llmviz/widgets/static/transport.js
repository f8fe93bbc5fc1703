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

const PATHS = { pause: "M4.5 3v10M11.5 3v10", restart: "M3 8a5 5 0 1 0 1.6-3.7M3 2.6v3h3" };

function icon(path) {
  return svg("svg", { viewBox: "0 0 16 16", "aria-hidden": "true" }, svg("path", { d: path }));
}

export function transportZone(host) {
  const { model, root } = host, drive = driver(host);
  const buttons = {};
  const button = (action, label, key, hint, path, click) => {
    buttons[action] = h("button", {
      type: "button", class: "lv-button", "data-action": action, title: key ? `${hint} (${key})` : hint,
      "aria-label": label ? undefined : hint, "aria-keyshortcuts": key.replace("⇧", "Shift+") || undefined, onclick: click,
    }, icon(path), label ? h("span", {}, label) : null, key && label ? h("kbd", { "aria-hidden": "true" }, key) : null);
    return buttons[action];
  };
  const status = h("span", { class: "lv-status", role: "status" });
  const projector = h("button", {
    type: "button", class: "lv-button lv-plain", "data-action": "projector", title: "Larger text, for a projector",
    onclick: () => host.set("projector", !model.get("projector")),
  }, h("span", { class: "lv-big-a", "aria-hidden": "true" }, "A"), h("span", {}, "Projector"));
  const bar = h("div", { class: "lv-bar", role: "toolbar", "aria-label": "Stepping" },
    BUTTONS.map(([action, label, key, hint, path]) => button(action, label, key, hint, path, () => drive.go(action))),
    button("pause", "Pause", "F5", "Stand at the next event", PATHS.pause, drive.pause),
    button("restart", "Restart", "", "Begin again at the first event", PATHS.restart, () => host.ask({ ask: "restart" })),
    h("span", { class: "lv-grow" }), status, projector);
  // One tab stop; arrows move between the buttons.
  const items = () => [...bar.querySelectorAll("button")].filter((b) => !b.disabled && !b.hidden);
  const settle = (chosen) => { for (const b of bar.querySelectorAll("button")) b.tabIndex = b === chosen ? 0 : -1; };
  bar.addEventListener("keydown", (e) => {
    const all = items(), at = all.indexOf(document.activeElement);
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: all.length - 1 }[e.key];
    if (at < 0 || to === undefined) return;
    e.preventDefault();
    e.stopPropagation();
    const next = all[(to + all.length) % all.length];
    settle(next);
    next.focus();
  });

  const keys = (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey) return;
    const typing = e.target.matches("input:not([type=checkbox]):not([type=range]), select, textarea");
    let action = { F10: e.shiftKey ? "back" : "over", F11: e.shiftKey ? "out" : "into", F5: "run" }[e.key];
    if (!action && !typing && !e.shiftKey) action = { n: "next-token", p: "prev-token" }[e.key];
    if (!action) return;
    e.preventDefault();
    e.stopPropagation();
    if (action === "run" && drive.busy) drive.pause();
    else drive.go(action);
  };
  root.addEventListener("keydown", keys);

  let working = false;
  function draw() {
    const running = !!model.get("running"), state = model.get("status");
    for (const [action, , , , , can] of BUTTONS) buttons[action].disabled = running || !model.get(can);
    buttons.run.hidden = running;
    buttons.pause.hidden = !running;
    buttons.restart.disabled = running || !model.get("can_restart") || state === "ready";
    bar.classList.toggle("lv-working", running || working);
    status.dataset.status = state;
    status.textContent = model.get("status_text");
    projector.setAttribute("aria-pressed", String(!!model.get("projector")));
    // A button that was just pressed and is off now must not take the focus with it.
    const lost = document.activeElement && bar.contains(document.activeElement) && (document.activeElement.disabled || document.activeElement.hidden);
    const first = items().find((b) => b !== buttons["prev-token"] && b !== buttons.back) || items()[0];
    if (lost && first) first.focus();
    settle(items().find((b) => b === document.activeElement) || first);
  }
  drive.follow((busy) => { working = busy; draw(); });
  return { node: bar, draw, watch: ["running", "status", "status_text", "can_restart", "can_forward", "can_back", "can_prev", "projector"] };
}
