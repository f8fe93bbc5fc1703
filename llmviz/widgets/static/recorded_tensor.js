// Tensors of a recorded run: the window, its scale and its bytes, as tensor.py and picture.py make
// them from the same numbers.

const ROWS = 48, COLUMNS = 160, STEP = 8, FEW = 16, OUTLIER = 4, LEVELS = 252;

// To the nearest whole number; halves to the even one, as numpy does.
export function rint(x) {
  const down = Math.floor(x), part = x - down;
  return part < 0.5 || (part === 0.5 && down % 2 === 0) ? down : down + 1;
}

export function level(x, low, high) {
  if (Number.isNaN(x)) return 255;
  if (!Number.isFinite(x)) return x > 0 ? 254 : 253;
  return Math.max(0, Math.min(LEVELS, rint(high > low ? ((x - low) / (high - low)) * LEVELS : LEVELS / 2)));
}

// A number in as many digits as tell it from its neighbours of the same type.
export function digits(x, whole, dtype) {
  if (dtype === "bool") return x ? "True" : "False";
  if (whole) return String(x);
  if (Number.isNaN(x)) return "nan";
  if (!Number.isFinite(x)) return x > 0 ? "inf" : "-inf";
  let short = x;
  for (let p = 1; p < 10; p++) {
    short = Number(x.toPrecision(p));
    if (Math.fround(short) === x) break;
  }
  const text = Object.is(short, -0) ? "-0" : String(short);
  return /[.e]/.test(text) ? text : `${text}.0`;
}

// A 2-D slice of an array of any rank.
function slice(shape, index, wide) {
  const rank = shape.length, size = shape.reduce((a, b) => a * b, 1);
  if (rank < 2) return { rows: 1, columns: size, lead: [], index: [], rowAxis: null, base: 0, stride: size, place: (r, c) => (rank ? [c] : []) };
  const there = [...shape.slice(0, -1), wide], strides = shape.map((_, i) => there.slice(i + 1).reduce((a, b) => a * b, 1));
  const lead = shape.map((n, axis) => axis).filter((axis) => axis < rank - 1 && shape[axis] > 1);
  const rowAxis = lead.length ? lead.pop() : rank - 2;
  const used = lead.map((axis, i) => Math.max(0, Math.min(index[i] || 0, shape[axis] - 1)));
  const base = lead.reduce((a, axis, i) => a + used[i] * strides[axis], 0);
  const place = (r, c) => shape.map((_, axis) => (axis === rank - 1 ? c : axis === rowAxis ? r : lead.includes(axis) ? used[lead.indexOf(axis)] : 0));
  return { rows: shape[rowAxis], columns: shape[rank - 1], lead, index: used, rowAxis, base, stride: strides[rowAxis], place };
}

function quantile(sorted, q) {
  const at = (sorted.length - 1) * q, k = Math.floor(at);
  return k + 1 < sorted.length ? sorted[k] + (sorted[k + 1] - sorted[k]) * (at - k) : sorted[k];
}

// Where the colours of finite values end, and whether they stand on both sides of zero.
export function ends(values) {
  let low = Infinity, high = -Infinity;
  for (const x of values) { low = Math.min(low, x); high = Math.max(high, x); }
  const signed = values.length > 0 && low < 0 && high > 0;
  if (!values.length) return [0, 0, signed];
  if (!signed) return [low, high, signed];
  const size = Float64Array.from(values, Math.abs).sort(), most = size[size.length - 1], usual = quantile(size, 0.99);
  const top = usual > 0 && most > OUTLIER * usual ? usual : most;
  return [-top, top, signed];
}

// Where the columns end that differ from the last one, and the value that follows.
function endOfNews(at, rows, columns) {
  const last = at(0, columns - 1), same = (x) => x === last || (Number.isNaN(x) && Number.isNaN(last));
  for (let c = columns - 1; c >= 0; c--) {
    for (let r = 0; r < rows; r++) {
      if (same(at(r, c))) continue;
      const end = Math.max(FEW, Math.ceil((c + 1) / STEP) * STEP);
      return end <= Math.floor(columns / 2) ? [end, last] : [columns, null];
    }
  }
  return [columns, null];
}

// The arrays of a page: `words` as `host.words` gives them.
export function tensorOf(held, words, index, origin) {
  const [first, shape, dtype, whole, wide] = held, from = whole ? words.i : words.f;
  const s = slice(shape, index, wide), at = (r, c) => (c < wide ? from[first + s.base + r * s.stride + c] : 0);
  const text = (x) => digits(x, whole, dtype);
  let [row, column] = [...origin, 0, 0];
  row = Math.max(0, Math.min(row, s.rows - ROWS));
  let [end, rest] = endOfNews(at, s.rows, s.columns);
  if (column >= end) [end, rest] = [s.columns, null];
  column = Math.max(0, Math.min(column, end - COLUMNS));
  const rows = Math.min(ROWS, s.rows - row), columns = Math.min(COLUMNS, end - column);
  const part = Array.from({ length: rows * columns }, (_, i) => at(row + Math.floor(i / columns), column + (i % columns)));
  const finite = part.filter(Number.isFinite), [low, high, signed] = ends(finite);
  return {
    picture: Uint8Array.from(part, (x) => level(x, low, high)),
    window: {
      row, column, rows, columns, n_rows: s.rows, n_columns: s.columns, lead: s.lead.map((axis) => [axis, shape[axis]]), index: s.index,
      row_axis: s.rowAxis, rest: rest === null ? null : text(rest), low, high, signed, clipped: finite.filter((x) => x < low || x > high).length,
    },
    // Full-precision values of a small block, with the names they have in the engine.
    block(name, r0, c0, nr, nc) {
      const lines = Array.from({ length: Math.max(0, Math.min(nr, s.rows - r0)) }, (_, i) => r0 + i);
      const cells = Array.from({ length: Math.max(0, Math.min(nc, s.columns - c0)) }, (_, j) => c0 + j);
      return {
        row: r0, column: c0, values: lines.map((r) => cells.map((c) => text(at(r, c)))),
        refs: lines.map((r) => cells.map((c) => `${name}[${s.place(r, c).join(",")}]`)),
      };
    },
  };
}
