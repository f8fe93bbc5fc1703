// Paints the strips and matrices of the flow view on one canvas, and its ribbons as SVG paths.
import { svg, colours, bytes } from "./kit.js";
import { stem, isFolded, isOpen } from "./flow_layout.js";

const WEIGHT = { light: [[246, 243, 250], [178, 150, 214], [84, 39, 143]], dark: [[34, 31, 40], [112, 82, 152], [222, 196, 255]] };
const tables = new Map();

// Violet from nothing to one: attention's own colour, in the matrix and in the ribbons.
export function weightColours(dark) {
  if (!tables.has(dark)) {
    const stops = dark ? WEIGHT.dark : WEIGHT.light, table = new Uint32Array(256);
    for (let i = 0; i < 253; i++) {
      const t = (i / 252) * 2, k = Math.min(1, Math.floor(t)), f = t - k;
      const [r, g, b] = stops[k].map((c, j) => Math.round(c * (1 - f) + stops[k + 1][j] * f));
      table[i] = (255 << 24) | (b << 16) | (g << 8) | r;
    }
    table[255] = 0;
    tables.set(dark, table);
  }
  return tables.get(dark);
}

export function gradient(table) {
  const at = (i) => { const w = table[i]; return `rgb(${w & 255} ${(w >> 8) & 255} ${(w >> 16) & 255})`; };
  return `linear-gradient(90deg, ${[0, 42, 84, 126, 168, 210, 252].map(at).join(", ")})`;
}

// The bytes of each column, cut out of what the model carries: state and values of each row. Where
// rows are low, `merge` neighbouring values become one: the strongest of them.
export function cutStrips(model, merge = 1) {
  const columns = model.get("flow").columns || [], n = (model.get("flow_rows") || []).length;
  const packs = { true: bytes(model.get("flow_open")), false: bytes(model.get("flow_folded")) }, from = { true: 0, false: 0 };
  return columns.map((c) => {
    if (c.kind === "matrix") {
      const raw = bytes(model.get(c.op === "SOFT_MAX" ? "flow_weights" : "flow_scores"));
      return { data: raw.length === n * n ? raw : null, n };
    }
    const open = isOpen(c), size = n * (1 + c.bins), start = from[open];
    from[open] += size;
    const data = packs[open].subarray(start, start + size);
    return { data: data.length !== size ? null : merge > 1 ? merged(data, n, c.bins, merge) : data, n };
  });
}

// Levels 0..252 stand around 126, zero; what is no finite number wins.
function merged(data, n, bins, merge) {
  const few = Math.ceil(bins / merge), out = new Uint8Array(n * (1 + few)), size = (b) => (b > 252 ? 999 : Math.abs(b - 126));
  for (let r = 0; r < n; r++) {
    const from = r * (1 + bins), to = r * (1 + few);
    out[to] = data[from];
    for (let k = 0; k < few; k++) {
      let best = data[from + 1 + k * merge];
      for (let j = k * merge + 1; j < Math.min(bins, (k + 1) * merge); j++) if (size(data[from + 1 + j]) > size(best)) best = data[from + 1 + j];
      out[to + 1 + k] = best;
    }
  }
  return out;
}

export function stateOf(strip, column, row) {
  return strip.data ? strip.data[row * (1 + column.bins)] : 0;
}

// Only the columns that have changed since this canvas was painted are painted again.
export function paintStage(canvas, view) {
  const { lay, columns, strips, rows, dark, ink, done, mask } = view;
  const ratio = Math.min(3, window.devicePixelRatio || 1), wide = Math.ceil(lay.width), high = Math.ceil(lay.rowsHigh);
  const frame = [lay.version, ratio, dark, ink.line, ink.soft].join();
  if (canvas.frame !== frame) {
    canvas.width = wide * ratio;
    canvas.height = high * ratio;
    Object.assign(canvas.style, { width: wide + "px", height: high + "px" });
    canvas.frame = frame;
    canvas.columns = [];
  }
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.imageSmoothingEnabled = false;
  const signed = colours(true, dark, false), weights = weightColours(dark), small = document.createElement("canvas");
  columns.forEach((c, i) => {
    const { x, w } = lay.at[i], strip = strips[i], before = canvas.columns[i];
    if (before && before.done === done[i] && same(before.data, strip.data) && (c.kind !== "matrix" || same(before.mask, mask))) return;
    canvas.columns[i] = { done: done[i], data: strip.data && strip.data.slice(), mask };
    context.clearRect(x - 0.5, 0, w + 1, high);
    if (c.kind === "matrix") paintMatrix(context, view, c, i, c.op === "SOFT_MAX" ? weights : signed, mask);
    else paintStrip(context, small, view, c, i, x, w, strip, signed, rows, ink, done);
  });
}

