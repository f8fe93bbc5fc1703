// The whole pass of a recorded run: rows, strips and matrices, as flow.py draws them from the same
// numbers.
import { level, digits } from "./recorded_tensor.js";

const ABSENT = 0, NOW = 1, EARLIER = 2;
const PLACES = Array.from({ length: 4 }, () => ({ pos: -1, id: -1, text: "", state: "place" })); // of tokens, before there are any
const PHASES = [[7, "load"], [12, "prompt"], [13, "pass"], [14, "logits"], [15, "sample"], [16, "accept"]];

// The layer whose inside the page has, nearest to the wanted one.
export function flowLayer(flow, layer) {
  const there = Object.keys(flow.layers || {}).map(Number);
  return there.length ? there.reduce((a, b) => (Math.abs(b - layer) < Math.abs(a - layer) ? b : a)) : -1;
}

export function flowOf(core, words, attention, stop, { layer, head, query }) {
  const flow = core.flow, layout = flow.layers[layer], here = stop.n;
  const heads = layout.flow.n_head, chosen = Math.max(0, Math.min(head, heads - 1));
  const headOf = (c) => (c.heads && heads ? Math.floor((chosen * c.heads) / heads) : 0);
  const passes = flow.passes.filter((p) => p.n <= here), pass = passes.length ? passes[passes.length - 1] : null;
  const passNumber = pass ? pass.pass : -1, fresh = new Set(pass ? pass.pos : []), newest = Math.max(-1, ...fresh);
  const tokens = core.tokens.filter((t) => t.n <= here);
  const rows = tokens.slice(-flow.shown).map(({ pos, id, text }) => ({ pos, id, text, state: !pass || fresh.has(pos) ? "now" : pos < newest ? "cached" : "next" }));
  const n = rows.length, live = rows.map((r) => r.state !== "next");

  const kept = new Set(stop.cells), stored = rows.map((r) => kept.has(r.pos)); // a key is where a cell is

  const headFirst = (c) => layout.head_first[columns.indexOf(c)];

  // The newest row of a column for a position, -1 for none.
  const rowOf = (s, pos) => {
    if (!s.rows) return -1;
    const set = flow.sets[s.set];
    for (let i = s.rows - 1; i >= 0; i--) if (set.pos[i] === pos && s.n[set.entry[i]] <= here) return i;
    return -1;
  };
  const entriesOf = (c) => (c.op === "SOFT_MAX" ? core.attention[c.layer] || [] : flow.scores[c.id] || []).filter((b) => b.n <= here);
  const wordsOf = (c) => (c.op === "SOFT_MAX" ? attention : words);
  const passAt = (at) => { const begun = flow.passes.filter((p) => p.n <= at); return begun.length ? begun[begun.length - 1].pass : -1; };
  const doneIn = (c) => {
    if (c.kind === "matrix") { const held = entriesOf(c); return held.length > 0 && passAt(held[held.length - 1].n) === passNumber; }
    const s = flow.strips[c.id], set = s.rows ? flow.sets[s.set] : null;
    for (let i = s.rows - 1; i >= 0; i--) if (s.n[set.entry[i]] <= here) return set.pass[i] === passNumber;
    return false;
  };
  const cell = (c, q, k) => {
    const held = entriesOf(c);
    for (let e = held.length - 1; e >= 0; e--) {
      const b = held[e], i = b.q.indexOf(q), j = b.k.indexOf(k);
      if (i >= 0) return { x: j < 0 ? 0 : wordsOf(c).f[b.at + (headOf(c) * b.q.length + i) * b.k.length + j], i, j, b };
    }
    return null;
  };
  const maskAt = (q, k) => {
    if (!kept.has(k)) return NaN;
    for (let e = passes.length - 1; e >= 0; e--) {
      const p = passes[e], i = p.pos.indexOf(q);
      if (i < 0) continue;
      if (!p.k || p.mask_n > here) return NaN;
      const j = p.k.indexOf(k);
      return j < 0 ? (k > q ? -Infinity : NaN) : words.f[p.mask + i * p.k.length + j];
    }
    return NaN;
  };

  const columns = layout.flow.columns.map((c) => ({ ...c, head: headOf(c) }));
  const open = [], folded = [], scales = [], matrices = {};
  for (const c of columns) {
    if (c.kind === "matrix") {
      const m = new Float32Array(n * n).fill(NaN);
      rows.forEach((r, i) => { if (live[i]) rows.forEach((t, k) => { const found = stored[k] && cell(c, r.pos, t.pos); if (found) m[i * n + k] = found.x; }); });
      matrices[c.op] = m;
      scales.push(m.reduce((a, x) => (Number.isFinite(x) ? Math.max(a, Math.abs(x)) : a), 0));
      continue;
    }
    const s = flow.strips[c.id], bytes = new Uint8Array(n * (1 + c.bins)).fill(level(0, -1, 1));
    let most = 0;
    rows.forEach((r, i) => {
      const at = i * (1 + c.bins), from = live[i] ? rowOf(s, r.pos) : -1;
      bytes[at] = from < 0 ? ABSENT : flow.sets[s.set].pass[from] === passNumber ? NOW : EARLIER;
      if (from < 0) return;
      const line = headOf(c) * s.rows + from, high = words.f[s.high + line];
      most = Math.max(most, high);
      for (let b = 0; b < c.bins; b++) bytes[at + 1 + b] = level(high > 0 ? Math.fround(words.f[s.at + line * s.bins + b] / high) : 0, -1, 1);
    });
    (c.group === "attention" || c.group === "mlp" ? open : folded).push(bytes);
    scales.push(most);
  }
  const shut = matrices.SOFT_MAX ? Uint8Array.from({ length: n * n }, (_, i) => Number(maskAt(rows[Math.floor(i / n)].pos, rows[i % n].pos) === -Infinity)) : new Uint8Array(0);
  const scores = matrices.MUL_MAT, weights = matrices.SOFT_MAX;
  const top = scores ? scores.reduce((a, x) => (Number.isFinite(x) ? Math.max(a, Math.abs(x)) : a), 0) : 0;
  const asked = rows.findIndex((r, i) => live[i] && r.pos === query), index = asked >= 0 ? asked : Math.max(0, live.lastIndexOf(true));
  const done = columns.map((c) => Number(doneIn(c)));
  const byId = (id) => columns.findIndex((c) => c.id === id);
  let now = -1;
  if (stop.kind === 2) now = layout.owner[stop.node] >= 0 ? layout.owner[stop.node] : byId(stop.name);
  else if (stop.name.startsWith("layer-")) {
    const il = Number(stop.name.slice(6));
    now = il === layer && stop.kind === 0 ? columns.findIndex((c) => c.layer === il) : byId(`l_out-${il}`);
  }

  // The exact number under the pointer, and what stands around it.
  const value = ({ column, row, bin }) => {
    const c = columns.find((x) => x.id === column), r = rows[row], out = { column, row, bin, value: null };
    if (!c || !r || bin < 0) return out;
    if (c.kind === "matrix") {
      const key = rows[bin], found = key && live[row] && stored[bin] ? cell(c, r.pos, key.pos) : null, mask = key ? maskAt(r.pos, key.pos) : NaN;
      out.mask = Number.isNaN(mask) ? null : digits(mask);
      if (!found || found.j < 0) return out;
      return Object.assign(out, { value: digits(found.x), ref: `${c.id}[${headFirst(c) ? `${headOf(c)},${found.i}` : `${found.i},${headOf(c)}`},${found.j}]`, dtype: "float32", pass: passAt(found.b.n) });
    }
    const s = flow.strips[c.id], from = rowOf(s, r.pos);
    if (from < 0 || bin >= c.bins) return out;
    const set = flow.sets[s.set], line = headOf(c) * s.rows + from, place = line * s.bins + bin, i = set.row[from], hd = headOf(c);
    const a = Math.floor((bin * c.n) / c.bins), z = Math.floor(((bin + 1) * c.n) / c.bins), at = a + words.i[s.place + place];
    const start = c.kind === "vector" ? `${i}` : headFirst(c) ? `${hd},${i}` : `${i},${hd}`;
    return Object.assign(out, { value: digits(words.f[s.at + place]), ref: `${c.id}[${start},${at}]`, dtype: s.dtype, from: a, to: z - 1, pass: set.pass[from] });
  };

  return {
    flow: { ...layout.flow, columns, layer, head: chosen },
    flow_rows: n ? rows : PLACES,
    flow_open: joined(open), flow_folded: joined(folded),
    flow_scores: scores ? Uint8Array.from(scores, (x) => level(x, -top, top)) : new Uint8Array(0),
    flow_weights: weights ? Uint8Array.from(weights, (x) => level(Math.sqrt(x), 0, 1)) : new Uint8Array(0),
    flow_mask: shut,
    flow_row: weights && n ? weights.slice(index * n, index * n + n) : new Uint8Array(0),
    flow_at: {
      phase: (PHASES.find(([last]) => stop.step <= last) || ["", ""])[1], now, reached: done.lastIndexOf(1), done, index,
      query: n ? rows[index].pos : -1, scales, n_tokens: tokens.length, n_new: rows.filter((r) => r.state === "now").length, pass_: passNumber, planned: !passes.length && stop.step < 13, missing: false, broken: [], again: 0, why: "",
    },
    value,
  };
}

function joined(parts) {
  const out = new Uint8Array(parts.reduce((a, p) => a + p.length, 0));
  let at = 0;
  for (const p of parts) { out.set(p, at); at += p.length; }
  return out;
}
