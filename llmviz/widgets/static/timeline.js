// The run as a line: tokens, ubatches, breakpoints, edits, branches; below it the pass that runs now.
import { h, fill, svg, alone, card, visible, percent, widthOf } from "./kit.js";
import { driver } from "./driver.js";

const RUN = { top: 13, height: 19 }, PASS = { top: 43, height: 15 }, HEIGHT = 60;
const STEP = { 10: "batch", 11: "decode", 12: "slots", 13: "graph", 14: "logits", 15: "sample", 16: "text" };

export function timelineZone(host) {
  const { model } = host, drive = driver(host);
  const picture = svg("svg", { class: "lv-time-picture", "aria-hidden": "true" });
  const tip = h("output", { class: "lv-time-tip", "aria-hidden": "true", hidden: true });
  const track = h("div", {
    class: "lv-time-track", tabindex: 0, role: "slider", "data-timeline": "", "aria-label": "Timeline. Left and Right step, Page Up and Page Down go by tokens, Home and End to the ends.",
    "aria-valuemin": 0, "aria-orientation": "horizontal",
  }, picture, tip);
  const node = h("section", { class: "lv-timeline", "aria-label": "Timeline" }, track);
  const wide = widthOf(host, track);
  let width = 0, dragging = null, layout = { run: [0, 1], pass: null };

  const scale = () => (model.get("projector") ? 1.5 : 1);
  const x = (n, [a, b]) => ((n - a) / Math.max(1, b - a)) * (width - 4) + 2;
  const event = (px, [a, b]) => Math.max(a, Math.min(b, Math.round(a + ((px - 2) / Math.max(1, width - 4)) * (b - a))));
  const line = (tag, attributes, ...children) => svg(tag, attributes, ...children);

  const draw = () => {
    const t = model.get("timeline") || {}, here = model.get("here"), k = scale();
    width = Math.max(80, wide());
    const furthest = Math.max(1, t.furthest || 0);
    layout.run = [0, furthest];
    const parts = [], add = (...a) => parts.push(line(...a));
    const y = RUN.top * k, high = RUN.height * k, bottom = y + high;
    picture.setAttribute("viewBox", `0 0 ${width} ${HEIGHT * k}`);
    picture.style.height = track.style.height = HEIGHT * k + "px";

    // Row 1: the whole run. A token's stretch ends where it was chosen.
    add("rect", { class: "lv-time-line", x: 2, y, width: width - 4, height: high, rx: 3 });
    let before = 0;
    (t.tokens || []).forEach(([n, pos, text, p], i) => {
      const a = x(before, layout.run), b = x(n, layout.run), prompt = p === null || p === undefined;
      add("rect", { class: "lv-time-token" + (prompt ? " lv-time-prompt" : "") + (n > here ? " lv-time-ahead" : ""), x: a, y, width: Math.max(0.5, b - a - (b - a > 4 ? 1 : 0)), height: high, rx: b - a > 6 ? 2 : 0, style: prompt ? "" : `--lv-p:${Math.sqrt(p).toFixed(3)}`, "data-n": n, "data-pos": pos });
      if (b - a > 3) add("line", { class: "lv-time-tick", x1: b, x2: b, y1: y - 2, y2: bottom });
      const label = prompt ? `load, prompt (${t.n_prompt})` : visible(text).replace(/\u00a0/g, "·");
      const room = (b - a - 6) / (7.6 * k);
      if (room >= Math.min(3, [...label].length)) {
        const cut = [...label].length > room ? [...label].slice(0, Math.max(1, Math.floor(room) - 1)).join("") + "…" : label;
        add("text", { class: "lv-time-label" + (prompt ? " lv-time-soft" : ""), x: (a + b) / 2, y: y + high / 2 }, document.createTextNode(cut));
      }
      before = n;
    });
    for (const n of t.ubatches || []) add("line", { class: "lv-time-ubatch", x1: x(n, layout.run), x2: x(n, layout.run), y1: bottom, y2: bottom + 3 * k });
    const SHAPES = { hit: "m-3.5 0 a3.5 3.5 0 1 0 7 0 a3.5 3.5 0 1 0 -7 0", edit: "m0 -4.5 l4.5 4.5 l-4.5 4.5 l-4.5 -4.5 z", fork: "m-4 -4 h8 l-4 8 z" };
    const sign = (n, kind, title) => {
      const px = Math.max(7, Math.min(width - 7, x(n, layout.run)));
      add("path", { class: `lv-time-sign lv-time-${kind}`, d: `M${px} ${y - 6 * k} ${SHAPES[kind]}`, "data-n": n }, svg("title", {}, document.createTextNode(title)));
    };
    for (const n of t.hits || []) sign(n, "hit", `stopped at event ${n}`);
    for (const [n, text] of t.edits || []) sign(n, "edit", `event ${n}: ${text}`);
    for (const [n, name] of t.forks || []) sign(n, "fork", `${name} forks here`);

    // Row 2: the pass around the present, drawn larger; what has not run yet is an estimate.
    layout.pass = null;
    if (t.first >= 0) {
      const layers = t.layers || [];
      let last = t.last, each = 0;
      if (layers.length > 1) {
        each = (layers[layers.length - 1][1] - layers[0][1]) / (layers.length - 1);
        last = Math.max(last, Math.round(layers[0][1] + each * (t.n_layer || layers.length)));
      }
      layout.pass = [t.first, Math.max(t.first + 1, last)];
      const y2 = PASS.top * k, h2 = PASS.height * k;
      const a = x(t.first, layout.run), b = x(Math.min(last, furthest), layout.run);
      add("path", { class: "lv-time-zoom", d: `M${a} ${bottom} L2 ${y2} H${width - 2} L${b} ${bottom} Z` });
      add("rect", { class: "lv-time-line", x: 2, y: y2, width: width - 4, height: h2, rx: 3 });
      const done = x(Math.min(t.last, layout.pass[1]), layout.pass);
      add("rect", { class: "lv-time-done", x: 2, y: y2, width: Math.max(0, done - 2), height: h2, rx: 3 });
      const marks = layers.map(([il, n]) => [String(il), n, "layer"]);
      const ends = (t.steps || []).filter(([s]) => s >= 14).map(([s, n]) => [STEP[s], n, "step"]);
      const starts = (t.steps || []).filter(([s]) => s < 13).slice(0, 1).map(([s, n]) => [STEP[s], n, "step"]);
      let free = -1;
      const all = [...starts, ...marks, ...ends];
      for (const [i, [label, n, kind]] of all.entries()) {
        const px = x(n, layout.pass);
        const next = i + 1 < all.length ? x(all[i + 1][1], layout.pass) : width;
        add("line", { class: `lv-time-tick lv-time-${kind}`, x1: px, x2: px, y1: y2, y2: y2 + h2, "data-n": n });
        const room = label.length * 7.6 * k + 6;
        if (px > free && px + room < width && (kind === "layer" || px + room < next || i === all.length - 1)) {
          add("text", { class: "lv-time-label lv-time-left", x: px + 3, y: y2 + h2 / 2 }, document.createTextNode(label));
          free = px + room;
        }
      }
    }
    if (here >= 0) {
      const px = x(Math.min(here, furthest), layout.run);
      add("path", { class: "lv-time-now", d: `M${px} ${y - 1} V${bottom + 1} M${px - 4 * k} ${y - 6 * k} h${8 * k} l${-4 * k} ${6 * k} z` });
      if (layout.pass) {
        const p2 = x(Math.max(layout.pass[0], Math.min(here, layout.pass[1])), layout.pass);
        add("path", { class: "lv-time-now", d: `M${p2} ${PASS.top * k - 2} V${(PASS.top + PASS.height) * k + 1}` });
      }
    }
    fill(picture, ...parts);
    track.setAttribute("aria-valuemax", furthest);
    track.setAttribute("aria-valuenow", Math.max(0, here));
    track.setAttribute("aria-valuetext", `event ${Math.max(0, here)} of ${furthest}`);
  };

  // What lies under the pointer: an event, and the token that a click would go to.
  const under = (e) => {
    const box = track.getBoundingClientRect(), px = e.clientX - box.left, t = model.get("timeline") || {};
    const low = layout.pass && e.clientY - box.top > (RUN.top + RUN.height + 4) * scale();
    if (low) {
      const n = event(px, layout.pass);
      const marks = [...(t.layers || []).map(([il, m]) => [m, `layer ${il}`]), ...(t.steps || []).map(([s, m]) => [m, STEP[s] || `step ${s}`])];
      const near = marks.filter(([m]) => Math.abs(x(m, layout.pass) - px) < 7).sort((a, b) => Math.abs(x(a[0], layout.pass) - px) - Math.abs(x(b[0], layout.pass) - px))[0];
      return { n, row: layout.pass, snap: near ? near[0] : n, text: near ? `${near[1]}, event ${near[0].toLocaleString("en-US")}` : `event ${n.toLocaleString("en-US")}` };
    }
    const n = event(px, layout.run), tokens = t.tokens || [];
    const token = tokens.find(([m]) => m >= n);
    const prompt = token && (token[3] === null || token[3] === undefined);
    return {
      n, row: layout.run, snap: token && !prompt ? token[0] : n,
      text: token && !prompt ? `“${visible(token[2])}” ${percent(token[3])} · position ${token[1]} · event ${token[0].toLocaleString("en-US")}` : `event ${n.toLocaleString("en-US")}`,
    };
  };
  const say = (found, px) => {
    tip.hidden = false;
    tip.textContent = found;
    const room = tip.offsetWidth;
    tip.style.left = Math.max(0, Math.min(width - room, px - room / 2)) + "px";
  };
  track.addEventListener("pointermove", (e) => {
    const found = under(e), px = e.clientX - track.getBoundingClientRect().left;
    if (dragging) {
      if (Math.abs(e.clientX - dragging.x) > 4) dragging.moved = true;
      if (dragging.moved) {
        const n = event(px, dragging.row);
        say(`event ${n.toLocaleString("en-US")}`, px);
        drive.travel(n); // the newest place counts, one bounded slice at a time
        return;
      }
    }
    say(found.text, px);
  });
  track.addEventListener("pointerleave", () => { if (!dragging) tip.hidden = true; });
  track.addEventListener("pointerdown", (e) => {
    if (e.button) return;
    const found = under(e);
    dragging = { x: e.clientX, moved: false, row: [...found.row], snap: found.snap };
    track.setPointerCapture(e.pointerId);
  });
  track.addEventListener("pointerup", () => {
    if (dragging && !dragging.moved) drive.travel(dragging.snap);
    dragging = null;
  });
  track.addEventListener("pointercancel", () => { dragging = null; });
  track.addEventListener("keydown", (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey) return;
    const t = model.get("timeline") || {};
    const step = { ArrowLeft: "back", ArrowRight: "into", PageUp: "prev-token", PageDown: "next-token" }[e.key];
    const to = { Home: 0, End: t.furthest }[e.key];
    if (e.key === "Escape") { if (!drive.busy) track.blur(); return; }
    if ((!step && to === undefined) || e.shiftKey) return;
    e.preventDefault();
    e.stopPropagation();
    if (step) drive.go(step, undefined, e.repeat);
    else if (!e.repeat) drive.travel(to);
  });
  return { node, draw, watch: ["timeline", "here"] };
}

function single(host) {
  const zone = timelineZone(host), shell = card("Timeline", {});
  shell.body.append(zone.node);
  return { ...zone, node: shell.node };
}

export default alone("timeline", "Timeline", single);
