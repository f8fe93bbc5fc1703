// Where the time goes: passes as bars, one pass divided so that its parts sum to the total.
import { h, fill, alone, card, value, percent, plain, roving } from "./kit.js";
import { TIME_STYLE } from "./time_style.js";

const DIVISIONS = [["work", "kind of work"], ["scope", "scope"], ["layer", "layer"], ["op", "op"], ["node", "node"]];
const GROUPS = [["kernel", "kernels of nodes"], ["around", "Python around them"], ["watching", "watching"]];

// Three digits and a unit, as Python's `milliseconds`.
export function duration(ns) {
  const size = Math.abs(ns), [x, unit] = size >= 1e9 ? [ns / 1e9, "s"] : size >= 1e6 ? [ns / 1e6, "ms"] : [ns / 1e3, "µs"];
  const digits = unit === "µs" ? (size >= 1e5 ? 0 : 1) : Math.abs(x) >= 100 ? 0 : Math.abs(x) >= 10 ? 1 : 2;
  return `${x.toFixed(digits).replace("-", "−")}\u202f${unit}`;
}

export function timeZone(host) {
  const { model } = host;
  const { node, head, body, remark } = card("Where does the time go?", { class: "lv-card lv-time" });
  const empty = h("p", { class: "lv-empty" });
  const chart = h("div", { class: "lv-tm-passes", role: "toolbar", "aria-label": "Passes: the prompt, then one for each token. Arrow keys move." });
  const facts = h("dl", { class: "lv-stats" });
  const bar = h("div", { class: "lv-tm-whole", "aria-hidden": "true" });
  const legend = h("div", { class: "lv-tm-legend lv-remark" });
  const by = h("div", { class: "lv-tm-by", role: "toolbar", "aria-label": "Divide by" });
  const against = h("select", { class: "lv-button lv-small", "aria-label": "Compare with", "data-lm-suppress-shortcuts": "true", onchange: () => host.set("time_against", Number(against.value)) });
  const table = h("table", { class: "lv-tm-table" });
  const more = h("button", { type: "button", class: "lv-button lv-small", onclick: () => host.set("time_rows", Math.min(2000, model.get("time_rows") + 30)) }, "Show 30 more nodes");
  const said = h("p", { class: "lv-remark lv-tm-note" });
  const shown = h("div", { class: "lv-tm-shown" }, chart, facts, bar, legend, h("div", { class: "lv-row" }, by, h("label", { class: "lv-remark" }, "against ", against)), h("div", { class: "lv-tm-scroll" }, table), more, said);
  head.append(h("style", {}, TIME_STYLE));
  body.append(shown, empty);
  const settlePasses = roving(chart, "button"), settleBy = roving(by, "button"), settleRows = roving(table, "button");
  let about = {}, open = new Set(["decode", "decode/process_ubatch", "decode/process_ubatch/graph_compute"]), looked = "";

  const share = (ns) => (about.total ? ns / about.total : 0);
  const ref = (name) => `time[${about.number}].${name}`;

  const drawChart = () => {
    const passes = model.get("time_passes") || [], tokens = passes.filter((p) => p.kind === "token");
    const most = Math.max(1, ...(tokens.length ? tokens : passes.filter((p) => p.number)).map((p) => p.total), 1);
    let last = -1;
    fill(chart, ...passes.map((p) => {
      const gap = p.number > last + 1 && last >= 0 ? h("span", { class: "lv-tm-gap", "aria-hidden": "true" }, "…") : null;
      last = p.number;
      const over = p.total > most * 1.02, high = (ns) => `height:${(100 * ns / Math.max(p.total, 1)).toFixed(2)}%`;
      const parts = [["watching", p.watching], ["around", p.total - p.kernels - p.watching], ["kernel", p.kernels]];
      return [gap, h("button", {
        type: "button", class: "lv-tm-pass" + (over ? " lv-tm-over" : ""), "data-pass": p.number, "data-value": p.total, "data-ref": `time[${p.number}].total`,
        "aria-pressed": String(p.number === about.number), "aria-label": `${plain(p.label)}: ${duration(p.total)}`,
        title: `${plain(p.label)}: ${duration(p.total)}${p.quiet ? ", measured while it was replayed" : ""}${p.whole ? "" : ", not at its end"}`,
        onclick: () => host.set("time_pass", p.number),
      }, h("span", { class: "lv-tm-column", style: `height:${Math.max(2, Math.min(100, 100 * p.total / most)).toFixed(1)}%` },
        ...parts.map(([group, ns]) => h("span", { class: `lv-tm-${group}`, style: high(ns) }))),
      h("span", { class: "lv-tm-name" }, p.kind === "start" ? "start" : p.kind === "prompt" ? "prompt" : p.number))];
    }).flat());
    settlePasses();
    const chosen = chart.querySelector("[aria-pressed=true]");
    if (chosen) chart.scrollLeft = chosen.offsetLeft - chart.clientWidth / 2;
  };

  const drawFacts = () => {
    const fact = (name, ...what) => h("div", {}, h("dt", {}, name), h("dd", {}, ...what));
    const rate = (n, ns) => (ns > 0 ? (1e9 * n) / ns : 0), t = about.tokens, n = about.n_tokens;
    const number = (x, key) => value(x >= 100 ? x.toFixed(0) : x.toFixed(1), x, ref(key));
    fill(facts,
      fact(about.whole ? "total" : "total so far", value(duration(about.total), about.total, ref("total"))),
      n ? fact("tokens a second", number(rate(n, about.total), "rate"), h("span", { class: "lv-remark" }, n > 1 ? ` (${n} tokens)` : "")) : null,
      n ? fact("without watching", number(rate(n, about.engine), "unwatched")) : null,
      fact("watching", value(percent(share(about.watching)), about.watching, ref("watching")), h("span", { class: "lv-remark" }, about.n_nodes ? ` ${about.n_seen.toLocaleString("en-US")} of ${about.n_nodes.toLocaleString("en-US")} nodes seen` : "")),
      t.n > 1 ? fact(`all ${t.n} tokens so far`, value(t.per_second.toFixed(1), t.per_second, "time.tokens.rate"), ` a second, `, value(t.unwatched.toFixed(1), t.unwatched, "time.tokens.unwatched"), " without watching") : null);
  };

  const drawWhole = () => {
    const sums = { kernel: about.kernels, around: about.engine - about.kernels, watching: about.watching };
    fill(bar, ...GROUPS.map(([group]) => h("span", { class: `lv-tm-${group}`, style: `width:${(100 * share(sums[group])).toFixed(3)}%` })));
    fill(legend, ...GROUPS.map(([group, name]) => h("span", {}, h("span", { class: `lv-swatch lv-tm-${group}` }), ` ${name} `, value(duration(sums[group]), sums[group], ref(group)), ` ${percent(share(sums[group]))}`)),
      model.get("time_by") === "layer" ? h("span", {}, h("span", { class: "lv-swatch lv-tm-kernel" }), " attention ", h("span", { class: "lv-swatch lv-tm-kernel lv-tm-second" }), " feed-forward") : null);
  };

  const drawBy = () => {
    const now = model.get("time_by");
    fill(by, h("span", { class: "lv-remark" }, "by"), ...DIVISIONS.map(([id, name]) => h("button", {
      type: "button", class: "lv-button lv-small", "data-by": id, "aria-pressed": String(id === now), onclick: () => host.set("time_by", id),
    }, name)));
    settleBy();
    const passes = (model.get("time_passes") || []).filter((p) => p.number !== about.number), chosen = String(about.against.number ?? -1);
    fill(against, h("option", { value: -1 }, "nothing"), ...passes.map((p) => h("option", { value: p.number, selected: String(p.number) === chosen }, plain(p.label))));
    against.value = chosen;
  };

  const drawTable = () => {
    const parts = model.get("time_parts") || [], has = about.against.number !== undefined, node = model.get("time_by") === "node";
    const most = Math.max(1, ...parts.map((p) => p.whole)), lines = [], path = [];
    let hidden = Infinity;
    parts.forEach((p, i) => {
      path.length = p.depth;
      path.push(p.name);
      if (p.depth > hidden) return;
      hidden = Infinity;
      const inside = i + 1 < parts.length && parts[i + 1].depth > p.depth, key = path.join("/"), is = open.has(key);
      if (inside && !is) hidden = p.depth;
      const kids = [];
      for (let k = i + 1; inside && k < parts.length && parts[k].depth > p.depth; k++) if (parts[k].depth === p.depth + 1) kids.push(parts[k]);
      const own = p.group === "kernel" && kids.length ? kids : p.kernels ? [{ group: "kernel", whole: p.kernels }, { group: "around", whole: p.whole - p.kernels }] : [p];
      const text = p.name === "layers" ? `${p.count} layers` : plain(p.name);
      const label = inside ? h("button", { type: "button", class: "lv-tm-toggle", "aria-expanded": String(is), onclick: () => { if (is) open.delete(key); else open.add(key); drawTable(); const again = [...table.querySelectorAll(".lv-tm-toggle")].find((b) => b.dataset.key === key); if (again) again.focus(); }, "data-key": key }, h("span", { "aria-hidden": "true" }, is ? "▾ " : "▸ "), text)
        : p.index >= 0 ? h("button", { type: "button", class: "lv-tm-toggle", "data-node": p.index, title: "Show it in the graph", onclick: () => look(p) }, text) : h("span", { class: "lv-tm-leaf" }, text);
      const open_ = inside && is && p.group !== "kernel";
      lines.push(h("tr", { "data-group": p.group, "data-part": p.name },
        h("th", { scope: "row", style: `padding-left:${p.depth * 1.1}em` }, label, p.op && p.op !== p.name ? h("span", { class: "lv-remark" }, ` ${p.op}`) : null),
        h("td", { class: "lv-tm-bars", "aria-hidden": "true" }, h("span", { class: "lv-tm-line", style: `width:${(100 * p.whole / most).toFixed(2)}%` }, ...own.map((k, j) => h("span", { class: `lv-tm-${k.group}${j % 2 && k.group === "kernel" ? " lv-tm-second" : ""}`, style: `width:${(100 * k.whole / Math.max(1, p.whole)).toFixed(2)}%` }))),
          has && p.against !== null ? h("span", { class: "lv-tm-line lv-tm-other", style: `width:${Math.min(100, (100 * p.against) / most).toFixed(2)}%` }) : null),
        h("td", {}, value(duration(p.whole), p.whole, ref(`${model.get("time_by")}.${p.name}`))),
        h("td", {}, percent(share(p.whole))),
        h("td", {}, open_ ? h("span", { class: "lv-remark" }, `own ${duration(p.ns)}`) : p.count > 1 && p.name !== "layers" ? h("span", { class: "lv-remark" }, p.count.toLocaleString("en-US")) : null),
        has ? h("td", {}, p.against === null ? "–" : value(duration(p.against), p.against, `time[${about.against.number}].${p.name}`)) : null));
    });
    const sum = parts.reduce((a, p) => a + p.ns, 0);
    fill(table,
      h("caption", { class: "lv-hidden" }, `Parts of ${plain(about.label)}, which sum to the total`),
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "part"), h("th", {}, ""), h("th", { scope: "col" }, "time"), h("th", { scope: "col" }, "share"), h("th", { scope: "col" }, model.get("time_by") === "scope" ? "" : "nodes"),
        has ? h("th", { scope: "col" }, `${plain(about.against.label)}, a token`) : null)),
      h("tbody", {}, ...lines),
      h("tfoot", {}, h("tr", {}, h("th", { scope: "row" }, "sum"), h("td", {}), h("td", {}, value(duration(sum), sum, ref("sum"))), h("td", {}, percent(share(sum))), h("td", { class: "lv-remark" }, sum === about.total ? "= total" : ""), has ? h("td", {}) : null)));
    settleRows();
    more.hidden = !(node && parts.some((p) => p.index < 0 && p.name.endsWith("other nodes")));
  };
  const look = async (p) => {
    const reply = await host.ask({ ask: "time_node", index: p.index });
    looked = reply.lost || reply.error ? "" : reply.value ? "" : `No panel is open: lv.show.graph(dbg, graph_selected=${p.index}) shows ${plain(p.name)} in the graph.`;
    said.textContent = looked || note();
    host.say(looked);
  };
  const note = () => (about.quiet ? "Measured while the run was replayed silently: with less watching than when it was stepped. " : "") + "One clock (perf_counter); pauses and drawing are not counted. Watching: asking who wants a node, copies, statistics, edits, conditions.";

  let spoken = "";
  const draw = () => {
    about = model.get("time_about") || {};
    const has = about.total !== undefined;
    shown.hidden = !has;
    empty.hidden = has;
    if (!has) { empty.textContent = plain(about.why || ""); remark.textContent = ""; return; }
    remark.textContent = plain(about.label) + (about.whole ? "" : ", under way");
    drawChart();
    drawFacts();
    drawWhole();
    drawBy();
    drawTable();
    said.textContent = looked || note();
    const line = `${plain(about.label)}: ${duration(about.total)}, watching ${percent(share(about.watching))}`;
    if (!host.docked && spoken && spoken !== line) host.say(line);
    spoken = line;
  };
  return { node, draw, watch: ["time_passes", "time_parts", "time_about", "time_by", "time_pass", "time_rows"] };
}

export default alone("time", "Where the time goes", timeZone);
