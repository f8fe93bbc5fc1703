// Attention of a recorded run: one head's matrix, a row of it, and the overview of all heads, as
// attention.py puts them together from the same blocks.
import { level, digits, ends } from "./recorded_tensor.js";

const SHOWN = 24; // tokens on each axis
const HELD = 0, NOT_YET = 1, DROPPED = 2, NONE = 3;

export function attentionOf(core, words, flowWords, stop, own) {
  const { layer, head, query, key, measure, stage } = own;
  const here = stop.n, upTo = (il) => (core.attention[il] || []).filter((b) => b.n <= here);
  const layers = Object.keys(core.attention).map(Number).filter((il) => upTo(il).length).sort((a, b) => a - b);
  const blocks = upTo(layer), nHead = blocks.length ? blocks[blocks.length - 1].heads : 0;
  const used = nHead ? Math.min(head, nHead - 1) : head;
  // Scores come before the softmax: their newest rows may have no weights yet.
  const scored = stage === "softmax" ? [] : ((core.flow.scores || {})[(core.entering[layer] || {}).scores] || []).filter((b) => b.n <= here);
  const last = Math.max(-1, ...[...blocks, ...scored].flatMap((b) => b.q));
  const axis = core.tokens.filter((t) => t.n <= here && t.pos <= last).slice(-SHOWN), n = axis.length;
  const out = {
    layers, n_layer: core.n_layer, n_head: nHead, axis: axis.map(({ pos, id, text }) => ({ pos, id, text: [...text].slice(0, 40).join("") })),
    attention: new Uint8Array(0), row: new Uint8Array(0), shut: new Uint8Array(0), attention_about: { total: last + 1, dropped: core.dropped, stage: "softmax" },
    overview: new Uint8Array(0), overview_about: {}, head: used, weight: (i, j) => ({ row: i, column: j, value: null }),
  };
  if (!n || !nHead) return Object.assign(out, { attention_about: { ...out.attention_about, stage } });
  const where = new Map(axis.map((t, i) => [t.pos, i])), matrix = new Float32Array(n * n).fill(NaN), sums = Array(n).fill(null);
  for (const b of blocks) {
    b.q.forEach((q, i) => {
      if (!where.has(q)) return;
      const line = words.f.subarray(b.at + (used * b.q.length + i) * b.k.length, b.at + (used * b.q.length + i + 1) * b.k.length);
      sums[where.get(q)] = line.reduce((a, w) => a + w, 0);
      b.k.forEach((k, j) => { if (k <= q && where.has(k)) matrix[where.get(q) * n + where.get(k)] = line[j]; });
    });
  }
  const index = where.has(query) ? where.get(query) : n - 1, chosen = axis[index].pos;
  out.attention = Uint8Array.from(matrix, (w) => level(Math.sqrt(w), 0, 1));
  out.row = matrix.slice(index * n, index * n + n);
  Object.assign(out.attention_about, {
    first: axis[0].pos, query: chosen, index, node: `kq_soft_max-${layer}`, scale: null, sinks: core.sinks.includes(layer), missing: 0, can_fetch: false, why: "", sums,
  });
  out.weight = (i, j) => {
    const w = i >= 0 && j >= 0 && i < n && j < n ? matrix[i * n + j] : NaN;
    if (Number.isNaN(w)) return { row: i, column: j, value: null };
    return { row: i, column: j, value: digits(w), ref: `kq_soft_max-${layer}[${used},pos ${axis[i].pos},pos ${axis[j].pos}]`, sum: sums[i] };
  };
  overview(out, core, words, upTo, stop, chosen, key, measure);
  return stage === "softmax" ? out : entering(out, core, flowWords, stop, own, used, index);
}

