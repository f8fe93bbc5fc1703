// Which heads pushed this token: a grid of layers and heads, what each adds, and what is without it.
import { h, fill, alone, card, piece, visible, percent, value, colours, css, paint, bytes, numbers, moved, roving } from "./kit.js";
import { driver } from "./driver.js";

const STYLE = `
.llmviz .lv-hd-tokens { display: flex; flex-wrap: wrap; gap: 0.3em; align-items: center; }
.llmviz .lv-hd-tokens .lv-num { color: var(--lv-soft); }
.llmviz .lv-hd-form { display: inline-flex; gap: 0.3em; }
.llmviz .lv-hd-form input { width: 8.5em; padding: 0.1em 0.45em; border: 1px solid var(--lv-line); border-radius: 0.35em; background: var(--lv-bg); color: var(--lv-fg); }
.llmviz .lv-hd-form input::placeholder { color: var(--lv-soft); opacity: 1; }
.llmviz .lv-hd-sum { margin: 0.5em 0 0.7em; display: flex; flex-wrap: wrap; gap: 0.1em 0.45em; align-items: baseline; }
.llmviz .lv-hd-sum b { font-weight: 600; }
.llmviz .lv-hd-body { display: flex; flex-wrap: wrap; gap: 0.9em 1.8em; align-items: flex-start; }
.llmviz .lv-hd-left { max-width: 100%; overflow-x: auto; padding: 3px; }
.llmviz .lv-hd-side { flex: 1; min-width: 19em; max-width: 30em; display: grid; gap: 0.8em; }
.llmviz .lv-hd-stage { display: grid; justify-content: start; column-gap: 0.4em; }
.llmviz .lv-hd-axis { color: var(--lv-soft); font-size: max(13px, 0.93em); line-height: 1; font-variant-numeric: tabular-nums; position: relative; }
.llmviz .lv-hd-axis span { position: absolute; white-space: nowrap; }
.llmviz .lv-hd-rows span { right: 0; transform: translateY(-50%); }
.llmviz .lv-hd-columns span { bottom: 0; transform: translateX(-50%); }
.llmviz .lv-hd-grid { position: relative; cursor: crosshair; line-height: 0; outline-offset: 3px; }
.llmviz .lv-hd-grid canvas { position: absolute; image-rendering: pixelated; border-radius: 2px; }
.llmviz .lv-hd-grid .lv-num { position: absolute; line-height: 1; pointer-events: none; transform: translate(-50%, -50%); font-size: 13px; font-weight: 600; }
.llmviz .lv-hd-grid .lv-hd-beside { transform: translateY(-50%); font-weight: 400; }
.llmviz.lv-projector .lv-hd-grid .lv-num { font-size: 19px; }
.llmviz .lv-hd-ffn { position: absolute; border-radius: 1px; }
.llmviz .lv-hd-zero { position: absolute; width: 1px; background: var(--lv-soft); }
.llmviz .lv-hd-picked { position: absolute; pointer-events: none; border: 2px solid var(--lv-now); box-shadow: 0 0 0 2px var(--lv-bg); border-radius: 2px; }
.llmviz .lv-hd-gone { position: absolute; pointer-events: none; background: repeating-linear-gradient(45deg, var(--lv-soft) 0 2px, transparent 2px 6px); border: 1px solid var(--lv-soft); border-radius: 2px; }
.llmviz .lv-hd-scale { margin-top: 0.6em; }
.llmviz .lv-hd-scale .lv-legend { width: 9em; }
.llmviz .lv-hd-side h4 { margin: 0 0 0.25em; font-size: 1em; font-weight: 600; }
.llmviz .lv-hd-top { display: grid; gap: 1px; }
.llmviz .lv-hd-top button { width: 100%; text-align: left; border: 0; border-left: 3px solid transparent; border-radius: 0.2em; background: none; padding: 0.15em 0.5em; cursor: pointer; display: block; }
.llmviz .lv-hd-top button:hover { background: var(--lv-hover); }
.llmviz .lv-hd-top button[aria-pressed=true] { border-left-color: var(--lv-now); background: var(--lv-now-soft); }
.llmviz .lv-hd-bar { display: block; height: 0.3em; border-radius: 1px; margin-top: 0.1em; }
.llmviz .lv-hd-chosen { border: 1px solid var(--lv-line); border-left: 3px solid var(--lv-now); border-radius: 0.4em; padding: 0.5em 0.7em; }
.llmviz .lv-hd-chosen .lv-row { margin-top: 0.45em; gap: 0.4em; }
.llmviz .lv-hd-gone-box { border: 1px solid var(--lv-line); border-radius: 0.4em; padding: 0.5em 0.7em; }
.llmviz .lv-hd-off li { display: flex; align-items: baseline; gap: 0.6em; }
.llmviz .lv-hd-change { display: grid; grid-template-columns: auto minmax(3em, 1fr) auto; gap: 0.15em 0.6em; align-items: center; margin-top: 0.4em; }
.llmviz .lv-hd-change .lv-num { font-weight: 600; text-align: right; }
.llmviz .lv-hd-track { background: var(--lv-hover); border-radius: 0.2em; }
.llmviz .lv-hd-p { display: block; height: 0.75em; border-radius: 0.2em; min-width: 2px; background: var(--lv-now); }
.llmviz .lv-hd-p.lv-hd-was { background: color-mix(in srgb, var(--lv-fg) 40%, var(--lv-bg)); }
.llmviz .lv-hd-note { max-width: 62em; margin-top: 0.7em; }
.llmviz .lv-hd-ask { display: grid; gap: 0.5em; justify-items: start; }
`;

