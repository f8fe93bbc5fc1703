// The panel: transport, timeline and text on top; map, breakpoints and watches on the left; the view
// that fits the event in the middle; explanation, source and changes on the right.
import { h, fill, createView, shape, plain, roving } from "./kit.js";
import { transportZone } from "./transport.js";
import { timelineZone } from "./timeline.js";
import { tokensZone } from "./tokens.js";
import { mapZone, scopeZone, explanationZone } from "./map.js";
import { breaksZone } from "./breaks.js";
import { watchesZone } from "./watches.js";
import { sentinelsZone } from "./sentinels.js";
import { editsZone } from "./edits.js";
import { sourceZone } from "./source.js";
import { docked } from "./docked.js";
import { batchZone } from "./batch.js";
import { compareZone } from "./compare.js";
import { ggufZone } from "./gguf.js";
import { loadZone } from "./load.js";
import { tokenizerZone } from "./tokenizer.js";
import { flowZone } from "./flow.js";
import { tensorZone } from "./tensor.js";
import { attentionZone } from "./attention.js";
import { headsZone } from "./heads.js";
import { samplerZone } from "./sampler.js";
import { kvCacheZone } from "./kv_cache.js";
import { logitsZone } from "./logits.js";
import { graphZone } from "./graph.js";
import { timeZone } from "./time.js";
import { outputZone } from "./output.js";

// One line per view: its name (panel.py's VIEWS has the same), its label, its zone (docked where it
// can stand without a debugger). A group stays together on one line where the tabs need two.
const GROUPS = [
  ["The whole pass", [
    ["flow", "Flow", flowZone],
  ]],
  ["Before the pass", [
    ["load", "Load", docked("load", loadZone)],
    ["gguf", "File", docked("gguf", ggufZone)],
    ["tokenizer", "Tokens", docked("tokenizer", tokenizerZone)],
    ["batch", "Batch", docked("batch", batchZone)],
  ]],
  ["Inside the pass", [
    ["tensor", "Tensor", tensorZone],
    ["attention", "Attention", attentionZone],
    ["heads", "Heads", headsZone],
    ["kv_cache", "KV cache", kvCacheZone],
    ["graph", "Graph", graphZone],
    ["time", "Time", timeZone],
  ]],
  ["The next token", [
    ["logits", "Logits", logitsZone],
    ["sampler", "Sampler", samplerZone],
    ["output", "Output", outputZone],
  ]],
  ["Two runs", [
    ["compare", "Compare", docked("compare", compareZone)],
  ]],
];
const TABS = GROUPS.flatMap(([, views]) => views);

// The current event in one line.
function hereZone(host) {
  const { model } = host;
  const name = h("h3", { class: "lv-event-name" }), about = h("span", { class: "lv-event-about" });
  const node = h("div", { class: "lv-here" }, name, about);
  const KIND = { enter: "a scope begins", exit: "a scope ends", node: "tensor", data: "data" };
  const draw = () => {
    const e = model.get("event") || {};
    name.textContent = e.n === undefined ? "Nothing has run yet" : plain(e.name);
    fill(about, e.n === undefined ? h("span", { class: "lv-remark" }, "Press Into for the first step, or Next token.") : [
      h("span", { class: "lv-tag" }, e.op || KIND[e.kind]),
      e.edited ? h("span", { class: "lv-tag lv-edited" }, "edited") : null,
      e.shape ? h("code", {}, `${shape(e.shape)} ${e.dtype}`) : null,
      h("span", { class: "lv-remark" }, `event ${e.n.toLocaleString("en-US")}`)]);
  };
  return { node, draw, watch: ["event"] };
}

function tabsZone(host, zones, stage) {
  const { model } = host;
  const buttons = TABS.map(([id, label]) => h("button", {
    type: "button", role: "tab", class: "lv-tab", "data-tab": id,
    onclick: () => { model.set("view", id); model.set("pinned", true); model.save_changes(); },
  }, label));
  const groups = GROUPS.map(([name, views]) => h("span", { class: "lv-tab-group", role: "presentation", title: name }, views.map(([id]) => buttons[TABS.findIndex((t) => t[0] === id)])));
  const list = h("div", { class: "lv-tabs", role: "tablist", "aria-label": "Views" }, groups);
  const pin = h("button", { type: "button", class: "lv-button lv-small", "data-action": "pin", title: "Let the view follow the event, or keep the one that is open", onclick: () => host.set("pinned", !model.get("pinned")) });
  const wide = h("button", { type: "button", class: "lv-button lv-small", "data-action": "wide", title: "Only this view", onclick: () => host.set("wide", !model.get("wide")) }, "Wide");
  const node = h("div", { class: "lv-tab-line" }, list);
  const settle = roving(list, "button");
  let shown = null;
  const draw = () => {
    const view = model.get("view"), pinned = !!model.get("pinned");
    TABS.forEach(([id], i) => {
      buttons[i].setAttribute("aria-selected", String(id === view));
      if (id === view) buttons[i].setAttribute("aria-current", "true"); else buttons[i].removeAttribute("aria-current");
    });
    // Only the view that can be seen is in the document: no number of an earlier event lingers.
    const open = zones[TABS.findIndex(([id]) => id === view)];
    if (stage.firstChild !== open.node) { stage.replaceChildren(open.node); stage.scrollTop = 0; }
    settle();
    pin.setAttribute("aria-pressed", String(!pinned));
    pin.textContent = "follow event";
    wide.setAttribute("aria-pressed", String(!!model.get("wide")));
    host.root.classList.toggle("lv-wide", !!model.get("wide"));
    if (shown !== view) { shown = view; host.redraw(); }
  };
  host.on("change:wide", () => { draw(); });
  return { node, draw, watch: ["view", "pinned", "wide"], tools: h("span", { class: "lv-here-tools" }, pin, wide) };
}

function build(host) {
  host.docked = true;
  const transport = transportZone(host), timeline = timelineZone(host), tokens = tokensZone(host);
  const map = mapZone(host), breaks = breaksZone(host), watches = watchesZone(host), sentinels = sentinelsZone(host);
  const explanation = explanationZone(host), source = sourceZone(host), edits = editsZone(host);
  const scopes = scopeZone(host), here = hereZone(host);
  const views = TABS.map(([id, , make]) => {
    const zone = make(host);
    zone.node.setAttribute("role", "tabpanel");
    zone.node.dataset.panel = id;
    return { ...zone, hidden: () => model(host) !== id };
  });
  const stage = h("div", { class: "lv-stage" }), tabs = tabsZone(host, views, stage);
  here.node.append(tabs.tools);
  host.root.classList.add("lv-panel");
  host.root.prepend(transport.node);
  host.root.append(
    timeline.node, tokens.node,
    h("div", { class: "lv-body" },
      h("div", { class: "lv-left" }, map.node, breaks.node, watches.node, sentinels.node),
      h("div", { class: "lv-middle" }, scopes.node, here.node, tabs.node, stage),
      h("div", { class: "lv-right" }, explanation.node, source.node, edits.node)));
  const spoken = { draw: () => host.say(host.model.get("spoken") || ""), watch: ["spoken"] };
  return [tabs, transport, timeline, tokens, map, breaks, watches, sentinels, scopes, here, explanation, source, edits, ...views, spoken];
}

function model(host) {
  return host.model.get("view");
}

export default {
  render(context) {
    return createView(context, "panel", "llmviz debugger", build);
  },
};
