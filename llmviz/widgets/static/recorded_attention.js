// Attention of a recorded run: one head's matrix, a row of it, and the overview of all heads, as
// attention.py puts them together from the same blocks.
import { level, digits } from "./recorded_tensor.js";

const SHOWN = 24; // tokens on each axis

export function attentionOf(core, words, here, { layer, head, query, key }) {
  const upTo = (il) => (core.attention[il] || []).filter((b) => b.n <= here);
  const layers = Object.keys(core.attention).map(Number).filter((il) => upTo(il).length).sort((a, b) => a - b);
  const blocks = upTo(layer), nHead = blocks.length ? blocks[blocks.length - 1].heads : 0;
  const used = nHead ? Math.min(head, nHead - 1) : head;
  const last = Math.max(-1, ...blocks.flatMap((b) => b.q));
  const axis = core.tokens.filter((t) => t.n <= here && t.pos <= last).slice(-SHOWN), n = axis.length;
  const out = {
    layers, n_layer: core.n_layer, n_head: nHead, axis: axis.map(({ pos, id, text }) => ({ pos, id, text: [...text].slice(0, 40).join("") })),
    attention: new Uint8Array(0), row: new Uint8Array(0), attention_about: { total: last + 1, dropped: core.dropped },
    overview: new Uint8Array(0), overview_about: {}, head: used, weight: () => ({ value: null }),
  };
  if (!n || !nHead) return out;
  const where = new Map(axis.map((t, i) => [t.pos, i])), matrix = new Float32Array(n * n).fill(NaN);
  for (const b of blocks) {
    b.q.forEach((q, i) => {
      if (!where.has(q)) return;
      b.k.forEach((k, j) => {
        if (k <= q && where.has(k)) matrix[where.get(q) * n + where.get(k)] = words.f[b.at + (used * b.q.length + i) * b.k.length + j];
      });
    });
  }
  const index = where.has(query) ? where.get(query) : n - 1, chosen = axis[index].pos;
  out.attention = Uint8Array.from(matrix, (w) => level(Math.sqrt(w), 0, 1));
  out.row = matrix.slice(index * n, index * n + n);
  Object.assign(out.attention_about, { first: axis[0].pos, query: chosen, index, node: `kq_soft_max-${layer}` });
  out.weight = (i, j) => {
    const w = i >= 0 && j >= 0 && i < n && j < n ? matrix[i * n + j] : NaN;
    return { row: i, column: j, value: Number.isNaN(w) ? null : digits(w), ref: Number.isNaN(w) ? undefined : `kq_soft_max-${layer}[${used},pos ${axis[i].pos},pos ${axis[j].pos}]` };
  };
  overview(out, core, words, upTo, chosen, key);
  return out;
}

// How much each head of each layer looks at the chosen key, from the chosen query.
function overview(out, core, words, upTo, query, key) {
  const held = out.layers.map((il) => [il, upTo(il)]);
  const columns = Math.max(0, ...held.map(([, blocks]) => blocks[blocks.length - 1].heads));
  const all = new Float32Array(core.n_layer * columns).fill(NaN);
  let best = [];
  for (const [il, blocks] of held) {
    const b = [...blocks].reverse().find((x) => x.q.includes(query));
    if (!b) continue;
    const i = b.q.indexOf(query), seen = b.k.map((k, j) => j).filter((j) => (key >= 0 ? key <= query && b.k[j] === key : b.k[j] > 0 && b.k[j] <= query));
    if (!seen.length) continue;
    for (let h = 0; h < b.heads; h++) {
      const most = Math.max(...seen.map((j) => words.f[b.at + (h * b.q.length + i) * b.k.length + j]));
      all[il * columns + h] = most;
      if (!best.length || most > best[2]) best = [il, h, most];
    }
  }
  out.overview = all;
  out.overview_about = { query, key, best, n_head: columns };
}
