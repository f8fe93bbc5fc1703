// A recorded run on a page of its own: transport, timeline and text on top, the map beside one view.
import { h, createView, roving, fill, shape, plain } from "./kit.js";
import { transportZone } from "./transport.js";
import { timelineZone } from "./timeline.js";
import { tokensZone } from "./tokens.js";
import { mapZone, scopeZone, explanationZone } from "./map.js";
import { flowZone } from "./flow.js";
import { tensorZone } from "./tensor.js";
import { attentionZone } from "./attention.js";
import { samplerZone } from "./sampler.js";
import { kvCacheZone } from "./kv_cache.js";
import { logitsZone } from "./logits.js";
import { outputZone } from "./output.js";

const TABS = [["flow", "Flow", flowZone], ["tensor", "Tensor", tensorZone], ["attention", "Attention", attentionZone], ["kv_cache", "KV cache", kvCacheZone],
  ["logits", "Logits", logitsZone], ["sampler", "Sampler", samplerZone], ["output", "Output", outputZone]];

// The current event in one line.
function hereZone(host) {
  const name = h("h3", { class: "lv-event-name" }), about = h("span", { class: "lv-event-about" });
  const node = h("div", { class: "lv-here" }, name, about);
  const KIND = { enter: "a scope begins", exit: "a scope ends", node: "tensor", data: "data" };
  const draw = () => {
    const e = host.model.get("event") || {};
    name.textContent = plain(e.name || "");
    fill(about, e.n === undefined ? null : [h("span", { class: "lv-tag" }, e.op || KIND[e.kind]), e.shape ? h("code", {}, `${shape(e.shape)} ${e.dtype}`) : null, h("span", { class: "lv-remark" }, `event ${e.n.toLocaleString("en-US")}`)]);
  };
  return { node, draw, watch: ["event"] };
}

function tabsZone(host, views, stage) {
  const { model } = host;
  const choose = (id) => { model.set("view", id); model.set("pinned", true); model.save_changes(); };
  const buttons = views.map(({ id, label }) => h("button", { type: "button", role: "tab", class: "lv-tab", "data-tab": id, onclick: () => choose(id) }, label));
  const list = h("div", { class: "lv-tabs", role: "tablist", "aria-label": "Views" }, buttons), settle = roving(list, "button");
  const pin = h("button", { type: "button", class: "lv-button lv-small", "data-action": "pin", title: "Let the view follow the event, or keep the one that is open", onclick: () => host.set("pinned", !model.get("pinned")) }, "follow event");
  const draw = () => {
    const view = views.find((v) => v.id === model.get("view")) || views[0];
    views.forEach(({ id }, i) => {
      buttons[i].setAttribute("aria-selected", String(id === view.id));
      if (id === view.id) buttons[i].setAttribute("aria-current", "true"); else buttons[i].removeAttribute("aria-current");
    });
    pin.setAttribute("aria-pressed", String(!model.get("pinned")));
    if (stage.firstChild !== view.node) { stage.replaceChildren(view.node); host.redraw(); }
    settle();
  };
  return { node: h("div", { class: "lv-tab-line" }, list), draw, watch: ["view", "pinned"], tools: h("span", { class: "lv-here-tools" }, pin) };
}

function build(host) {
  host.docked = true;
  const { model, root } = host;
  const transport = transportZone(host), timeline = timelineZone(host), tokens = tokensZone(host), map = mapZone(host);
  const explanation = explanationZone(host), scopes = scopeZone(host), here = hereZone(host), stage = h("div", { class: "lv-stage" });
  const shown = (view) => (model.views.includes(view) ? view : model.views[0]);
  const views = TABS.filter(([id]) => model.views.includes(id)).map(([id, label, make]) => {
    const zone = make(host);
    zone.node.setAttribute("role", "tabpanel");
    return { ...zone, id, label, hidden: () => shown(model.get("view")) !== id };
  });
  const tabs = tabsZone(host, views, stage);
  here.node.append(tabs.tools);
  root.classList.add("lv-panel", "lv-recorded");
  root.prepend(transport.node);
  root.append(timeline.node, tokens.node, h("div", { class: "lv-body" },
    h("div", { class: "lv-left" }, map.node, explanation.node), h("div", { class: "lv-middle" }, scopes.node, here.node, tabs.node, stage)));
  const spoken = { node: null, draw: () => host.say(model.get("spoken") || ""), watch: ["spoken"] };
  return [tabs, transport, timeline, tokens, map, scopes, here, explanation, ...views, spoken];
}

export const recordedView = {
  render(context) {
    return createView(context, "recorded", "A recorded run", build);
  },
};
