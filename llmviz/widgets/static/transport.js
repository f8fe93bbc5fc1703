// The transport: buttons, keys, the status; and the list of breakpoints.
import { h, fill, svg, visible } from "./kit.js";

const BUTTONS = [
  ["into", "Into", "F11", "Step into: go to the very next event", "M8 2v7M4.8 6 8 9.2 11.2 6M8 12.6v.1"],
  ["over", "Over", "F10", "Step over: go past what is inside this scope", "M2 9a6 5.4 0 0 1 11-2.2M13.4 3v4H9.4M8 12.6v.1"],
  ["out", "Out", "⇧F11", "Step out: go to the end of the enclosing scope", "M8 9.4V2.4M4.8 5.4 8 2.2l3.2 3.2M8 12.6v.1"],
  ["next-token", "Next token", "N", "Run until the next token has been chosen", "M2 4h6v8H2zM11 4.5 14 8l-3 3.5"],
  ["run", "Run", "F5", "Run to a breakpoint or to the end", "M4 2.5v11l9-5.5z"],
];

const PATHS = { pause: "M4.5 3v10M11.5 3v10", restart: "M3 8a5 5 0 1 0 1.6-3.7M3 2.6v3h3" };

function icon(path) {
  return svg("svg", { viewBox: "0 0 16 16", "aria-hidden": "true" }, svg("path", { d: path }));
}

export function transportZone(host) {
  const { model, ask, root } = host;
  let driving = false;

  const pump = async (reply) => {
    driving = true;
    // One slice is always on its way, so that the kernel works while the page draws.
    let next = reply.running && !reply.lost ? ask({ ask: "tick" }) : null;
    while (driving && reply.running && !reply.lost) {
      const after = ask({ ask: "tick" });
      reply = await next;
      next = after;
    }
    driving = false;
  };
  const go = async (action) => {
    if (driving || model.get("running")) return;
    draw(true);
    await pump(await ask({ ask: "go", action }));
    draw();
  };
  const pause = () => { driving = false; ask({ ask: "pause" }); };
  const restart = () => ask({ ask: "restart" });

  const buttons = {};
  const button = (action, label, key, hint, path, click) => {
    buttons[action] = h("button", {
      type: "button", class: "lv-button", "data-action": action, title: key ? `${hint} (${key})` : hint,
      "aria-keyshortcuts": key.replace("⇧", "Shift+") || undefined, onclick: click,
    }, icon(path), h("span", {}, label), key ? h("kbd", { "aria-hidden": "true" }, key) : null);
    return buttons[action];
  };
  const status = h("span", { class: "lv-status", role: "status" });
  const projector = h("button", {
    type: "button", class: "lv-button lv-plain", "data-action": "projector", title: "Larger text, for a projector",
    onclick: () => host.set("projector", !model.get("projector")),
  }, h("span", { class: "lv-big-a", "aria-hidden": "true" }, "A"), h("span", {}, "Projector"));
  const bar = h("div", { class: "lv-bar", role: "toolbar", "aria-label": "Stepping" },
    BUTTONS.map(([action, label, key, hint, path]) => button(action, label, key, hint, path, () => go(action))),
    button("pause", "Pause", "F5", "Stand at the next event", PATHS.pause, pause),
    button("restart", "Restart", "", "Begin again at the first event", PATHS.restart, restart),
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
    const typing = e.target.matches("input, select, textarea");
    let action = { F10: "over", F11: e.shiftKey ? "out" : "into", F5: "run" }[e.key];
    if (!action && !typing && (e.key === "n" || e.key === "N")) action = "next-token";
    if (!action) return;
    e.preventDefault();
    e.stopPropagation();
    if (action === "run" && model.get("running")) pause();
    else go(action);
  };
  root.addEventListener("keydown", keys);
  // A run belongs to the page that watches it.
  host.onEnd(() => { if (driving) { driving = false; try { model.send({ ask: "pause" }); } catch { /* the kernel is gone as well */ } } });

  function draw(asked) {
    const running = !!model.get("running"), state = model.get("status");
    const dead = state === "end" || state === "error";
    for (const [action] of BUTTONS) buttons[action].disabled = running || dead;
    buttons.run.hidden = running;
    buttons.pause.hidden = !running;
    buttons.restart.disabled = running || !model.get("can_restart") || state === "ready";
    bar.classList.toggle("lv-working", !!asked || running);
    status.dataset.status = state;
    status.textContent = model.get("status_text");
    projector.setAttribute("aria-pressed", String(!!model.get("projector")));
    // A button that was just pressed and is off now must not take the focus with it.
    const lost = document.activeElement && bar.contains(document.activeElement) && (document.activeElement.disabled || document.activeElement.hidden);
    const first = items()[0];
    if (lost && first) first.focus();
    settle(items().find((b) => b === document.activeElement) || first);
  }
  return { node: bar, draw: () => draw(), watch: ["running", "status", "status_text", "can_restart", "projector"] };
}

export function breakpointZone(host) {
  const { model, ask } = host;
  const list = h("ul", { class: "lv-breaks" });
  const input = h("input", { type: "text", maxlength: 200, placeholder: "l_out-* or step 13", "aria-label": "Stop at events with this name or glob, or at this step" });
  const form = h("form", {
    class: "lv-break-form",
    onsubmit: (e) => {
      e.preventDefault();
      if (!input.value.trim()) return;
      ask({ ask: "break", where: input.value }).then((r) => { if (!r.error && !r.lost) input.value = ""; });
    },
  }, input, h("button", { type: "submit", class: "lv-button" }, "Add"));
  const node = h("section", { class: "lv-card lv-quiet" }, h("header", {}, h("h3", {}, "Breakpoints")), list, form);
  let shown = "";
  const draw = () => {
    const points = model.get("breakpoints") || [], state = JSON.stringify(points);
    if (state === shown) return;
    shown = state;
    fill(list, ...points.map((b) => h("li", { "data-break": b.id },
      h("label", {},
        h("input", { type: "checkbox", checked: b.enabled, onchange: () => ask({ ask: "toggle-break", which: b.id }) }),
        h("code", {}, visible(b.label).replace(/\u00a0/g, " "))),
      h("span", { class: "lv-remark", title: "times the run stopped here" }, `${b.hits}×`),
      h("button", { type: "button", class: "lv-x", "aria-label": `Remove breakpoint ${b.label}`, title: "Remove", onclick: () => ask({ ask: "unbreak", which: b.id }) }, "×"))));
  };
  return { node, draw, watch: ["breakpoints"] };
}
