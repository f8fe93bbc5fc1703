// The compute graph: blocks that open down to their nodes, pan and zoom, memory, breakpoints.
import { h, fill, alone, card, numbers, plain, roving, colours, css, value } from "./kit.js";
import { driver } from "./driver.js";
import { prepared, arranged, rectOf, under, BOX } from "./graph_world.js";
import { paintGraph, paintMemory, palette, KINDS } from "./graph_paint.js";
import { graphFacts, graphTable } from "./graph_facts.js";
import { GRAPH_STYLE } from "./graph_style.js";
import { duration } from "./time.js";

export function graphZone(host) {
  const { model } = host;
  const { node, head, body, remark } = card("Compute graph", { class: "lv-card lv-graph" });
  const empty = h("p", { class: "lv-empty" });
  const button = (action, text, title, onclick) => h("button", { type: "button", class: "lv-button lv-small", "data-graph": action, title, onclick }, text);
  const search = h("input", { type: "search", placeholder: "find a node", "aria-label": "Find nodes by name; Enter goes to the next", oninput: () => { host.set("graph_find", search.value.slice(0, 200)); seek(); prepareLook(look.ratio); repaint(); } });
  const found = h("span", { class: "lv-remark lv-gr-found", "aria-live": "polite" });
  const colour = h("select", { class: "lv-button lv-small", "aria-label": "Colour by", "data-lm-suppress-shortcuts": "true", onchange: () => host.set("graph_colour", colour.value) }, h("option", { value: "op" }, "colour: op"), h("option", { value: "time" }, "colour: time"));
  const follow = button("follow", "follow", "Open the block that is being computed", () => host.set("graph_follow", !model.get("graph_follow")));
  const tools = h("span", { role: "toolbar", "aria-label": "Graph", class: "lv-row" },
    button("all", "Open all", "Open all blocks", () => setOpen(graph.block.map((b) => b.index), true)), button("none", "Fold all", "Fold all blocks", () => setOpen([], true)),
    button("fit", "Fit", "The whole graph (0)", () => fit(true)), button("out", "−", "Smaller (−)", () => zoom(0.8)), button("in", "+", "Larger (+)", () => zoom(1.25)), follow);
  const canvas = h("canvas", { tabindex: 0, role: "application", "aria-roledescription": "graph" });
  const stage = h("div", { class: "lv-gr-stage" }, canvas), readout = h("output", { class: "lv-readout lv-remark" });
  const legend = h("div", { class: "lv-gr-legend lv-remark", "aria-hidden": "true" });
  const about = h("div", { class: "lv-gr-about" }), strip = h("canvas", { "aria-hidden": "true" });
  const memoryTitle = h("h4", {}), memoryText = h("p", { class: "lv-remark" });
  const memory = h("div", { class: "lv-gr-memory" }, memoryTitle, strip, memoryText);
  const table = h("div", { class: "lv-gr-table" }), details = h("details", { ontoggle: () => drawTable() }, h("summary", {}, "As a table"), table);
  const shown = h("div", {}, h("div", { class: "lv-gr-bar" }, search, found, colour, tools), stage, legend, readout, h("div", { class: "lv-gr-below" }, about, memory), details);
  head.append(h("style", {}, GRAPH_STYLE));
  body.append(shown, empty);
  const settle = roving(tools, "button");

  let graph = null, world = null, open = new Set(), view = { s: 1, x: 0, y: 0 }, times = new Float32Array(0), at = {}, paints = 0;
  let block = -1, look = null, matches = [], size = [0, 0], raf = 0, last = { graph: null, open: "", now: -1, selected: -1 }, rects = [], flight = 0, whole = true;
  const still = matchMedia("(prefers-reduced-motion: reduce)");
  const chosen = () => Math.min(model.get("graph_selected"), graph ? graph.n - 1 : -1);
  const big = () => (model.get("projector") ? 1.5 : 1);

  // -- painting --------------------------------------------------------------------------------

  const measure = () => {
    const box = stage.getBoundingClientRect(), ratio = Math.min(window.devicePixelRatio || 1, 2);
    size = [Math.max(50, stage.clientWidth), Math.max(50, stage.clientHeight)];
    const [w, h2] = [Math.round(size[0] * ratio), Math.round(size[1] * ratio)];
    if (canvas.width !== w || canvas.height !== h2) { canvas.width = w; canvas.height = h2; }
    return box.width > 0 && ratio;
  };
  const paint = () => {
    raf = 0;
    if (!graph || !look) return;
    const start = performance.now();
    paintGraph(canvas.getContext("2d", { alpha: false }), graph, world, open, view, { ...look, width: size[0], height: size[1], at, times, matches, block, node: chosen(), focused: document.activeElement === canvas });
    node.dataset.paint = (performance.now() - start).toFixed(2);
    node.dataset.paints = ++paints;
    node.dataset.zoom = view.s.toFixed(4);
    // Where the chosen node or block lies on the canvas: for tests and other tools.
    const box = chosen() >= 0 ? rectOf(graph, world, open, chosen()) : block >= 0 ? world.rects[block] : null;
    canvas.dataset.at = box ? [box[0] * view.s + view.x, box[1] * view.s + view.y, box[2] * view.s, box[3] * view.s].map((x) => x.toFixed(1)).join() : "";
  };
  const repaint = () => { if (!raf) raf = requestAnimationFrame(paint); };
  host.onEnd(() => { cancelAnimationFrame(raf); cancelAnimationFrame(flight); });

  const prepareLook = (ratio) => {
    const total = times.reduce((a, x) => a + x, 0), blockTimes = graph.block.map((b) => (times.length ? 1e3 * times.subarray(b.first, b.first + b.count).reduce((a, x) => a + x, 0) : 0));
    const heats = colours(false, host.dark, false), most = Math.max(1, ...times), level = (us) => Math.round(252 * Math.sqrt(Math.min(1, us / most)));
    const byBlock = new Map();
    for (const i of matches) byBlock.set(graph.blocks[i], (byBlock.get(graph.blocks[i]) || 0) + 1);
    look = {
      ratio, colours: palette(host.root), big: big(), colour: model.get("graph_colour"), blockTimes, mostBlock: Math.max(1, ...blockTimes), words: duration, total,
      heat: (us) => css(heats[level(us)]), ink: (us) => (level(us) > 150 ? "#111111" : "#ffffff"), found: byBlock,
      breaks: at.breaks || [], blockBreaks: new Map(at.block_breaks || []),
      second: (i) => (model.get("graph_colour") === "time" && times.length ? duration(1e3 * times[i]).replace("\u202f", "") : graph.shapes[i].join("×")),
    };
  };

  // -- moving ----------------------------------------------------------------------------------

  const within = (v) => ({ s: Math.max(0.02, Math.min(4, v.s)), x: v.x, y: v.y });
  const fly = (to, slow) => {
    cancelAnimationFrame(flight);
    const from = { ...view }, start = performance.now();
    if (!slow || still.matches) { view = to; repaint(); return; }
    const step = (now) => {
      const t = Math.min(1, (now - start) / 220), f = 1 - (1 - t) ** 3;
      view = { s: from.s * (to.s / from.s) ** f, x: from.x + (to.x - from.x) * f, y: from.y + (to.y - from.y) * f };
      repaint();
      if (t < 1) flight = requestAnimationFrame(step);
    };
    flight = requestAnimationFrame(step);
  };
  const framed = ([x, y, w, h2], most) => {
    const s = Math.min((size[0] - 28) / w, (size[1] - 16) / h2, most);
    return { s, x: (size[0] - w * s) / 2 - x * s, y: (size[1] - h2 * s) / 2 - y * s };
  };
  const fit = (slow) => { whole = true; fly(framed([0, 0, world.width, world.height], 1.25), slow); };
  // At first, where the whole would be too small to read: the node of now, or where the open block begins.
  const begin = () => {
    const all = framed([0, 0, world.width, world.height], 1.25), letter = 13 * big(), s = Math.max((3.4 * letter + 10) / BOX[0], (2.2 * letter) / BOX[1]);
    if (open.size !== 1 || all.s >= s) { fit(false); return; }
    const k = [...open][0], rect = at.now >= 0 ? rectOf(graph, world, open, at.now) : world.rects[k];
    const centre = [rect[0] + (at.now >= 0 ? rect[2] / 2 : 0), world.rects[k][1] + world.rects[k][3] / 2];
    const placed = [world.width, world.height].map((w, i) => (w * s <= size[i] ? (size[i] - w * s) / 2 : Math.max(size[i] - 14 - w * s, Math.min(14, size[i] / 2 - centre[i] * s))));
    whole = true;
    fly({ s, x: placed[0], y: placed[1] }, false);
  };
  const zoom = (by, px = size[0] / 2, py = size[1] / 2) => {
    whole = false;
    const to = within({ s: view.s * by, x: 0, y: 0 }), k = to.s / view.s;
    cancelAnimationFrame(flight);
    view = { s: to.s, x: px - (px - view.x) * k, y: py - (py - view.y) * k };
    repaint();
  };
  // Moves as little as is needed to see a rectangle, larger where it could not be read.
  const reveal = (rect, least = 0.5) => {
    const s = Math.max(view.s, Math.min(least * big(), size[0] / (rect[2] + 40))), cx = rect[0] + rect[2] / 2, cy = rect[1] + rect[3] / 2;
    const px = s === view.s ? view.x + cx * s : size[0] / 2, py = s === view.s ? view.y + cy * s : size[1] / 2, mx = Math.min(size[0] / 2, rect[2] * s / 2 + 20), my = Math.min(size[1] / 2, rect[3] * s / 2 + 20);
    const to = { s, x: Math.max(mx, Math.min(size[0] - mx, px)) - cx * s, y: Math.max(my, Math.min(size[1] - my, py)) - cy * s };
    if (to.s !== view.s || Math.abs(to.x - view.x) > 1 || Math.abs(to.y - view.y) > 1) { whole = false; fly(to, true); }
  };

  const setOpen = (blocks, refit) => {
    host.set("graph_open", [...new Set(blocks)].sort((a, b) => a - b));
    whole = whole || refit;
    arrange(refit ? -1 : undefined);
  };
  const toggle = (k) => {
    block = k;
    const was = open.has(k);
    setOpen(was ? [...open].filter((b) => b !== k) : [...open, k], false);
    if (!was && !whole) reveal(world.rects[k], 0.3);
    host.say(`${graph.block[k].title} ${was ? "folded" : `open, ${graph.block[k].count} nodes`}`);
    drawBelow();
  };
  // The blocks anew; what was in the middle stays near it, or the whole is fitted again.
  const arrange = (keep) => {
    const before = world && keep !== -1 && !whole ? { rects: world.rects } : null, middle = before && anchor(before.rects);
    open = new Set((model.get("graph_open") || []).filter((k) => k < graph.block.length));
    last.open = [...open].join();
    world = arranged(graph, open, ...size, 13 * big());
    node.dataset.open = open.size;
    if (!before) { if (keep === -1) fit(true); else begin(); return; }
    const a = before.rects[middle], b = world.rects[middle];
    view = { s: view.s, x: view.x + (a[0] - b[0]) * view.s, y: view.y + (a[1] - b[1]) * view.s };
    repaint();
  };
  const anchor = (rects_) => {
    if (block >= 0) return block;
    const cx = (size[0] / 2 - view.x) / view.s, cy = (size[1] / 2 - view.y) / view.s;
    let best = 0, least = Infinity;
    rects_.forEach(([x, y, w, h2], k) => { const d = Math.hypot(Math.max(x - cx, 0, cx - x - w), Math.max(y - cy, 0, cy - y - h2)); if (d < least) { least = d; best = k; } });
    return best;
  };

  // -- choosing --------------------------------------------------------------------------------

  const words = (i) => [graph.names[i], graph.ops[i], `[${graph.shapes[i].join(", ")}] ${graph.types[i]}`, times.length && !graph.views[i] ? duration(1e3 * times[i]) : "", (at.breaks || []).some(([b]) => b === i) ? "breakpoint" : "", i === at.now ? "the run stands here" : ""].filter(Boolean).join(", ");
  const choose = (i, spoken = true, move = true) => {
    block = graph.blocks[i];
    host.set("graph_selected", i);
    if (!open.has(block)) setOpen([...open, block], false);
    if (move) reveal(rectOf(graph, world, open, i));
    readout.textContent = plain(words(i));
    if (spoken) host.say(words(i));
    drawBelow();
    repaint();
  };
  const openNode = async (i) => {
    const name = graph.names[i], reply = await driver(host).work({ ask: "graph_node", node: i });
    if (!reply || reply.error || reply.lost) return;
    const said = reply.value ? `The run stands at ${name}; the tensor view shows it` : `The run stands at ${name} now: lv.show.tensor(dbg) shows its values`;
    readout.textContent = plain(said);
    host.say(said);
  };
  const breakAt = async (what) => {
    const reply = await driver(host).work(what);
    if (!reply || reply.error || reply.lost) return;
    const name = what.block === undefined ? graph.names[what.node] : graph.block[what.block].title;
    host.say(reply.value ? `Breakpoint at ${name}` : `No breakpoint at ${name} any more`);
  };
  const tellFound = (wanted) => {
    const n = matches.length.toLocaleString("en-US"), k = matches.indexOf(chosen());
    found.textContent = !wanted ? "" : !matches.length ? "none" : k >= 0 ? `${k + 1} of ${n}` : `${n} found`;
  };
  const next = (by) => {
    if (!matches.length) return;
    const k = matches.findIndex((i) => i >= chosen() + (by > 0 ? 1 : 0));
    const to = by > 0 ? (k < 0 ? 0 : k) : ((k < 0 ? matches.length : k) - 1 + matches.length) % matches.length;
    choose(matches[to]);
    tellFound("yes");
  };
  search.addEventListener("keydown", (e) => {
    if (e.key === "Enter") { e.preventDefault(); e.stopPropagation(); next(e.shiftKey ? -1 : 1); }
    if (e.key === "Escape") { search.value = ""; host.set("graph_find", ""); canvas.focus(); }
  });
  const seek = () => {
    const wanted = (model.get("graph_find") || "").trim().toLowerCase(), glob = /[*?[]/.test(wanted);
    if (search.value !== model.get("graph_find") && document.activeElement !== search) search.value = model.get("graph_find") || "";
    let test = (name) => name.includes(wanted);
    if (glob) {
      try { const re = new RegExp("^" + wanted.replace(/[.+^${}()|\\]/g, "\\$&").replace(/\*/g, ".*").replace(/\?/g, ".") + "$"); test = (name) => re.test(name); } catch { test = () => false; }
    }
    matches = wanted ? graph.names.flatMap((name, i) => (test(name.toLowerCase()) ? [i] : [])) : [];
    tellFound(wanted);
  };

  // -- the pointer and the keyboard --------------------------------------------------------------

  const point = (e) => { const r = canvas.getBoundingClientRect(); return [e.clientX - r.left, e.clientY - r.top]; };
  const below = (e) => { const [x, y] = point(e); return under(graph, world, open, (x - view.x) / view.s, (y - view.y) / view.s, 3 / view.s); };
  const onMark = (e, hit) => {
    // The left edge of a node, and the left end of a block's head: where its breakpoint stands.
    const [x] = point(e), rect = hit.node >= 0 ? rectOf(graph, world, open, hit.node) : world.rects[hit.block], left = rect[0] * view.s + view.x;
    return hit.node >= 0 ? !graph.views[hit.node] && rect[2] * view.s > 30 && x - left < Math.min(9, rect[2] * view.s * 0.2) : graph.block[hit.block].layer >= 0 && rect[2] * view.s > 60 && x - left < 16;
  };
  let drag = null;
  canvas.addEventListener("pointerdown", (e) => {
    if (!graph || e.button > 1) return;
    cancelAnimationFrame(flight);
    drag = { x: e.clientX, y: e.clientY, from: { ...view }, moved: false };
    canvas.setPointerCapture(e.pointerId);
  });
  canvas.addEventListener("pointermove", (e) => {
    if (drag) {
      const dx = e.clientX - drag.x, dy = e.clientY - drag.y;
      if (!drag.moved && Math.hypot(dx, dy) < 4) return;
      drag.moved = true;
      whole = false;
      view = { ...view, x: drag.from.x + dx, y: drag.from.y + dy };
      repaint();
      return;
    }
    if (!graph) return;
    const hit = below(e);
    canvas.style.cursor = hit && (hit.node >= 0 || hit.head) ? "pointer" : "";
    if (hit && hit.node >= 0) readout.textContent = (onMark(e, hit) ? "click: breakpoint · " : "") + plain(words(hit.node));
    else if (hit) readout.textContent = onMark(e, hit) ? `click: breakpoint where ${graph.block[hit.block].title} begins` : `${graph.block[hit.block].title}, ${graph.block[hit.block].count} nodes; click ${open.has(hit.block) ? "folds" : "opens"} it`;
    else readout.textContent = HELP;
  });
  const let_go = (e, act) => {
    const was = drag;
    drag = null;
    if (!was || was.moved || !act || !graph) return;
    const hit = below(e);
    if (!hit) { host.set("graph_selected", -1); block = -1; drawBelow(); repaint(); return; }
    if (onMark(e, hit)) { breakAt(hit.node >= 0 ? { ask: "graph_break", node: hit.node } : { ask: "graph_break", block: hit.block }); return; }
    if (hit.node >= 0) { if (hit.node === chosen()) openNode(hit.node); else choose(hit.node, true, false); } else if (hit.head) toggle(hit.block);
  };
  canvas.addEventListener("pointerup", (e) => let_go(e, e.button === 0));
  canvas.addEventListener("pointercancel", (e) => let_go(e, false));
  canvas.addEventListener("wheel", (e) => {
    // The page scrolls as ever unless the graph has the focus; a pinch is a wheel with Ctrl.
    if (!graph || !(e.ctrlKey || e.metaKey || document.activeElement === canvas)) return;
    e.preventDefault();
    zoom(Math.exp(-Math.max(-60, Math.min(60, e.deltaY * (e.deltaMode ? 20 : 1))) * (e.ctrlKey ? 0.012 : 0.004)), ...point(e));
  }, { passive: false });
  canvas.addEventListener("keydown", (e) => {
    if (!graph || e.ctrlKey || e.metaKey || e.altKey) return;
    const i = chosen(), b = graph.block[block >= 0 ? block : 0];
    const go = (to) => choose(Math.max(0, Math.min(graph.n - 1, to)));
    const hop = (k) => { const to = Math.max(0, Math.min(graph.block.length - 1, k)); block = to; if (i >= 0) { go(graph.block[to].first); return; } reveal(world.rects[to], 0); const said = `${graph.block[to].title}, ${graph.block[to].count} nodes, ${open.has(to) ? "open" : "folded"}`; readout.textContent = said; host.say(said); drawBelow(); repaint(); };
    const act = {
      ArrowRight: () => go(i < 0 ? b.first : i + 1), ArrowLeft: () => go(i < 0 ? b.first : i - 1),
      ArrowDown: () => (i < 0 ? hop(block + 1) : graph.readers[i].length ? go(graph.readers[i][0]) : host.say("nothing reads it")),
      ArrowUp: () => { if (i < 0) { hop(block - 1); return; } const from = [...graph.src[i], ...graph.stored[i]]; if (from.length) go(from[0]); else host.say("it reads no other node"); },
      Home: () => go(b.first), End: () => go(b.first + b.count - 1), PageDown: () => hop((block < 0 ? -1 : block) + 1), PageUp: () => hop(block - 1),
      Enter: () => (i >= 0 ? openNode(i) : toggle(b.index)), " ": () => (i >= 0 ? openNode(i) : toggle(b.index)), f: () => { const k = b.index; host.set("graph_selected", -1); toggle(k); repaint(); },
      b: () => breakAt(i >= 0 ? { ask: "graph_break", node: i } : { ask: "graph_break", block: b.index }),
      "+": () => zoom(1.25), "=": () => zoom(1.25), "-": () => zoom(0.8), 0: () => fit(true),
      Escape: () => { if (i >= 0) { host.set("graph_selected", -1); drawBelow(); repaint(); } else canvas.blur(); },
    }[e.key];
    if (!act) return;
    e.preventDefault();
    e.stopPropagation();
    act();
  });
  canvas.addEventListener("blur", repaint);
  canvas.addEventListener("focus", () => { if (block < 0) block = chosen() >= 0 ? graph.blocks[chosen()] : Math.max(0, at.now >= 0 ? graph.blocks[at.now] : 0); repaint(); });
  strip.addEventListener("click", (e) => {
    const r = strip.getBoundingClientRect(), x = e.clientX - r.left, y = e.clientY - r.top;
    const hit = rects.findLast(([[rx, ry, rw, rh]]) => x >= rx - 1 && x <= rx + rw + 1 && y >= ry - 1 && y <= ry + rh + 1);
    if (hit) choose(hit[1]);
  });
  const HELP = "Click opens a block or chooses a node; a second click shows its values; its left edge sets a breakpoint. Drag moves, the wheel zooms after a click.";

  // -- what stands below -------------------------------------------------------------------------

  const drawMemory = () => {
    memory.hidden = !graph.arena;
    if (!graph.arena || !look) return;
    const ratio = look.ratio, w = Math.max(50, strip.clientWidth), tall = 130;
    strip.width = Math.round(w * ratio);
    strip.height = Math.round(tall * ratio);
    const b = block >= 0 ? graph.block[block] : null, from = b ? b.first : 0, to = b ? b.first + b.count : graph.n;
    const alive = graph.memory.filter((m, i) => m && i < to && m[2] >= from), high = Math.max(1, ...alive.map((m) => m[0] + m[1]));
    rects = paintMemory(strip.getContext("2d"), graph, from, to, high, { ...look, width: w, height: tall, at, node: chosen() });
    const kib = (x) => `${Math.round(x / 1024).toLocaleString("en-US")} KiB`;
    memoryTitle.textContent = `Memory of the results${b ? ` in ${b.title}` : ""}`;
    fill(memoryText, "left to right: nodes ", value(from, from, "from"), "–", value(to - 1, to - 1, "to"), `; top to bottom: bytes 0–${high.toLocaleString("en-US")} of the arena's `, value(kib(graph.arena), graph.arena, "arena"), ". Without reuse it would be ", value(kib(graph.apart), graph.apart, "apart"), ".");
  };
  const drawTable = () => { if (graph && details.open) graphTable(host, table, graph, times, at, chosen(), choose); };
  const drawBelow = () => {
    graphFacts(host, about, graph, times, at, chosen(), { choose, openNode, breakAt, block: block >= 0 ? graph.block[block] : null });
    drawMemory();
    drawTable();
  };

  const draw = () => {
    const sent = model.get("graph") || {}, has = sent.names !== undefined;
    shown.hidden = !has;
    empty.hidden = has;
    if (!has) { graph = null; last.graph = null; empty.textContent = plain(sent.why || ""); remark.textContent = ""; return; }
    const ratio = measure();
    at = { now: -1, done: 0, ...(model.get("graph_at") || {}) };
    times = numbers(model.get("graph_times"), Float32Array);
    const fresh = sent !== last.graph;
    if (fresh) {
      const same = last.graph && graph && graph.block.length === sent.block.length;
      graph = prepared(sent);
      last.graph = sent;
      if (!same) { world = null; whole = true; block = -1; }
    }
    if (times.length !== graph.n) times = new Float32Array(0);
    seek();
    prepareLook(ratio || 1);
    const resized = last.size !== size.join();
    last.size = size.join();
    if (fresh || !world || last.open !== (model.get("graph_open") || []).join() || resized) arrange();
    const selected = chosen();
    if (selected >= 0 && selected !== last.selected) block = graph.blocks[selected];
    if (at.now >= 0 && at.now !== last.now) {
      if (model.get("graph_follow") && !whole) reveal(rectOf(graph, world, open, at.now), 0);
      block = selected >= 0 ? block : graph.blocks[at.now];
    } else if (selected >= 0 && selected !== last.selected && !whole) reveal(rectOf(graph, world, open, selected));
    last.now = at.now;
    last.selected = selected;
    colour.value = model.get("graph_colour");
    follow.setAttribute("aria-pressed", String(!!model.get("graph_follow")));
    const state = at.reused === true ? "reused for this ubatch" : at.reused === false ? "built for this ubatch" : "";
    remark.textContent = [`${graph.n.toLocaleString("en-US")} nodes`, state, at.now >= 0 ? `now: ${plain(graph.names[at.now])}` : at.done ? `${at.done.toLocaleString("en-US")} computed` : ""].filter(Boolean).join(" · ");
    const c = look.colours;
    fill(legend, ...(model.get("graph_colour") === "time" && times.length ? [h("span", {}, "0"), h("span", { class: "lv-legend", style: `background:linear-gradient(90deg, ${[0, 63, 126, 189, 252].map((k) => css(colours(false, host.dark, false)[k])).join(",")})` }), h("span", {}, duration(1e3 * Math.max(...times))), h("span", {}, "square root")]
      : KINDS.slice(0, 5).map(([name], k) => h("span", {}, h("span", { class: "lv-swatch", style: `background:${c.full[k]}; border-color:${c.rim[k]}` }), ` ${name}`))),
      h("span", {}, h("span", { class: "lv-swatch lv-gr-dot" }), " view: no work"), h("span", {}, h("span", { class: "lv-gr-dash" }), " through the cache"));
    canvas.setAttribute("aria-label", `Compute graph: ${graph.block.length} blocks, ${graph.n} nodes. Page up and down move between blocks, left and right in the order of computing, up to a source, down to a reader; Enter opens, b sets a breakpoint, f folds. The table below says the same.`);
    if (!readout.textContent) readout.textContent = HELP;
    settle();
    drawBelow();
    repaint();
  };
  return { node, draw, watch: ["graph", "graph_at", "graph_times", "graph_open", "graph_selected", "graph_follow", "graph_colour", "graph_find"] };
}

export default alone("graph", "Compute graph", graphZone);
