// What is known of the chosen node or block, and the nodes as a table.
import { h, fill, value, plain } from "./kit.js";
import { duration } from "./time.js";

const ROWS = 24;

// The chosen node; else the chosen block; else the whole.
export function graphFacts(host, box, graph, times, at, i, act) {
  if (i < 0) { fill(box, ...wholeFacts(host, graph, times, at, act)); return; }
  const name = (k) => h("button", { type: "button", class: "lv-gr-link", "data-go": k, title: `${plain(graph.names[k])} of ${graph.block[graph.blocks[k]].title}`, onclick: () => act.choose(k) }, plain(graph.names[k]));
  const list = (all) => all.flatMap((k, j) => [j ? ", " : "", name(k)]).slice(0, 24);
  const fact = (what, ...text) => [h("dt", {}, what), h("dd", {}, ...text)];
  const m = graph.memory[i], broken = (at.breaks || []).some(([b]) => b === i), end = graph.n;
  const reads = [...list(graph.src[i]), ...(graph.stored[i].length ? [graph.src[i].length ? "; " : "", "through the cache ", ...list(graph.stored[i])] : [])];
  const weights = graph.leafs[i].map((x) => plain(x)).join(", ");
  const facts = [
    ...fact("op", h("code", {}, graph.ops[i]), graph.views[i] ? " (a view: no work)" : ""),
    ...fact("shape", h("code", {}, `[${graph.shapes[i].join(", ")}] ${graph.types[i]}`)),
    ...(times.length && !graph.views[i] ? fact("time", value(duration(1e3 * times[i]), times[i], `time_us[${i}]`)) : []),
    ...(graph.backends[i] ? fact("computed by", `${plain(graph.backends[i])}, split ${graph.splits[i]}`) : []),
    ...(reads.length ? fact("reads", ...reads) : []),
    ...(weights ? fact("and", h("code", {}, weights)) : []),
    ...fact("read by", ...(graph.readers[i].length ? list(graph.readers[i]) : [graph.caches[i] ? `the cache ${plain(graph.caches[i])} keeps it` : "no other node: it is a result"])),
    ...(m ? fact("memory", "bytes ", value(m[0].toLocaleString("en-US"), m[0], `offset[${i}]`), " to ", (m[0] + m[1]).toLocaleString("en-US"), ` (${m[1].toLocaleString("en-US")}), until `, m[2] >= end ? "after the graph" : name(m[2])) : graph.caches[i] ? fact("memory", `in ${plain(graph.caches[i])}`) : graph.views[i] ? fact("memory", "its source's") : []),
    ...(m && m[3] >= 0 ? fact("bytes before", name(m[3]), " had them") : []),
    ...(m && m[4] >= 0 ? fact("bytes after", name(m[4]), " takes them over") : []),
  ];
  fill(box, h("div", { class: "lv-gr-node" }, h("strong", {}, plain(graph.names[i])), h("span", { class: "lv-remark" }, `node ${i} · ${graph.block[graph.blocks[i]].title}`)),
    h("dl", { class: "lv-gr-facts" }, facts),
    h("div", { class: "lv-row" },
      h("button", { type: "button", class: "lv-button", "data-graph": "values", disabled: at.start < 0, title: "Go to where it was computed last and show its values (Enter, or click the node again)", onclick: () => act.openNode(i) }, "Show its values"),
      h("button", { type: "button", class: "lv-button", "data-graph": "break", "aria-pressed": String(broken), title: "Stop where a node of this name is computed (b)", onclick: () => act.breakAt({ ask: "graph_break", node: i }) }, broken ? "Take the breakpoint away" : "Break here")));
}

function wholeFacts(host, graph, times, at, act) {
  const b = act.block, total = times.reduce((a, x) => a + x, 0);
  const own = b && times.length ? times.subarray(b.first, b.first + b.count).reduce((a, x) => a + x, 0) : 0;
  const broken = b && (at.block_breaks || []).some(([k]) => k === b.index);
  const line = (...text) => h("p", { class: "lv-remark" }, ...text);
  return [
    b ? h("div", { class: "lv-gr-node" }, h("strong", {}, b.title), h("span", { class: "lv-remark" }, `${b.count} nodes${own ? `, ${duration(1e3 * own)} of ${duration(1e3 * total)}` : ""}`)) : h("h4", {}, "The whole graph"),
    line(at.reused === true ? `The graph was used again for this ubatch (${at.n_reused.toLocaleString("en-US")} so far): only its inputs are new.`
      : at.reused === false ? "The graph was built for this ubatch: its shape did not fit the one before." : "Choose a node to see its op, shape, time and memory."),
    b && b.layer >= 0 ? h("div", { class: "lv-row" }, h("button", { type: "button", class: "lv-button", "data-graph": "break-layer", "aria-pressed": String(!!broken), onclick: () => act.breakAt({ ask: "graph_break", block: b.index }) }, broken ? "Take the breakpoint away" : `Break where ${b.title} begins`)) : null,
  ];
}

// A window of the nodes around the chosen one, or the one the run stands at.
export function graphTable(host, box, graph, times, at, chosen, choose, first) {
  const middle = chosen >= 0 ? chosen : Math.max(0, at.now);
  const from = Math.max(0, Math.min(graph.n - ROWS, first === undefined ? middle - ROWS / 2 : first)), to = Math.min(graph.n, from + ROWS);
  const rows = [];
  for (let i = from; i < to; i++) {
    const m = graph.memory[i];
    rows.push(h("tr", { "aria-current": i === chosen ? "true" : undefined, "data-row": i },
      h("td", {}, i), h("th", { scope: "row" }, h("button", { type: "button", class: "lv-gr-link", onclick: () => choose(i) }, plain(graph.names[i]))),
      h("td", {}, graph.ops[i]), h("td", {}, h("code", {}, `[${graph.shapes[i].join(", ")}] ${graph.types[i]}`)), h("td", {}, graph.block[graph.blocks[i]].title),
      h("td", {}, times.length && !graph.views[i] ? value(duration(1e3 * times[i]), times[i], `time_us[${i}]`) : "–"),
      h("td", {}, m ? `${m[0].toLocaleString("en-US")} + ${m[1].toLocaleString("en-US")}` : "–"),
      h("td", {}, (at.breaks || []).some(([b]) => b === i) ? "●" : i === at.now ? "now" : i < at.done ? "done" : "")));
  }
  const page = (text, start) => h("button", { type: "button", class: "lv-button lv-small", disabled: start === from, onclick: () => graphTable(host, box, graph, times, at, chosen, choose, start) }, text);
  fill(box, h("table", {}, h("caption", {}, `nodes ${from.toLocaleString("en-US")}–${(to - 1).toLocaleString("en-US")} of ${graph.n.toLocaleString("en-US")}, in the order of computing`),
    h("thead", {}, h("tr", {}, ["#", "node", "op", "shape", "block", "time", "bytes (offset + size)", ""].map((t) => h("th", { scope: "col" }, t)))), h("tbody", {}, rows)),
    h("div", { class: "lv-pager" }, page("Earlier", Math.max(0, from - ROWS)), page("Later", Math.min(Math.max(0, graph.n - ROWS), from + ROWS))));
}
