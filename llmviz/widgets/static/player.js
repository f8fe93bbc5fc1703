// Plays a recorded run: the widget model that a page without a kernel gives its views. Going from
// event to event, it hands out what each view showed there; what depends on a choice is computed
// from the recorded arrays.
import { numbers } from "./kit.js";
import { stillModel } from "./host.js";
import { tensorOf } from "./recorded_tensor.js";
import { attentionOf } from "./recorded_attention.js";
import { flowOf, flowLayer } from "./recorded_flow.js";

const OWN = {
  layer: 0, head: 0, follow: true, query: -1, key: -1, stage: "softmax", measure: "pair", selected: -1, selected_node: "", opened_node: "", view: "flow", pinned: false, wide: false,
  theme: "auto", projector: false, rev: 0, running: false, error: {}, what_if: {}, n_rows: 12, shown_step: 0, slice: [], origin: [0, 0],
  can_restart: false, editable: {}, edits: [], chain: [], breakpoints: [], watches: [],
};
const ATTENTION = new Set(["layers", "n_layer", "n_head", "axis", "attention", "row", "attention_about", "shut", "overview", "overview_about"]);
const FLOW = new Set(["flow", "flow_rows", "flow_open", "flow_folded", "flow_scores", "flow_weights", "flow_mask", "flow_row", "flow_at"]);
const SILENT = new Set(["tick", "alternatives", "values", "weight", "flow_value"]);
const ENTER = 0, EXIT = 1;
const NO_FLOW = { flow: {}, flow_rows: [], flow_at: {} }, NOTHING = new Uint8Array(0);