function same(a, b) {
  if (a === b) return true;
  if (!a || !b || a.length !== b.length) return false;
  for (let i = 0; i < a.length; i++) if (a[i] !== b[i]) return false;
  return true;
}

function paintStrip(context, small, { lay }, c, i, x, w, strip, table, rows, ink, done) {
  const { pitch, top, strip: high } = lay.sizes, n = rows.length, line = 1 + c.bins;
  if (strip.data && n) {
    small.width = 1;
    small.height = n * c.bins;
    const inner = small.getContext("2d"), image = inner.createImageData(1, n * c.bins), words = new Uint32Array(image.data.buffer);
    for (let r = 0; r < n; r++) for (let b = 0; b < c.bins; b++) words[r * c.bins + b] = table[strip.data[r * line + 1 + b]];
    inner.putImageData(image, 0, 0);
  }
  const cache = /^[KV]cur/.test(c.id);
  rows.forEach((row, r) => {
    if (row.state === "next") return;
    const y = r * pitch + top, state = stateOf(strip, c, r);
    if (state) {
      context.globalAlpha = state === 1 ? 1 : cache ? 0.75 : 0.22;
      context.drawImage(small, 0, r * c.bins, 1, c.bins, x, y, w, high);
      context.globalAlpha = 1;
    } else if ((row.state === "now" && !done[i]) || row.state === "place") {
      context.strokeStyle = ink.line;
      context.strokeRect(x + 0.5, y + 0.5, w - 1, high - 1);
    } else if (!isFolded(c)) {
      // Not needed, or of an earlier pass and no longer held.
      context.fillStyle = ink.line;
      context.fillRect(x, y + high / 2 - 0.5, w, 1);
    }
  });
}

function paintMatrix(context, view, c, i, table, mask) {
  const { lay, strips, rows, ink, done } = view, { x, w } = lay.at[i], n = rows.length, cell = w / Math.max(1, lay.keys);
  const { pitch, top, strip: high } = lay.sizes, data = strips[i].data, gap = cell > 7 ? 1 : 0;
  const scores = c.op !== "SOFT_MAX";
  rows.forEach((row, r) => {
    if (row.state === "next") return;
    const y = r * pitch + top;
    for (let k = 0; k < n; k++) {
      if (rows[k].state === "next") continue;
      const b = data ? data[r * n + k] : 255, x0 = x + k * cell, shut = mask && mask[r * n + k];
      if (b === 255) {
        if (row.state !== "place" && (row.state !== "now" || done[i])) continue;
        context.strokeStyle = ink.line;
        if (cell > 5) context.strokeRect(x0 + 0.5, y + 0.5, cell - gap - 1, high - 1);
        continue;
      }
      if (shut && !scores) continue;
      const word = table[b];
      context.globalAlpha = (row.state === "now" ? 1 : 0.28) * (shut ? 0.3 : 1);
      context.fillStyle = `rgb(${word & 255} ${(word >> 8) & 255} ${(word >> 16) & 255})`;
      context.fillRect(x0, y, cell - gap, high);
      context.globalAlpha = 1;
      if (shut && cell > 5) {
        // What the mask shuts: the score was computed, and is thrown away.
        context.strokeStyle = row.state === "now" ? ink.soft : ink.line;
        context.lineWidth = 1;
        context.beginPath();
        context.moveTo(x0 + 2, y + high - 2);
        context.lineTo(x0 + cell - gap - 2, y + 2);
        context.stroke();
      }
    }
    if (cell <= 5 && (row.state === "place" || (row.state === "now" && !done[i]))) {
      context.strokeStyle = ink.line;
      context.strokeRect(x + 0.5, y + 0.5, w - 1, high - 1);
    }
  });
}

// -- ribbons -----------------------------------------------------------------------------------