const CELLS = 2000; // of the hidden table; beyond it the strongest ones only

// A share in logits, with its sign: two digits are what a person can use, all are in the hook.
function signed(x) {
  if (!Number.isFinite(x)) return Number.isNaN(x) ? "NaN" : x > 0 ? "+inf" : "−inf";
  return (x < 0 ? "−" : "+") + Math.abs(x).toFixed(2);
}

export function headsZone(host) {
  const { model } = host;
  const { node, body, head, remark } = card("Which heads pushed this token?", { class: "lv-card lv-hd" });
  const title = head.querySelector("h3");
  const tokens = h("div", { class: "lv-hd-tokens", role: "group", "aria-label": "Whose logit" });
  const input = h("input", { type: "text", maxlength: 200, placeholder: "another token", "aria-label": "Another token: its exact text, a space in front included" });
  const form = h("form", {
    class: "lv-hd-form",
    onsubmit: (e) => {
      e.preventDefault();
      if (input.value) work({ ask: "heads_token", token: input.value }).then((r) => { if (!r.error && !r.lost) input.value = ""; });
    },
  }, input, h("button", { type: "submit", class: "lv-button lv-small" }, "Split it"));
  const chooser = h("div", { class: "lv-row" }, tokens, form);
  const sum = h("p", { class: "lv-hd-sum" });
  const rowNames = h("div", { class: "lv-hd-axis lv-hd-rows", "aria-hidden": "true" });
  const columnNames = h("div", { class: "lv-hd-axis lv-hd-columns", "aria-hidden": "true" });
  const corner = h("div", { class: "lv-hd-axis", "aria-hidden": "true" }, "layer");
  const canvas = h("canvas", { "aria-hidden": "true" });
  const marks = h("div", { "aria-hidden": "true" });
  const cursor = h("div", { class: "lv-mark", hidden: true });
  const grid = h("div", { class: "lv-hd-grid", tabindex: 0, role: "application", "aria-roledescription": "grid of heads" }, canvas, marks, cursor);
  const stage = h("div", { class: "lv-hd-stage" }, corner, columnNames, rowNames, grid);
  const readout = h("output", { class: "lv-readout" });
  const legend = h("canvas", { class: "lv-legend", "aria-hidden": "true" });
  const low = h("span", {}), high = h("span", {});
  const scaleRow = h("div", { class: "lv-row lv-scale lv-hd-scale" }, "takes away", low, legend, high, "adds (logits)");
  const table = h("div", { class: "lv-hidden" });
  const top = h("ol", { class: "lv-hd-top" }), against = h("p", { class: "lv-remark" });
  const chosen = h("div", { class: "lv-hd-chosen" });
  const off = h("div", { class: "lv-hd-gone-box" });
  const side = h("div", { class: "lv-hd-side" }, off, h("section", {}, h("h4", {}, "The five that push most"), top, against), chosen);
  const note = h("p", { class: "lv-remark lv-hd-note" },
    "This counts the direct path only: what a head writes for a later head to use shows at the later head, not here. Switching a head off shows all that it does.");
  const left = h("div", { class: "lv-hd-left" }, stage, scaleRow, h("div", { class: "lv-row" }, readout));
  const shown = h("div", {}, chooser, sum, h("div", { class: "lv-hd-body" }, left, side), table, note);
  const replay = h("button", { type: "button", class: "lv-button", "data-action": "heads-measure", onclick: () => work({ ask: "heads_measure" }) }, "Replay this token to measure");
  const why = h("p", { class: "lv-empty" }), how = h("p", { class: "lv-remark" }, "The run goes through this token's pass once more, unseen, and stands where it stood.");
  const empty = h("div", { class: "lv-hd-ask" }, why, replay, how);
  body.append(h("style", {}, STYLE), shown, empty);
  const settleTokens = roving(tokens, "button"), settleTop = roving(top, "button");
  let at = [0, 0], size = [1, 1], gap = 0, shares = new Float32Array(0), about = {}, looked = "";

  const busy = (is) => {
    node.setAttribute("aria-busy", String(is));
    node.classList.toggle("lv-working", is);
    for (const b of node.querySelectorAll("button")) if (b.dataset.action) b.disabled = is || b.dataset.off === "yes";
  };
  // A piece of work of the kernel: the buttons wait until it is done.
  const work = async (message) => {
    if (node.classList.contains("lv-working")) return { lost: true };
    busy(true);
    const reply = await driver(host).work(message);
    busy(false);
    return reply;
  };
  const share = (r, c) => shares[r * (about.n_head + 1) + c];
  const ref = (r, c) => (c === about.n_head ? `share(${about.id}).ffn[${r}]` : `share(${about.id}).heads[${r},${c}]`);
  const name = (r, c) => (c === about.n_head ? `feed-forward network of layer ${r}` : `layer ${r}, head ${c}`);

  const look = (spoken) => {
    if (!about.n_layer) return;
    const [r, c] = at, x = share(r, c), box = place(r, c);
    cursor.hidden = false;
    Object.assign(cursor.style, { left: box[0] + "px", top: box[1] + "px", width: box[2] + "px", height: box[3] + "px" });
    const part = about.logit ? `, ${((100 * x) / about.logit).toFixed(1).replace("-", "−")}\u202f% of the logit` : "";
    fill(readout, `${name(r, c)}: `, value(signed(x), x, ref(r, c)), ` logits${part}`);
    if (spoken) host.say(`${name(r, c)}: ${signed(x)} logits${c < about.n_head ? "" : ", not a head"}`);
  };
  const place = (r, c) => (c < about.n_head ? [c * size[0], r * size[1], size[0], size[1]] : [about.n_head * size[0] + gap, r * size[1], ffnWidth(), size[1]]);
  const ffnWidth = () => { const big = model.get("projector") ? 1.5 : 1; return Math.round((node.clientWidth < 760 * big ? 106 : 140) * big); };
  const pick = (r, c) => {
    if (c >= about.n_head) return;
    looked = "";
    model.set("layer", r);
    model.set("head", c);
    model.save_changes();
    drawPicked();
  };
  const cell = (e) => {
    const box = grid.getBoundingClientRect(), x = e.clientX - box.left, r = Math.floor((e.clientY - box.top) / size[1]);
    const c = x < about.n_head * size[0] ? Math.floor(x / size[0]) : about.n_head;
    return r < 0 || r >= about.n_layer || c < 0 ? null : [r, c];
  };
  grid.addEventListener("pointermove", (e) => {
    const to = cell(e);
    if (!to || (to[0] === at[0] && to[1] === at[1] && !cursor.hidden)) return;
    at = to;
    look(false);
  });
  grid.addEventListener("click", (e) => { const to = cell(e); if (to) { at = to; look(false); pick(...to); } });
  grid.addEventListener("focus", () => { at = [model.get("layer"), model.get("head")]; if (at[0] >= about.n_layer || at[1] > about.n_head) at = [0, 0]; look(true); });
  grid.addEventListener("keydown", (e) => {
    if (e.key === "Escape") { grid.blur(); cursor.hidden = true; return; }
    if (e.key === "Enter" || e.key === " ") { e.preventDefault(); e.stopPropagation(); pick(...at); return; }
    const to = moved(e.key, at, about.n_layer, about.n_head + 1);
    if (!to || e.ctrlKey || e.metaKey || e.altKey) return;
    e.preventDefault();
    e.stopPropagation();
    at = to;
    look(true);
  });

  const drawTokens = () => {
    const options = model.get("heads_tokens") || [];
    fill(tokens, h("span", { class: "lv-remark" }, "logit of"), ...options.map((o) => h("button", {
      type: "button", class: "lv-button lv-small", "data-token-id": o.id, "aria-pressed": String(o.id === about.id),
      title: o.chosen ? "the token that was chosen" : undefined, onclick: () => work({ ask: "heads_token", token: o.id }),
    }, piece(o.text), value(percent(o.p_raw), o.p_raw, `p_raw[${o.id}]`))));
    settleTokens();
  };
  const drawSum = () => {
    const term = (x, what, key) => [h("span", {}, value(signed(x), x, `share(${about.id}).${key}`), ` ${what}`)];
    fill(sum, h("b", {}, "logit ", value(about.logit.toFixed(2).replace("-", "−"), about.logit, `logits[${about.id}]`)), " = ",
      ...term(about.heads, "all heads", "heads"), ...term(about.ffn, "all feed-forward networks", "ffn"),
      ...term(about.embedding, "the last token's embedding", "embedding"), ...(about.biases ? term(about.biases, "biases", "biases") : []),
      about.whole ? null : h("span", { class: "lv-remark" }, "— these add up to ", value(signed(about.sum), about.sum, `share(${about.id}).sum`), " only: in this architecture the stream is not a plain sum, take the shares as a hint"));
  };

  const drawGrid = () => {
    const { n_layer: rows, n_head: columns } = about, big = model.get("projector") ? 1.5 : 1, letter = 13 * big;
    const tall = Math.max(5, Math.min(20, Math.floor((host.docked ? 360 : 540) / rows))) * big;
    // The list stands beside the grid where both have room, else below it.
    const full = node.clientWidth - 30 * big, around = ffnWidth() + 64 * big, beside = Math.min(0.62 * full, full - 300 * big) - around;
    const room = beside >= Math.max(150 * big, 9 * columns) ? beside : full - around;
    const wide = Math.max(4, Math.min(44 * big, Math.floor(room / columns)));
    size = [wide, tall];
    gap = 16 * big;
    const across = wide * columns, whole = across + gap + ffnWidth(), table256 = colours(true, host.dark, false);
    const most = about.scale;
    let mostFfn = 0;
    for (let r = 0; r < rows; r++) {
      if (Number.isFinite(share(r, columns))) mostFfn = Math.max(mostFfn, Math.abs(share(r, columns)));
    }
    const level = (x) => (Number.isNaN(x) ? 255 : x === Infinity ? 254 : x === -Infinity ? 253 : Math.max(0, Math.min(252, Math.round(126 + (most ? (126 * x) / most : 0)))));
    const picture = new Uint8Array(rows * columns);
    for (let r = 0; r < rows; r++) for (let c = 0; c < columns; c++) picture[r * columns + c] = level(share(r, c));
    paint(canvas, picture, rows, columns, table256);
    Object.assign(canvas.style, { left: 0, top: 0, width: across + "px", height: rows * tall + "px" });
    Object.assign(grid.style, { width: whole + "px", height: rows * tall + "px" });
    stage.style.gridTemplateColumns = `${Math.round(34 * big)}px ${whole}px`;
    left.style.width = Math.round(34 * big + whole + 14) + "px"; // what is written below it wraps
    columnNames.style.height = Math.round(letter * 2.6) + "px";
    corner.style.alignSelf = "end";
    const every = (step) => Math.max(1, Math.ceil((letter + 3) / step)), byRow = every(tall), byColumn = every(wide * 0.8);
    fill(rowNames, ...Array.from({ length: rows }, (_, r) => r % byRow ? null : h("span", { style: `top:${(r + 0.5) * tall}px` }, r)));
    fill(columnNames, h("span", { style: `left:${across / 2}px; bottom:${letter * 1.35}px` }, "head"),
      ...Array.from({ length: columns }, (_, c) => c % byColumn ? null : h("span", { style: `left:${(c + 0.5) * wide}px` }, c)),
      h("span", { style: `left:${across + gap + ffnWidth() / 2}px` }, "feed-forward"));

    // Feed-forward networks as bars on a scale of their own, written beside the largest.
    const left0 = across + gap, label = 54 * big, zero = left0 + (ffnWidth() - label) * (lowestFfn(rows, columns) < 0 ? 0.25 : 0), reach = ffnWidth() - label - (zero - left0);
    const bars = Array.from({ length: rows }, (_, r) => {
      const x = share(r, columns), long = mostFfn && Number.isFinite(x) ? (Math.abs(x) / mostFfn) * reach : 0;
      const shown = Math.max(1, x < 0 ? Math.min(long, zero - left0) : long);
      const number = tall >= 15 * big && x >= mostFfn * 0.3 ? value(signed(x), x, ref(r, columns), { class: "lv-num lv-hd-beside", style: `left:${zero + shown + 4}px; top:${(r + 0.5) * tall}px` }) : null;
      return [number, h("div", { class: "lv-hd-ffn", style: `left:${x < 0 ? zero - shown : zero}px; top:${r * tall + tall * 0.18}px; width:${shown}px; height:${tall * 0.64}px; background:${css(table256[x < 0 ? 30 : 215])}` })];
    });
    const strongest = about.top.filter(([, , x]) => Math.abs(x) >= most * 0.25 && wide >= 34 * big && tall >= 15 * big).map(([r, c, x]) => {
      const [red, green, blue] = [0, 8, 16].map((s) => (table256[level(x)] >> s) & 255);
      const ink = 0.2126 * (red / 255) ** 2.2 + 0.7152 * (green / 255) ** 2.2 + 0.0722 * (blue / 255) ** 2.2 > 0.18 ? "#111111" : "#ffffff";
      return value(x.toFixed(1).replace("-", "−"), x, ref(r, c), { style: `left:${(c + 0.5) * wide}px; top:${(r + 0.5) * tall}px; color:${ink}; background:${css(table256[level(x)])}` });
    });
    const gone = (model.get("heads_off") || []).flatMap((o) => o.heads.map((c) => h("div", { class: "lv-hd-gone", style: `left:${c * wide}px; top:${o.layer * tall}px; width:${wide}px; height:${tall}px` })));
    fill(marks, h("div", { class: "lv-hd-zero", style: `left:${zero}px; top:0; height:${rows * tall}px` }), ...bars.flat().filter(Boolean), ...strongest, ...gone, h("div", { class: "lv-hd-picked" }));
    paint(legend, Uint8Array.from({ length: 253 }, (_, i) => i), 1, 253, table256);
    low.textContent = signed(-most);
    high.textContent = signed(most);
    grid.setAttribute("aria-label", `What each head adds to the logit, in logits: ${rows} layers by ${columns} heads, then the feed-forward network of each layer, whose bars reach to ${signed(mostFfn)}. Arrow keys move, Enter chooses.`);
  };
  const lowestFfn = (rows, columns) => Math.min(...Array.from({ length: rows }, (_, r) => share(r, columns) || 0));

  const drawTable = () => {
    const { n_layer: rows, n_head: columns } = about, all = rows * (columns + 1);
    if (all > CELLS) {
      const order = Array.from({ length: all }, (_, i) => i).sort((a, b) => Math.abs(shares[b]) - Math.abs(shares[a])).slice(0, 64);
      fill(table, h("table", {}, h("caption", {}, `showing 64 of ${all.toLocaleString("en-US")} shares, the largest`),
        h("tbody", {}, order.map((i) => h("tr", {}, h("th", { scope: "row" }, name(Math.floor(i / (columns + 1)), i % (columns + 1))), h("td", {}, signed(shares[i])))))));
      return;
    }
    fill(table, h("table", {}, h("caption", {}, "Share of each head and feed-forward network, in logits"),
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "layer"), ...Array.from({ length: columns }, (_, c) => h("th", { scope: "col" }, `head ${c}`)), h("th", { scope: "col" }, "feed-forward"))),
      h("tbody", {}, ...Array.from({ length: rows }, (_, r) => h("tr", {}, h("th", { scope: "row" }, r),
        ...Array.from({ length: columns + 1 }, (_, c) => h("td", {}, value(signed(share(r, c)), share(r, c), ref(r, c)))))))));
  };

  const drawPicked = () => {
    const r = model.get("layer"), c = model.get("head"), inside = r < about.n_layer && c < about.n_head;
    const ring = marks.querySelector(".lv-hd-picked");
    const key = `${r},${c}`;
    for (const b of top.querySelectorAll("button")) b.setAttribute("aria-pressed", String(b.dataset.head === key));
    settleTop();
    if (ring) ring.hidden = !inside;
    chosen.hidden = !inside;
    if (!inside) return;
    const box = place(r, c), x = share(r, c), away = (model.get("heads_off") || []).some((o) => o.layer === r && o.heads.includes(c));
    if (ring) Object.assign(ring.style, { left: box[0] + "px", top: box[1] + "px", width: box[2] + "px", height: box[3] + "px" });
    const act = (action, text, question, isOff) => h("button", { type: "button", class: "lv-button", "data-action": action, "data-off": isOff ? "yes" : undefined, disabled: isOff, onclick: question }, text);
    fill(chosen, h("strong", {}, name(r, c)), away ? " is switched off" : [": ", value(signed(x), x, ref(r, c)), " logits"],
      h("div", { class: "lv-row" },
        act("heads-look", "Look at its attention", async () => {
          const reply = await work({ ask: "heads_look", layer: r, head: c });
          looked = reply.error || reply.lost ? "" : reply.value ? `The attention view shows layer ${r}, head ${c} now.` : `No attention view is open: run lv.show.attention(dbg, layer=${r}, head=${c}).`;
          drawPicked();
          host.say(looked);
        }),
        act("heads-off", "Switch this head off", () => work({ ask: "heads_off", layer: r, head: c }).then((reply) => { if (!reply.error && !reply.lost) sayChange(); }), away)),
      looked ? h("p", { class: "lv-remark" }, looked) : null);
  };
  // The button that was pressed is gone or off now: the focus goes to its counterpart.
  const focusOn = (action) => {
    const next = node.querySelector(`[data-action=${action}]`);
    if (next && !next.disabled && (document.activeElement === document.body || document.activeElement === null)) next.focus();
  };
  const sayChange = () => {
    focusOn("heads-undo");
    const change = model.get("heads_change") || {};
    if (change.before !== undefined) host.say(`Probability ${percent(change.before)} before, ${percent(change.now)} now`);
  };

  const drawOff = () => {
    const gone = model.get("heads_off") || [], change = model.get("heads_change") || {}, has = change.before !== undefined;
    off.hidden = !gone.length && !change.of;
    if (!gone.length) {
      if (change.of) fill(off, h("h4", {}, "Undone"), h("p", {}, change.same === change.of ? "All " : "", value(change.same.toLocaleString("en-US"), change.same, "same"), change.same === change.of ? " logits are as before, bit for bit." : ` of ${change.of.toLocaleString("en-US")} logits are as before.`));
      return;
    }
    const row = (what, p, kind, key) => [h("span", { class: "lv-remark" }, what),
      h("span", { class: "lv-hd-track", "aria-hidden": "true" }, h("span", { class: `lv-hd-p ${kind}`, style: `width:${(100 * p).toFixed(2)}%` })),
      value(percent(p), p, key)];
    fill(off, h("h4", {}, "Switched off"),
      h("ul", { class: "lv-hd-off" }, gone.map((o) => h("li", { "data-edit": o.id }, h("span", {}, `layer ${o.layer}, head ${o.heads.join(", ")}`),
        h("button", { type: "button", class: "lv-button lv-small", "data-action": "heads-undo", "aria-label": `Undo: switch on layer ${o.layer}, head ${o.heads.join(", ")}`, onclick: () => work({ ask: "heads_undo", which: o.id }).then(() => { focusOn("heads-off"); const c = model.get("heads_change") || {}; if (c.of) host.say(`Undone: ${c.same} of ${c.of} logits are as before`); }) }, "Undo")))),
      has ? h("p", {}, "Probability of ", piece(about.text), ":") : h("p", { class: "lv-remark" }, "It was off before this token's pass: there is nothing to compare with."),
      has ? h("div", { class: "lv-hd-change" }, ...row("before", change.before, "lv-hd-was", `before.p_raw[${about.id}]`), ...row("now", change.now, "", `p_raw[${about.id}]`)) : null,
      has ? h("p", { class: "lv-remark" }, "logit ", value(change.logit_before.toFixed(2).replace("-", "−"), change.logit_before, `before.logits[${about.id}]`), " before, ", value(change.logit_now.toFixed(2).replace("-", "−"), change.logit_now, `logits[${about.id}]`), change.kept ? [" now. The run as it was is kept as branch ", h("code", {}, visible(change.kept).slice(0, 40)), "."] : " now.") : null);
  };

  const draw = () => {
    about = model.get("heads_about") || {};
    shares = numbers(model.get("shares"), Float32Array);
    const has = bytes(model.get("shares")).length > 0 && shares.length === about.n_layer * (about.n_head + 1);
    shown.hidden = !has;
    empty.hidden = has;
    if (!has) {
      about = {};
      title.textContent = "Which heads pushed this token?";
      remark.textContent = "";
      const measurable = !!(model.get("heads_about") || {}).measurable;
      why.textContent = measurable ? "The values that this needs were not kept when this token was computed." : visible((model.get("heads_about") || {}).why || "").replace(/\u00a0/g, " ");
      why.title = visible((model.get("heads_about") || {}).why || "").replace(/\u00a0/g, " ");
      replay.hidden = how.hidden = !measurable;
      return;
    }
    fill(title, "Which heads pushed ", piece(about.text), "?");
    fill(remark, `${about.chosen ? "chosen" : "possible"} token for position ${about.pos}, p `, value(percent(about.p), about.p, `p_raw[${about.id}]`), ` · ${about.n_layer} layers × ${about.n_head} heads, float32`);
    drawTokens();
    drawSum();
    drawGrid();
    drawTable();
    fill(top, ...about.top.map(([r, c, x, text]) => h("li", {}, h("button", {
      type: "button", "data-head": `${r},${c}`, "aria-pressed": "false", onclick: () => { at = [r, c]; pick(r, c); },
    }, `layer ${r}, head ${c} `, value(text.replace("-", "−"), x, ref(r, c)),
      h("span", { class: "lv-hd-bar", "aria-hidden": "true", style: `width:${Math.max(1, (100 * Math.max(0, x)) / Math.max(1e-9, about.scale)).toFixed(1)}%; background:${css(colours(true, host.dark, false)[x < 0 ? 30 : 215])}` })))));
    against.hidden = !about.against.length;
    if (about.against.length) {
      const [r, c, x, text] = about.against;
      fill(against, `Most against it: layer ${r}, head ${c} `, value(text, x, ref(r, c)), ".");
    }
    drawOff();
    drawPicked();
    if (!cursor.hidden && document.activeElement === grid) look(false);
    else { cursor.hidden = true; readout.textContent = "Point at a square, or move with the arrow keys; Enter chooses."; }
  };
  return { node, draw, watch: ["layer", "head", "token", "shares", "heads_about", "heads_tokens", "heads_off", "heads_change"] };
}

export default alone("heads", "Which heads pushed this token", headsZone);
