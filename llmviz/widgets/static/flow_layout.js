// Where everything of the flow view stands: columns, rows, labels. Numbers in, numbers out: no DOM.

// Space after a column, in shares of what is left over. Fans of ribbons need room to be followed.
const ROOM = { Kcur: 3, Vcur: 6, kq: 1.1, kq_soft_max: 0.8, Qcur: 0.5, ffn_gate: 0.5, attn_out: 0.9, ffn_out: 0.9 };

export function stem(name) {
  return name.replace(/-\d+$/, "");
}

export function isFolded(column) {
  return column.group === "before" || column.group === "after";
}

export function isOpen(column) {
  return column.group === "attention" || column.group === "mlp";
}

// Heights by how many tokens there are; bins are values per strip, one pixel each at the base size.
export function rowSizes(bins, big) {
  const strip = Math.round(bins * big), lane = bins >= 48 ? 8 : bins >= 24 ? 5 : bins >= 16 ? 2.5 : 3;
  return { strip, top: Math.round(lane * big), pitch: strip + Math.round((2 * lane + (bins >= 24 ? 2 : 0)) * big) };
}

// How many neighbouring values of a strip become one, so that all rows fit into a height; a row
// stays high enough for its token.
export function mergeFor(bins, nRows, big, room) {
  let merge = 1;
  const pitch = (k) => rowSizes(Math.ceil(bins / k), big).pitch;
  while (merge < 4 && pitch(merge) * nRows > room && pitch(merge + 1) >= 17 * big) merge++;
  return merge;
}

export function layOut({ columns, nRows, bins, width, em, tokenWide, listWide, measure }) {
  const big = em / 14, sizes = rowSizes(bins, big);
  const cell = Math.max(2, Math.min(nRows <= 6 ? 15 : 12, (width * 0.085) / Math.max(1, nRows)));
  const hidden = Math.max(0, ...columns.filter((c) => c.group === "mlp").map((c) => c.n));
  const model = Math.max(1, ...columns.filter((c) => isFolded(c) || c.group === "in").map((c) => c.n));
  const foldedCount = columns.filter(isFolded).length;
  const thin = Math.max(2, Math.min(8, (width * 0.135) / Math.max(1, foldedCount)));
  const wide = (c, k) => {
    if (isFolded(c)) return thin;
    if (c.kind === "matrix") return Math.max(26, cell * nRows) * k;
    if (c.kind === "head") return 15 * big * k;
    return (c.group === "mlp" && hidden > model && c.n === hidden ? 24 : 18) * big * k;
  };
  // Gaps: shares of the room that is left, never less than lets two strips be told apart.
  const pad = 12 * big, shares = [], fixed = [];
  columns.forEach((c, i) => {
    const next = columns[i + 1], edge = next && isOpen(c) !== isOpen(next);
    const tight = isFolded(c) && next && isFolded(next);
    shares.push(tight || !next ? 0 : ROOM[stem(c.id)] || 1);
    fixed.push(tight ? 1 : edge ? pad : 0);
  });
  const sum = (list) => list.reduce((a, b) => a + b, 0), all = Math.max(1, sum(shares));
  const fit = (room, k) => (room - tokenWide - sum(columns.map((c) => wide(c, k))) - sum(fixed) - 32 * big) / all;
  // Where the list of next tokens has no room beside the strips, it goes under them; then strips get thinner.
  const below = fit(width - listWide, 1) < 6, end = columns[columns.length - 1], over = Math.max(measure(end.label), measure(end.n.toLocaleString("en-US"))) / 2;
  const room = below ? width + 24 * big - Math.max(0, over - 9 * big) - 6 : width - listWide;
  let thinner = 1;
  while (thinner > 0.55 && fit(room, thinner) < 6) thinner -= 0.05;
  const share = Math.max(6, Math.min(34 * big, fit(room, thinner))), widths = columns.map((c) => wide(c, thinner));
  let x = tokenWide + 8 * big;
  const at = columns.map((c, i) => {
    const place = { x, w: widths[i] };
    x += widths[i] + shares[i] * share + fixed[i];
    return place;
  });
  const last = at[at.length - 1];
  const right = last ? last.x + last.w : x;
  const listX = below ? Math.max(tokenWide + 40 * big, right - 2.1 * listWide) : right + 24 * big;

  // Labels: the lowest line on which they touch no other.
  const lines = [];
  const span = (test) => {
    const inside = columns.map((c, i) => (test(c) ? i : -1)).filter((i) => i >= 0);
    return inside.length ? { x0: at[inside[0]].x, x1: at[inside[inside.length - 1]].x + at[inside[inside.length - 1]].w, from: inside[0], to: inside[inside.length - 1] } : null;
  };
  const groups = Object.fromEntries(["before", "attention", "mlp", "after"].map((g) => [g, span((c) => c.group === g)]));
  // The folded layers' names take the lowest line; the rest goes round them.
  for (const s of [groups.before, groups.after]) {
    if (!s) continue;
    const [a, b] = [columns[s.from].layer, columns[s.to].layer];
    s.text = a === b ? `layer ${a}` : `layers ${a}–${b}`;
    const w = measure(s.text);
    s.mid = Math.max((s.x0 + s.x1) / 2, s.x0 + w / 2);
    (lines[0] = lines[0] || []).push([s.mid - w / 2 - 4, s.mid + w / 2 + 4]);
  }
  const labels = columns.flatMap((c, i) => {
    if (isFolded(c)) return [];
    const w = measure(c.label) + 6, mid = at[i].x + at[i].w / 2, x0 = mid - w / 2, x1 = mid + w / 2;
    let level = 0;
    while ((lines[level] || []).some(([a, b]) => x0 < b && a < x1)) level++;
    (lines[level] = lines[level] || []).push([x0, x1]);
    return [{ i, x: mid, w, level, text: c.label }];
  });
  // How many values a token has along the way: one bracket for neighbours of the same size.
  const runs = [];
  columns.forEach((c, i) => {
    if (c.kind === "matrix") { runs.push(null); return; }
    const last = runs[runs.length - 1];
    if (last && last.n === c.n && isOpen(columns[last.to]) === isOpen(c)) { last.to = i; last.x1 = at[i].x + at[i].w; } else runs.push({ n: c.n, to: i, x0: at[i].x, x1: at[i].x + at[i].w });
  });
  const open = span(isOpen);
  return {
    at, labels, levels: lines.length, groups, runs: runs.filter(Boolean), share, cell, sizes, big, keys: nRows, thin, tokenWide, listX, right,
    card: open && { x0: open.x0 - pad, x1: open.x1 + pad },
    below, width: Math.max(width, right + (below ? 4 : 24 * big + listWide)),
    rowsHigh: sizes.pitch * nRows,
  };
}