export function ribbons(view) {
  const { lay, columns, edges, rows, strips, done, index } = view;
  const { pitch, top, strip: high } = lay.sizes, out = [], f = (x) => x.toFixed(1);
  const live = rows.map((row, r) => (row.state === "now" || row.state === "place" ? r : -1)).filter((r) => r >= 0);
  const has = (c, i, r) => c.kind === "matrix" || !strips[i].data || stateOf(strips[i], c, r) !== 0 || !done[i];
  for (const [a, b] of edges) {
    const from = columns[a], to = columns[b];
    if (isFolded(from) && isFolded(to)) continue;
    const x0 = lay.at[a].x + lay.at[a].w, x1 = lay.at[b].x, base = stem(from.id), todo = done[b] ? "" : " lv-flow-todo";
    if (base === "Kcur" || base === "Vcur") continue; // fans, below
    let d = "";
    const shown = live.filter((r) => has(from, a, r) && has(to, b, r));
    if (b === a + 1) {
      for (const r of shown) {
        const y = r * pitch + top;
        let t0 = y, t1 = y + high;
        if (base === "kqv" && from.heads && to.n >= from.heads) {
          // One head's mix is one part of the joined vector.
          t0 = y + (high * from.head) / from.heads;
          t1 = y + (high * (from.head + 1)) / from.heads;
        }
        const m = (x0 + x1) / 2;
        d += `M${f(x0)} ${f(y)}C${f(m)} ${f(y)} ${f(m)} ${f(t0)} ${f(x1)} ${f(t0)}L${f(x1)} ${f(t1)}C${f(m)} ${f(t1)} ${f(m)} ${f(y + high)} ${f(x0)} ${f(y + high)}Z`;
      }
      out.push(svg("path", { class: (base === "kqv" && from.heads ? "lv-flow-band lv-flow-band-head" : "lv-flow-band") + todo, d }));
      continue;
    }
    const stream = to.label === "+", bend = Math.min(7 * lay.big, Math.max(3, (x1 - x0) / 4));
    for (const r of shown) {
      const edge = stream ? r * pitch + top : r * pitch + top + high;
      const lane = stream ? edge - top * 0.55 : edge + top * 0.5, inner = stream ? edge + 3 : edge - 3;
      d += `M${f(x0)} ${f(inner)}Q${f(x0 + bend * 0.6)} ${f(lane)} ${f(x0 + bend)} ${f(lane)}L${f(x1 - bend)} ${f(lane)}Q${f(x1 - bend * 0.6)} ${f(lane)} ${f(x1)} ${f(inner)}`;
    }
    out.push(svg("path", { class: "lv-flow-lane" + (stream ? " lv-flow-lane-stream" : "") + todo, d, "stroke-width": stream ? Math.max(1.2, top * 0.36) : Math.max(0.8, top * 0.2), style: rows.length > 10 && done[b] ? "opacity:0.4" : "" }));
  }
  if (rows.length) out.push(...fans(view, index));
  return out;
}

const curve = (x0, y0, x1, y1) => `M${x0.toFixed(1)} ${y0.toFixed(1)}C${((x0 + x1) / 2).toFixed(1)} ${y0.toFixed(1)} ${((x0 + x1) / 2).toFixed(1)} ${y1.toFixed(1)} ${x1.toFixed(1)} ${y1.toFixed(1)}`;

// Keys to the query's scores, and values to its mix as thick as the softmax says.
function fans({ lay, columns, edges, rows, strips, done }, index) {
  const { pitch, top, strip: high } = lay.sizes, mid = (r) => r * pitch + top + high / 2, out = [];
  const soft = columns.findIndex((c) => c.op === "SOFT_MAX" && c.kind === "matrix");
  const weight = soft >= 0 && strips[soft].data ? (r, k) => { const b = strips[soft].data[r * rows.length + k]; return b > 252 ? NaN : (b / 252) ** 2; } : null;
  for (const [a, b] of edges) {
    const from = stem(columns[a].id), x0 = lay.at[a].x + lay.at[a].w, x1 = lay.at[b].x;
    if (from === "Kcur") {
      let d = "";
      rows.forEach((row, k) => { if (row.state !== "next" && k <= index) d += curve(x0, mid(k), x1, mid(index)); });
      out.push(svg("path", { class: "lv-flow-lane" + (done[b] ? "" : " lv-flow-todo"), d, "stroke-width": 1, style: done[b] ? `opacity:${Math.min(0.5, 4 / (index + 1) + 0.06).toFixed(2)}` : "" }));
    }
    if (from === "Vcur") {
      if (!weight || !done[soft]) {
        let d = "";
        rows.forEach((row, k) => { if (row.state !== "next" && k <= index) d += curve(x0, mid(k), x1, mid(index)); });
        out.push(svg("path", { class: "lv-flow-lane lv-flow-todo", d, "stroke-width": 1 }));
        continue;
      }
      const most = Math.min(high * 0.8, 22 * lay.big), faint = ["", "", "", ""];
      rows.forEach((row, r) => {
        if (r === index || row.state !== "now") return;
        for (let k = 0; k <= r; k++) {
          const w = weight(r, k);
          if (w > 0.02) faint[Math.min(3, Math.floor(w * 4))] += curve(x0, mid(k), x1, mid(r));
        }
      });
      faint.forEach((d, k) => d && out.push(svg("path", { class: "lv-flow-fan", d, "stroke-width": 0.6 + most * 0.22 * (k + 0.5), "stroke-opacity": 0.07 })));
      for (let k = 0; k < rows.length; k++) {
        const w = weight(index, k);
        if (w > 0.002) out.push(svg("path", { class: "lv-flow-fan", d: curve(x0, mid(k), x1, mid(index)), "stroke-width": (0.8 + w * most).toFixed(2), "stroke-opacity": (0.35 + 0.45 * Math.sqrt(w)).toFixed(3) }));
      }
    }
  }
  return out;
}
