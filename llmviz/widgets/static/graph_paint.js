// Paints the graph on a canvas, with less detail the smaller it is: first the labels go, then the
// edges, then the shapes of nodes. Paths are made once for each drawing and used for every layer.
import { inner, between, rectOf } from "./graph_world.js";

// What an op does, in few kinds: colour and a letter, so that colour is never alone.
export const KINDS = [
  ["matrix product", "seq-0", /^(MUL_MAT|MUL_MAT_ID|OUT_PROD|FLASH_ATTN_EXT)$/],
  ["softmax", "seq-1", /^(SOFT_MAX)$/],
  ["norm, gate, sum", "seq-2", /^(RMS_NORM|NORM|L2_NORM|GROUP_NORM|MUL|ADD|SUB|DIV|GLU|UNARY|SCALE|CLAMP|SQR|SQRT|SUM_ROWS|ADD_ID)$/],
  ["rotation", "seq-3", /^(ROPE)$/],
  ["rows, copies", "seq-4", /^(GET_ROWS|SET_ROWS|CPY|CONT|CONCAT|DUP)$/],
  ["another", "seq-5", /./],
];

export function kindOf(op) {
  return KINDS.findIndex(([, , test]) => test.test(op));
}

function rounded(path, x, y, w, h, r) {
  path.moveTo(x + r, y);
  path.arcTo(x + w, y, x + w, y + h, r);
  path.arcTo(x + w, y + h, x, y + h, r);
  path.arcTo(x, y + h, x, y, r);
  path.arcTo(x, y, x + w, y, r);
  path.closePath();
}

// A way with soft corners; straight between neighbours in a rank.
function way(path, points) {
  path.moveTo(...points[0]);
  for (let k = 1; k < points.length; k++) {
    const [ax, ay] = points[k - 1], [bx, by] = points[k];
    if (Math.abs(ay - by) < 0.6 || Math.abs(ax - bx) < 0.6) path.lineTo(bx, by);
    else path.bezierCurveTo((ax + bx) / 2, ay, (ax + bx) / 2, by, bx, by);
  }
}

// Paths of one drawing: edges, edges through the cache, nodes of each kind, dots.
function pathsOf(graph, drawing) {
  if (drawing.paths) return drawing.paths;
  const block = graph.block.find((b) => b.drawing === drawing), edges = new Path2D(), cached = new Path2D(), dots = new Path2D();
  const kinds = KINDS.map(() => new Path2D()), blunt = KINDS.map(() => new Path2D()), single = [];
  for (const [a, b, points] of drawing.routes) {
    const source = a < 0 ? block.ports[-1 - a] : block.first + a;
    way(graph.stored[block.first + b].includes(source) ? cached : edges, points);
  }
  drawing.boxes.forEach(([x, y, w, h], i) => {
    if (drawing.small[i]) { dots.moveTo(x + w, y + h / 2); dots.arc(x + w / 2, y + h / 2, w / 2, 0, 7); return; }
    const kind = kindOf(graph.ops[block.first + i]);
    rounded(kinds[kind], x, y, w, h, 6);
    rounded((single[i] = new Path2D()), x, y, w, h, 6);
    blunt[kind].rect(x, y, w, h);
  });
  return (drawing.paths = { edges, cached, dots, kinds, blunt, single });
}

