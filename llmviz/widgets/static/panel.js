// The panel: every zone in its place.
import { h, createView } from "./kit.js";
import { transportZone, breakpointZone } from "./transport.js";
import { mapZone, scopeZone, explanationZone } from "./map.js";
import { tensorZone } from "./tensor.js";
import { tokensZone } from "./tokens.js";
import { logitsZone } from "./logits.js";
import { kvCacheZone } from "./kv_cache.js";
import { attentionZone } from "./attention.js";

function build(host) {
  const transport = transportZone(host), breaks = breakpointZone(host);
  const map = mapZone(host), scopes = scopeZone(host), explanation = explanationZone(host);
  const tensor = tensorZone(host), tokens = tokensZone(host), logits = logitsZone(host);
  const cache = kvCacheZone(host), attention = attentionZone(host);
  host.root.prepend(transport.node);
  host.root.append(
    tokens.node,
    h("div", { class: "lv-body" },
      h("div", { class: "lv-left" }, map.node, scopes.node, breaks.node),
      h("div", { class: "lv-middle" }, tensor.node, attention.node, cache.node),
      h("div", { class: "lv-right" }, explanation.node, logits.node)));
  const spoken = { draw: () => host.say(host.model.get("spoken") || ""), watch: ["spoken"] };
  return [transport, breaks, map, scopes, explanation, tensor, tokens, logits, cache, attention, spoken];
}

export default {
  render(context) {
    return createView(context, "panel", "llmviz debugger", build);
  },
};