export function player(core, blob, words, flowWords, start) {
  const made = [];
  const value = (i) => {
    if (made[i] === undefined) {
      const [kind, a, b] = core.values[i];
      made[i] = kind === 0 ? a : kind === 1 ? new DataView(blob.buffer, blob.byteOffset + a, b) : a.map(value);
    }
    return made[i];
  };
  const ints = (i) => { const v = value(i); return new Int32Array(v.buffer.slice(v.byteOffset, v.byteOffset + v.byteLength)); };
  const [n, depth, step, kind, nameOf] = ["n", "depth", "step", "kind", "name"].map((k) => ints(core[k]));
  const names = value(core.names), columns = ints(core.columns), count = core.n_stops, row = new Map(core.traits.map((k, i) => [k, i]));
  const tokenStops = new Set(core.tokens.filter((t) => !t.given).map((t) => t.n));
  const own = { ...OWN };
  let at = -1, groups = {};

  const recorded = (k) => (row.has(k) && at >= 0 ? value(columns[row.get(k) * count + at]) : undefined);
  const chosen = (k) => {
    const i = core.selected.traits.indexOf(k), there = core.selected.at[own.selected];
    const token = core.tokens.find((t) => t.pos === own.selected);
    return i >= 0 && there && token && token.n <= n[at] ? value(there[i]) : undefined;
  };
  const group = (name, make) => (groups[name] = groups[name] || make());
  const stop = () => ({
    n: n[at], step: step[at], kind: kind[at], name: names[nameOf[at]], node: recorded("node_now"), cells: numbers(recorded("cell_pos"), Int32Array),
    ubatch: recorded("ubatch_now"), unfinished: recorded("unfinished_now"),
  });
  const attention = () => group("attention", () => attentionOf(core, words, flowWords, stop(), own));
  const flow = () => group("flow", () => {
    const layer = flowLayer(core.flow, own.layer);
    return layer < 0 || at < 0 ? NO_FLOW : flowOf(core, flowWords, words, stop(), { ...own, layer });
  });
  const tensor = () => group("tensor", () => {
    const held = core.tensors[n[at]], event = recorded("event") || {};
    if (!event.shape) return { event, window: {}, picture: NOTHING };
    if (held) return { event, ...tensorOf(held, words, own.slice, own.origin) };
    const s = event.statistics || {}, lines = Object.entries(s).filter(([, x]) => x !== null).map(([k, x]) => [{ text: k }, { value: String(x), ref: `${event.name}.${k}` }]);
    return { event: { ...event, statistics: undefined, details: { columns: [], rows: [[{ text: "shape" }, { text: `[${event.shape.join(", ")}] ${event.dtype}` }], ...lines], note: "Its values are not in this page." } }, window: {}, picture: NOTHING };
  });
  const get = (k) => {
    if (k === "here") return at < 0 ? -1 : n[at];
    if (k === "layer" && own.view === "flow") return Math.max(0, flowLayer(core.flow, own.layer));
    if (k === "head") return Math.max(0, attention().head);
    if (k in own) return own[k];
    if (k === "event" || k === "window" || k === "picture") return tensor()[k];
    if (ATTENTION.has(k)) return attention()[k];
    if (FLOW.has(k)) return flow()[k];
    const picked = own.selected >= 0 ? chosen(k) : undefined;
    return picked === undefined ? recorded(k) : picked;
  };

  const model = stillModel(own), still = { ...model };
  // A change of anything: whoever listens hears of what is another value now, and then draws.
  const change = (f) => {
    const heard = still.heard().filter((e) => e.startsWith("change:")).map((e) => e.slice(7)), before = heard.map(get);
    f();
    groups = {};
    heard.forEach((k, i) => { if (k !== "rev" && get(k) !== before[i]) still.fire(`change:${k}`); });
    own.rev++;
    still.fire("change:rev");
  };
  const stand = (i) => change(() => {
    at = i;
    const layer = recorded("layer_now");
    if (own.follow && layer >= 0) own.layer = layer;
    if (!own.pinned) own.view = recorded("view_now");
  });

  // -- going from event to event, as a debugger does ------------------------------------------------
  const first = (from, fits) => { for (let i = from; i < count; i++) if (fits(i)) return i; return count - 1; };
  const lastBefore = (from, fits) => { for (let i = from - 1; i >= 0; i--) if (fits(i)) return i; return -1; };
  const upTo = (to) => { let low = 0, high = count; while (low < high) { const mid = (low + high) >> 1; if (n[mid] <= to) low = mid + 1; else high = mid; } return Math.max(0, low - 1); };
  const refuse = (text) => { throw new Error(text); };
  const goal = (action, to) => {
    if (action === "goto") return upTo(Number(to));
    if (["back", "back-over", "back-out", "prev-token"].includes(action)) {
      if (action === "prev-token") {
        const i = lastBefore(at, (j) => tokenStops.has(n[j]));
        return i >= 0 ? i : refuse("there is no token before this event");
      }
      if (at <= 0) refuse("this is the first event that was recorded");
      const opens = (j) => kind[j] === ENTER && depth[j] === depth[at];
      if (action === "back-over" && kind[at] === EXIT) return Math.max(0, lastBefore(at, opens));
      if (action === "back-out") return Math.max(0, lastBefore(at, (j) => kind[j] === ENTER && depth[j] < depth[at]));
      return at - 1;
    }
    if (at >= count - 1) refuse("this is the last event that was recorded");
    if (action === "into") return at + 1;
    if (action === "over") return first(at + 1, (i) => depth[i] <= depth[at]);
    if (action === "out") return depth[at] === 0 ? first(at + 1, (i) => step[i] !== step[at]) : first(at + 1, (i) => depth[i] < depth[at]);
    if (action === "next-token") return first(at + 1, (i) => tokenStops.has(n[i]));
    if (action === "run" || action === "to-end") return count - 1;
    return refuse(`a recorded run cannot do this: ${action}`);
  };

  const answers = {
    go: (m) => { stand(goal(m.action, m.to)); },
    "goto-step": (m) => {
      const known = (recorded("step_starts") || {})[m.step];
      if (known !== undefined) return stand(upTo(known));
      const i = first(at + 1, (j) => step[j] === m.step);
      return step[i] === m.step ? stand(i) : refuse(`step ${m.step} was not recorded after this event`);
    },
    values: (m) => (n[at] === m.n && core.tensors[m.n] ? { n: m.n, ...tensor().block(tensor().event.name, m.row, m.column, m.rows, m.columns) } : { n: n[at], values: [] }),
    weight: (m) => attention().weight(m.row, m.column),
    flow_value: (m) => (flow().value ? flow().value(m) : undefined),
    flow_tensor: (m) => {
      const i = lastBefore(at + 1, (j) => kind[j] === 2 && names[nameOf[j]] === m.column);
      if (i < 0) refuse(`this page does not stop at ${m.column}: open the run live to see all of it`);
      stand(i);
      change(() => { own.view = "tensor"; own.pinned = true; });
    },
    alternatives: (m) => core.tokens.find((t) => t.pos === m.pos),
    "sampler-token": (m) => change(() => {
      const there = core.tokens.filter((t) => !t.given && t.n <= n[at]).map((t) => t.pos), now = (get("strip") || {}).pos + (m.by > 0 ? 1 : -1);
      own.selected = !there.length || now > there[there.length - 1] ? -1 : Math.max(now, there[0]);
    }),
    tick: () => {}, pause: () => {},
  };
  const answer = (m) => {
    const reply = { reply: m.id, running: false };
    try {
      if (own.error.title && !SILENT.has(m.ask)) change(() => { own.error = {}; });
      if (!answers[m.ask]) refuse("this page holds a recorded run: it can be walked, not changed");
      reply.value = answers[m.ask](m);
    } catch (error) {
      reply.error = String(error.message);
      change(() => { own.error = { title: "That did not work", text: reply.error, hint: "This run was recorded. Open it live to go on from here.", source: "view" }; });
    }
    still.fire("msg:custom", reply, []);
  };

  const pending = {};
  Object.assign(model, {
    get,
    set(k, v) { pending[k] = v; },
    save_changes() {
      change(() => {
        if ("layer" in pending) pending.follow = pending.follow || false;
        for (const [k, v] of Object.entries(pending)) { if (k in own) own[k] = v; delete pending[k]; }
      });
    },
    send(message) { queueMicrotask(() => answer(message)); },
    goto: (to) => stand(upTo(to)),
  });
  stand(start === undefined ? 0 : upTo(start));
  own.view = core.views[0];  // the whole first; the next step leads to the view that fits
  return model;
}