// Colours of the theme, read once per drawing of the view.
export function palette(root) {
  const style = getComputedStyle(root), read = (name) => style.getPropertyValue(name).trim();
  const probe = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const solid = (text) => {
    probe.clearRect(0, 0, 1, 1);
    probe.fillStyle = "#888";
    probe.fillStyle = text;
    probe.fillRect(0, 0, 1, 1);
    return [...probe.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const holder = document.createElement("span");
  root.append(holder);
  const resolved = (name) => { holder.style.color = `var(${name})`; return solid(getComputedStyle(holder).color); };
  const background = resolved("--lv-bg"), mix = (a, share) => `rgb(${a.map((c, i) => Math.round(c * share + background[i] * (1 - share))).join(" ")})`;
  const fg = resolved("--lv-fg");
  const kinds = KINDS.map(([, name]) => resolved(`--lv-${name}`));
  const out = {
    bg: mix(background, 1), fg: mix(fg, 1), soft: mix(fg, 0.68), line: mix(fg, 0.2), edge: mix(fg, 0.42), raised: mix(fg, 0.045), lane: mix(fg, 0.06),
    now: mix(resolved("--lv-now"), 1), nowSoft: mix(resolved("--lv-now"), 0.16), danger: mix(resolved("--lv-danger"), 1),
    full: kinds.map((c) => mix(c, 0.5)), pale: kinds.map((c) => mix(c, 0.2)), rim: kinds.map((c) => mix(c, 1)), font: read("font-family") || "sans-serif",
  };
  holder.remove();
  return out;
}

const widths = new Map();

// A text cut to a width, at the canvas's font.
function cut(context, text, room, size) {
  const key = `${size}|${text}`;
  let whole = widths.get(key);
  if (whole === undefined) {
    if (widths.size > 20000) widths.clear();
    widths.set(key, (whole = context.measureText(text).width));
  }
  if (whole <= room) return text;
  const keep = Math.floor((text.length * (room - size * 0.8)) / whole);
  return keep < 3 ? "" : text.slice(0, keep) + "…";
}

// Draws everything. `view`: {s, x, y} of the world on the canvas; `at`: what the run knows.
export function paintGraph(context, graph, world, open, view, look) {
  const { width, height, ratio, colours: c, big } = look, { s } = view, letter = 13 * big;
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.fillStyle = c.bg;
  context.fillRect(0, 0, width, height);
  const left = -view.x / s, top = -view.y / s, right = left + width / s, bottom = top + height / s;
  const seen = ([x, y, w, h]) => x < right && x + w > left && y < bottom && y + h > top;
  const plain = (x, y, w, h) => [x * s + view.x, y * s + view.y, w * s, h * s];
  const text = (words, x, y, room, colour, size = letter, weight = "") => {
    context.font = `${weight} ${size}px ${c.font}`;
    const shown = cut(context, words, room, size + (weight ? 0.5 : 0));
    if (!shown) return;
    context.fillStyle = colour;
    context.fillText(shown, x, y);
  };
  // The whole title where there is room, else without the devices.
  const titled = (b, room) => {
    context.font = ` ${letter}px ${c.font}`;
    return context.measureText(b.title).width <= room ? b.title : b.title.split(" on ")[0];
  };
  context.textBaseline = "middle";
  context.lineJoin = "round";

  // From block to block.
  context.setTransform(ratio * s, 0, 0, ratio * s, ratio * view.x, ratio * view.y);
  context.lineWidth = Math.max(1.6, 1.2 / s);
  context.strokeStyle = c.edge;
  const stream = new Path2D(), heads = [];
  for (let k = 1; k < graph.block.length; k++) {
    const points = between(world.rects[k - 1], world.rects[k]);
    stream.moveTo(...points[0]);
    for (const p of points.slice(1)) stream.lineTo(...p);
    heads.push(points.at(-1));
  }
  context.stroke(stream);
  context.fillStyle = c.edge;
  context.beginPath();
  for (const [x, y] of heads) { context.moveTo(x, y); context.lineTo(x - 9, y - 5); context.lineTo(x - 9, y + 5); context.closePath(); }
  context.fill();

  for (const b of graph.block) {
    const rect = world.rects[b.index];
    if (!seen(rect)) continue;
    if (open.has(b.index)) openBlock(b, rect);
    else foldedBlock(b, rect);
  }

  function foldedBlock(b, rect) {
    const [x, y, w, h] = plain(...rect), { at, times } = look, end = b.first + b.count;
    const done = at.done >= end, now = at.now >= b.first && at.now < end, part = Math.max(0, Math.min(1, (at.done - b.first) / b.count));
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.beginPath();
    rounded(context, x, y, w, h, Math.min(7, 6 * s));
    context.fillStyle = c.raised;
    context.fill();
    if (part > 0 && !done) { context.save(); context.clip(); context.fillStyle = c.nowSoft; context.fillRect(x, y, w * part, h); context.restore(); }
    context.lineWidth = now ? 2 : 1;
    context.strokeStyle = now ? c.now : done ? c.edge : c.line;
    context.stroke();
    const spent = look.blockTimes[b.index], bar = 4 * Math.max(1, s);
    if (spent && h > 12) { context.fillStyle = c.rim[0]; context.fillRect(x + 4, y + h - bar - 3, Math.max(1, (w - 8) * spent / look.mostBlock), bar); }
    const found = look.found.get(b.index), broken = look.blockBreaks.get(b.index);
    if (w > 26 && h > letter) {
      const label = w > 62 * big ? titled(b, w - 12) : b.layer >= 0 ? String(b.layer) : b.title.slice(0, 3);
      const tall = h > 2.6 * letter;
      text(label, x + 7 + (broken === undefined ? 0 : letter * 0.8), y + (tall ? 0.32 * h : h / 2 - 2), w - 12, c.fg, letter);
      if (tall) text(spent ? look.words(spent) : `${b.count} nodes`, x + 7, y + 0.62 * h, w - 12, c.soft, letter);
    }
    if (found) ring([x, y, w, h], c.now, 2, [2, 2], 3);
    if (broken !== undefined) mark(x + 9, y + (h > 2.6 * letter ? 0.32 * h : h / 2), Math.max(3, 4.5 * big), broken);
    if (look.focused && look.block === b.index && look.node < 0) ring([x, y, w, h], c.fg, 2, []);
  }

  function openBlock(b, rect) {
    const { at, times } = look, d = b.drawing, paths = pathsOf(graph, d), [ox, oy] = inner(world, b.index), end = b.first + b.count;
    const [x, y, w, h] = plain(...rect);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.beginPath();
    rounded(context, x, y, w, h, 8);
    context.fillStyle = c.raised;
    context.fill();
    context.lineWidth = 1;
    context.strokeStyle = at.now >= b.first && at.now < end ? c.now : c.line;
    context.stroke();
    if (look.focused && look.block === b.index && look.node < 0) ring([x, y, w, h], c.fg, 2, []);
    const broken = look.blockBreaks.get(b.index), head = y + Math.max(17 * s, Math.min(world.head * s - 0.6 * letter, 0.7 * letter));
    if (world.head * s > letter && w > 130 * big) {
      const spent = look.blockTimes[b.index], indent = broken === undefined ? 0 : letter;
      text(`▾ ${b.title}`, x + 10 + indent, head, w - 20, c.fg, letter, "600");
      const from = 20 + indent + Math.max(95 * big, context.measureText(`▾ ${b.title}`).width);
      if (w - from > 130 * big) text(`${b.count} nodes${spent ? `, ${look.words(spent)}` : ""}`, x + from, head, w - from - 15, c.soft, letter);
    } else if (w > 20 && world.head * s > letter * 0.9) text(w > 60 * big || b.layer < 0 ? b.title : String(b.layer), x + 4 + (broken === undefined ? 0 : letter), head, w - 6, c.fg, letter);
    if (broken !== undefined) mark(x + 10, head, 4.5 * big, broken);

    context.setTransform(ratio * s, 0, 0, ratio * s, ratio * (view.x + ox * s), ratio * (view.y + oy * s));
    if (s > 0.12) {
      context.fillStyle = c.lane;
      d.lanes.forEach(([lx, ly, lw, lh]) => { context.beginPath(); rounded(context, lx, ly, lw, lh, 8); context.fill(); });
      context.lineWidth = Math.max(1.1, 1 / s);
      context.strokeStyle = c.edge;
      context.stroke(paths.edges);
      context.setLineDash([6, 4]);
      context.stroke(paths.cached);
      context.setLineDash([]);
    } else if (s > 0.05) {
      context.lineWidth = 0.7 / s;
      context.strokeStyle = c.line;
      context.stroke(paths.edges);
    }
    const shapes = s > 0.18 ? paths.kinds : paths.blunt;
    const fillOne = (i, [nx, ny, nw, nh]) => (s > 0.18 ? context.fill(paths.single[i]) : context.fillRect(nx, ny, nw, nh));
    if (look.colour === "time" && times.length) {
      d.boxes.forEach((box, i) => {
        if (d.small[i]) return;
        context.fillStyle = look.heat(times[b.first + i]);
        fillOne(i, box);
      });
    } else if (at.done <= b.first || at.done >= end) {
      KINDS.forEach((_, k) => { context.fillStyle = (at.done >= end ? c.full : c.pale)[k]; context.fill(shapes[k]); });
    } else {
      d.boxes.forEach((box, i) => {
        if (d.small[i]) return;
        context.fillStyle = (b.first + i < at.done ? c.full : c.pale)[kindOf(graph.ops[b.first + i])];
        fillOne(i, box);
      });
    }
    if (s > 0.18) {
      context.lineWidth = Math.max(1, 1 / s);
      KINDS.forEach((_, k) => { context.strokeStyle = look.colour === "time" ? c.line : c.rim[k]; context.stroke(paths.kinds[k]); });
      context.strokeStyle = c.edge;
      context.fillStyle = c.bg;
      context.fill(paths.dots);
      context.stroke(paths.dots);
    }
    if (s > 0.3) labels(b, d, ox, oy, h);
  }

  function labels(b, d, ox, oy) {
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    const size = Math.max(letter, Math.min(letter * 1.6, letter * s));
    d.lanes.forEach(([lx, ly], k) => { if (b.lanes.length > 1 && b.lanes[k]) text(b.lanes[k], (ox + lx) * s + view.x + 6, (oy + ly) * s + view.y + size * 0.7, 200 * big, c.soft, letter); });
    d.boxes.forEach((box, i) => {
      if (d.small[i]) return;
      const n = b.first + i, [x, y, w, h] = plain(ox + box[0], oy + box[1], box[2], box[3]);
      if (x > width || x + w < 0 || y > height || y + h < 0 || w < 2.2 * size) return;
      const two = h > 2.1 * size, lines = two && s < 0.95 ? halves(graph.stems[n], w - 9, size) : null, ink = look.colour === "time" && look.times.length ? look.ink(look.times[n]) : c.fg;
      if (lines) { text(lines[0], x + 5, y + h / 2 - 0.55 * size, w - 8, ink, size); text(lines[1], x + 5, y + h / 2 + 0.55 * size, w - 8, ink, size); return; }
      text(graph.stems[n], x + 5, y + (two ? 0.31 * h : h / 2), w - 9, ink, size);
      if (two && fits(look.second(n), w - 8, size)) text(look.second(n), x + 5, y + 0.7 * h, w - 8, look.colour === "time" && look.times.length ? ink : c.soft, size);
    });
  }

  function fits(words, room, size) {
    context.font = ` ${size}px ${c.font}`;
    return cut(context, words, room, size) === words;
  }

  // A name that is too long for its box, on two lines; null where it fits on one.
  function halves(name, room, size) {
    if (fits(name, room, size)) return null;
    const at_ = [...name].map((ch, i) => (ch === "_" || ch === " " ? i + 1 : 0)).filter((i) => i > 0 && i < name.length);
    const best = at_.sort((a, b) => Math.abs(a - name.length / 2) - Math.abs(b - name.length / 2))[0];
    return best ? [name.slice(0, best), name.slice(best)] : null;
  }

  function mark(x, y, r, enabled) {
    context.beginPath();
    context.arc(x, y, r, 0, 7);
    context.lineWidth = 2;
    context.strokeStyle = c.danger;
    context.fillStyle = enabled ? c.danger : c.bg;
    context.fill();
    context.stroke();
  }

  function ring([x, y, w, h], colour, wide, dash, off = 2) {
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.beginPath();
    rounded(context, x - off, y - off, Math.max(w, 4) + 2 * off, Math.max(h, 4) + 2 * off, 7);
    context.setLineDash(dash);
    context.lineWidth = wide;
    context.strokeStyle = colour;
    context.stroke();
    context.setLineDash([]);
  }

  // What stands out: data of the chosen node, nodes that were found, breakpoints, the node of now.
  const place = (i) => plain(...rectOf(graph, world, open, i));
  const isDot = (i) => open.has(graph.blocks[i]) && graph.views[i];
  if (look.node >= 0) {
    context.setTransform(ratio * s, 0, 0, ratio * s, ratio * view.x, ratio * view.y);
    context.strokeStyle = c.now;
    context.lineWidth = Math.max(2.4, 2 / s);
    const lines = new Path2D();
    const link = (from, to) => {
      const block = graph.block[graph.blocks[to]];
      if (graph.blocks[from] === graph.blocks[to] && open.has(block.index)) {
        const route = block.drawing.routes.find(([a, b]) => a === from - block.first && b === to - block.first);
        if (route) { const [ox, oy] = inner(world, block.index); way(lines, route[2].map(([x, y]) => [x + ox, y + oy])); return; }
      }
      const a = rectOf(graph, world, open, from), b = rectOf(graph, world, open, to);
      lines.moveTo(a[0] + a[2], a[1] + a[3] / 2);
      lines.bezierCurveTo(a[0] + a[2] + 40, a[1] + a[3] / 2, b[0] - 40, b[1] + b[3] / 2, b[0], b[1] + b[3] / 2);
    };
    for (const from of [...graph.src[look.node], ...graph.stored[look.node]]) link(from, look.node);
    for (const to of graph.readers[look.node].slice(0, 40)) link(look.node, to);
    context.stroke(lines);
    const memory = graph.memory[look.node];
    for (const other of memory ? [memory[3], memory[4]] : []) if (other >= 0) ring(place(other), c.soft, 2, [4, 3]);
    ring(place(look.node), c.fg, 2.5, []);
  }
  for (const i of look.matches) if (open.has(graph.blocks[i])) ring(place(i), c.now, 2, [2, 2], 3);
  for (const [i, enabled] of look.breaks) {
    const [x, y, w, h] = place(i);
    if (!open.has(graph.blocks[i])) { if (look.blockBreaks.get(graph.blocks[i]) === undefined) { context.setTransform(ratio, 0, 0, ratio, 0, 0); mark(x + w - 9, y + 9, Math.max(3, 3.5 * big), enabled); } continue; }
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    mark(isDot(i) ? x + w / 2 : x, isDot(i) ? y + h / 2 : y, Math.max(2.5, Math.min(5 * big, 9 * s)), enabled);
  }
  if (look.at.now >= 0) ring(place(look.at.now), c.now, 3, [], 4);
}

// The arena over the order of computing: a rectangle for each result, from its birth to its last
// reader; what stands above the same bytes takes them over.
export function paintMemory(context, graph, from, to, high, look) {
  const { width, height, ratio, colours: c, node } = look, rects = [];
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.fillStyle = c.raised;
  context.fillRect(0, 0, width, height);
  const x = (i) => (width * (i - from)) / (to - from), y = (byte) => (height * byte) / Math.max(1, high);
  graph.memory.forEach((m, i) => {
    if (!m || m[2] < from || i >= to) return;
    const r = [x(Math.max(i, from)), y(m[0]), Math.max(1.5, x(Math.min(m[2] + 1, to)) - x(Math.max(i, from)) - 1), Math.max(1.5, y(m[1]) - 0.5)];
    rects.push([r, i]);
    context.fillStyle = (i < look.at.done ? c.full : c.pale)[kindOf(graph.ops[i])];
    context.fillRect(...r);
    context.strokeStyle = c.rim[kindOf(graph.ops[i])];
    context.lineWidth = 0.7;
    if (r[2] > 4) context.strokeRect(...r);
  });
  if (look.at.now >= from && look.at.now < to) { context.fillStyle = c.now; context.fillRect(x(look.at.now + 0.5) - 1, 0, 2, height); }
  for (const [r, i] of rects) {
    if (i !== node && !(node >= 0 && graph.memory[node] && (graph.memory[node][3] === i || graph.memory[node][4] === i))) continue;
    context.strokeStyle = i === node ? c.fg : c.soft;
    context.lineWidth = 2;
    context.setLineDash(i === node ? [] : [4, 3]);
    context.strokeRect(r[0], r[1], r[2], r[3]);
    context.setLineDash([]);
  }
  return rects;
}