// What enters the softmax: the scores as they were kept, and what scale and mask make of them.
function entering(out, core, words, stop, { layer, stage }, head, index) {
  const how = core.entering[layer] || {}, axis = out.axis, n = axis.length, masked = stage === "masked";
  const where = new Map(axis.map((t, i) => [t.pos, i])), raw = new Float32Array(n * n).fill(NaN), mask = new Float32Array(n * n).fill(NaN);
  for (const b of ((core.flow.scores || {})[how.scores] || []).filter((x) => x.n <= stop.n)) {
    const p = core.flow.passes.find((x) => x.pass === b.pass);
    b.q.forEach((q, i) => b.k.forEach((k, j) => {
      if (!where.has(q) || !where.has(k)) return;
      const at = where.get(q) * n + where.get(k), line = p.pos.indexOf(q);
      raw[at] = words.f[b.at + (head * b.q.length + i) * b.k.length + j];
      if (p.k && line >= 0 && p.k.includes(k)) mask[at] = words.f[p.mask + line * p.k.length + p.k.indexOf(k)];
    }));
  }
  const missing = axis.filter((t, i) => raw.subarray(i * n, i * n + n).every(Number.isNaN)).length;
  const size = [...raw].filter(Number.isFinite).map(Math.abs), times = masked && how.scale !== null ? Math.abs(how.scale) : 1;
  const high = ends([...size, ...size.map((x) => -x)])[1] * times || 1, known = !masked || how.scale !== null;
  const values = !masked ? raw : raw.map((x, i) => Math.fround(Math.fround(x * Math.fround(how.scale)) + mask[i]));
  out.attention = known ? Uint8Array.from(values, (x) => level(x, -high, high)) : new Uint8Array(0);
  out.shut = known ? Uint8Array.from(mask, (m) => Number(m === -Infinity)) : out.shut;
  out.row = known ? values.slice(index * n, index * n + n) : new Uint8Array(0);
  const node = masked ? how.masked : how.scores;
  const why = !known ? "the scale is not known here: a saved run does not tell it" : missing ? `${node} was not kept, and this run cannot go back to it` : "";
  out.attention_about = { ...out.attention_about, stage, node, scale: how.scale, missing, high, why };
  delete out.attention_about.sums;
  out.weight = (i, j) => {
    const cell = { row: i, column: j, value: null }, at = i * n + j;
    if (!known || i < 0 || j < 0 || i >= n || j >= n || Number.isNaN(values[at])) return cell;
    const place = `[${head},pos ${axis[i].pos},pos ${axis[j].pos}]`;
    return { ...cell, value: digits(values[at]), ref: masked ? node.replace(how.scores, how.scores + place) : node + place, raw: digits(raw[at]), raw_ref: how.scores + place, mask: Number.isNaN(mask[at]) ? null : digits(mask[at]) };
  };
  return out;
}

// Largest weight of each head on the keys that are meant; null where there is none of them.
function looks(b, words, query, key) {
  const i = b.q.indexOf(query);
  const seen = b.k.map((k, j) => j).filter((j) => (key >= 0 ? key <= query && b.k[j] === key : b.k[j] > 0 && b.k[j] <= query));
  if (!seen.length) return null;
  return Array.from({ length: b.heads }, (_, h) => Math.max(...seen.map((j) => words.f[b.at + (h * b.q.length + i) * b.k.length + j])));
}

// Which cells a head of some kind would look at.
const HITS = {
  previous: (q, k) => k >= 0 && k === q - 1,
  first: (q, k) => k === 0 && q > 0,
  induction: (q, k, id) => k > 0 && k < q && id(k - 1) === id(q),
};

// Average weight of each head on them, over the queries that have one; from all blocks so far.
function average(blocks, words, hit, id) {
  let count = 0;
  const heads = blocks[blocks.length - 1].heads, total = Array(heads).fill(0);
  for (const b of blocks) {
    b.q.forEach((q, i) => {
      const cells = b.k.map((k, j) => j).filter((j) => hit(q, b.k[j], id));
      if (!cells.length) return;
      count++;
      for (let h = 0; h < heads; h++) for (const j of cells) total[h] += words.f[b.at + (h * b.q.length + i) * b.k.length + j];
    });
  }
  return { count, line: count ? total.map((t) => t / count) : null };
}

// What the measure says of each head of each layer.
function overview(out, core, words, upTo, stop, query, key, measure) {
  const held = core.with_attention.map((il) => [il, upTo(il)]), pair = measure === "pair";
  const columns = Math.max(0, ...held.map(([, blocks]) => (blocks.length ? blocks[blocks.length - 1].heads : 0)));
  const all = new Float32Array(core.n_layer * columns).fill(NaN), states = Array(core.n_layer).fill(NONE), counts = Array(core.n_layer).fill(0);
  // Only a pass that is under way can lack layers.
  const begun = stop.ubatch >= 0 && held.some(([, blocks]) => blocks.some((b) => b.n > stop.ubatch && b.q.includes(query)));
  const reached = begun && stop.unfinished >= 0 ? stop.unfinished : Infinity;
  const id = (pos) => { const t = core.tokens.find((x) => x.pos === pos && x.n <= stop.n); return t ? t.id : -1 - pos; };
  let best = [];
  for (const [il, blocks] of held) {
    states[il] = il >= reached ? NOT_YET : DROPPED;
    const b = pair ? [...blocks].reverse().find((x) => x.q.includes(query)) : blocks[blocks.length - 1];
    if (!b) continue;
    states[il] = HELD;
    const found = pair ? { line: looks(b, words, query, key), count: 0 } : average(blocks, words, HITS[measure], id);
    counts[il] = found.count;
    (found.line || []).forEach((w, h) => {
      all[il * columns + h] = w;
      if (!best.length || all[il * columns + h] > best[2]) best = [il, h, all[il * columns + h]];
    });
  }
  out.overview = all;
  out.overview_about = { query, key, best, n_head: columns, measure, states, counts, can_fill: false, dropped: core.dropped_text };
}
