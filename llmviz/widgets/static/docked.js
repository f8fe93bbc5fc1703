// A view that can stand alone, docked in the panel: its traits are the panel's, under its name.
import { h } from "./kit.js";

const SHARED = ["theme", "projector", "rev", "here", "error", "running"];

export function docked(name, makeZone) {
  return (host) => {
    const under = host.model;
    const own = (trait) => (SHARED.includes(trait) ? trait : `${name}_${trait}`);
    const event = (e) => (e.startsWith("change:") ? "change:" + own(e.slice(7)) : e);
    const inner = {
      get: (trait) => under.get(own(trait)),
      set: (trait, to) => under.set(own(trait), to),
      save_changes: () => under.save_changes(),
      on: (e, f) => under.on(event(e), f),
      off: (e, f) => under.off(event(e), f),
      send: (message) => under.send({ ...message, dock: name }),
    };
    // Whatever is not said otherwise is the panel's, as it is now.
    const zone = makeZone(Object.assign(Object.create(host), {
      model: inner,
      set: (trait, to) => host.set(own(trait), to),
      on: (e, f) => host.on(event(e), f),
      ask: (message) => host.ask({ ...message, dock: name }),
    }));
    const missing = h("p", { class: "lv-empty" });
    const draw = () => {
      const why = under.get(`${name}_missing`) || "";
      missing.textContent = why;
      missing.hidden = !why;
      zone.node.hidden = !!why;
      if (!why) zone.draw();
    };
    return { node: h("div", { class: "lv-docked" }, missing, zone.node), draw, end: zone.end, watch: [`${name}_rev`, `${name}_missing`] };
  };
}
