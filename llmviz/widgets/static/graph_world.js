// Where blocks and nodes lie in the graph's world, and what lies under a point. Blocks stand like
// words of a text: folded ones side by side, an open one with its nodes on lines of its own.

const CHIP = [150, 54], GAP = [30, 40], PAD = 14;
export const BOX = [112, 56];
export const DOT = [16, 16];

// The graph with what drawing needs: paths of each drawing, places of its nodes.
export function prepared(graph) {
  const drawings = graph.drawings.map((d) => ({ ...d }));
  const blocks = graph.block.map((b, k) => ({ ...b, index: k, drawing: drawings[b.drawing], number: b.drawing }));
  for (const d of drawings) {
    const b = blocks.find((x) => x.drawing === d);
    d.small = d.centres.map((_, i) => graph.views[b.first + i]);
    d.boxes = d.centres.map(([x, y], i) => { const [w, h] = d.small[i] ? DOT : BOX; return [x - w / 2, y - h / 2, w, h]; });
  }
  return { ...graph, n: graph.names.length, block: blocks, drawings, readers: readers(graph), stems: graph.names.map(stem) };
}

function readers(graph) {
  const out = graph.names.map(() => []);
  graph.src.forEach((from, i) => from.forEach((s) => out[s].push(i)));
  graph.stored.forEach((from, i) => from.forEach((s) => out[s].push(i)));
  return out;
}

// A node's name without its layer, which its block tells.
export function stem(name) {
  return name.replace(/-\d+(?= |$)/, "").replace(/_l\d+(?= |$)/, "");
}

// Rectangles of all blocks for a canvas of this shape.
export function arranged(graph, open, width, height, letter) {
  const first = tried(graph, open, width, height, 34);
  // Many open blocks are small: their titles keep their size.
  const head = Math.min(220, Math.max(34, (1.35 * letter) / first.scale));
  return head > 40 ? tried(graph, open, width, height, head) : first;
}

function tried(graph, open, width, height, head) {
  const sizes = graph.block.map((b) => (open.has(b.index) ? [b.drawing.width + 2 * PAD, b.drawing.height + head + PAD] : CHIP));
  const widest = Math.max(...sizes.map(([w]) => w)), any = open.size > 0;
  let best = null;
  for (let k = 1; k <= 12; k++) {
    const row = any ? k * (widest + GAP[0]) : k * (CHIP[0] + GAP[0]);
    const found = flowed(sizes, row);
    const scale = Math.min(width / found.width, height / found.height, 1.25);
    if (!best || scale > best.scale * 1.02) best = { ...found, scale, head };
  }
  return best;
}

function flowed(sizes, row) {
  const rects = [];
  let x = 0, y = 0, high = 0, wide = 0;
  for (const [w, h] of sizes) {
    if (x > 0 && x + w > row) { x = 0; y += high + GAP[1]; high = 0; }
    rects.push([x, y, w, h]);
    x += w + GAP[0];
    high = Math.max(high, h);
    wide = Math.max(wide, x - GAP[0]);
  }
  return { rects, width: wide, height: y + high };
}

// Where a block's drawing begins.
export function inner(world, k) {
  return [world.rects[k][0] + PAD, world.rects[k][1] + world.head];
}

// A node's rectangle; that of its block where it is folded.
export function rectOf(graph, world, open, i) {
  const b = graph.block[graph.blocks[i]], r = world.rects[b.index];
  if (!open.has(b.index)) return r;
  const [ox, oy] = inner(world, b.index), [x, y, w, h] = b.drawing.boxes[i - b.first];
  return [ox + x, oy + y, w, h];
}

// What lies at a point of the world: {block, node, head}; null for nothing.
export function under(graph, world, open, x, y, near) {
  for (const b of graph.block) {
    const [bx, by, bw, bh] = world.rects[b.index];
    if (x < bx - near || y < by - near || x > bx + bw + near || y > by + bh + near) continue;
    if (!open.has(b.index)) return { block: b.index, node: -1, head: true };
    const [ox, oy] = inner(world, b.index);
    let node = -1;
    b.drawing.boxes.forEach(([nx, ny, nw, nh], i) => {
      if (x >= ox + nx - near && x <= ox + nx + nw + near && y >= oy + ny - near && y <= oy + ny + nh + near) node = b.first + i;
    });
    return { block: b.index, node, head: node < 0 && y < by + world.head };
  }
  return null;
}

// From one block to the next: beside it, or around the end of a row.
export function between(a, b) {
  const [ax, ay, aw, ah] = a, [bx, by, , bh] = b, ya = ay + Math.min(ah, CHIP[1]) / 2, yb = by + Math.min(bh, CHIP[1]) / 2;
  if (by === ay) return [[ax + aw, ya], [bx, yb]];
  const gap = by - GAP[1] / 2;
  return [[ax + aw, ya], [ax + aw + 12, ya], [ax + aw + 12, gap], [bx - 12, gap], [bx - 12, yb], [bx, yb]];
}
