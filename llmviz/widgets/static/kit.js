// Shared by all views: building DOM from data, asking the kernel, colours, keyboard.
// Text from models and prompts only ever becomes text nodes and attribute values, never markup.

export function h(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "class") node.className = value;
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  // Lab looks for this on the focused element itself, before it looks at what is around it.
  if (tag === "button" || tag === "input" || (attributes && "tabindex" in attributes)) {
    node.setAttribute("data-lm-suppress-shortcuts", "true");
  }
  node.append(...children.flat(9).filter((c) => c !== null && c !== undefined && c !== false));
  return node;
}

// Replaces what a node holds; what is not there is left out.
export function fill(node, ...children) {
  node.replaceChildren(...children.flat(9).filter((c) => c !== null && c !== undefined && c !== false && c !== ""));
}

export function svg(tag, attributes, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes || {})) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

// -- text ------------------------------------------------------------------------------------

// A piece as it can be read: spaces and line ends visible, controls and bidi overrides by number.
export function visible(text) {
  return text
    .replace(/ /g, "\u00a0")
    .replace(/\n/g, "\u23ce")
    .replace(/\t/g, "\u21e5")
    .replace(/[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]/g,
      (c) => "‹U+" + c.codePointAt(0).toString(16).toUpperCase().padStart(4, "0") + "›");
}

// Running text: as `visible`, with spaces that may break.
export function plain(text) {
  return visible(String(text)).replace(/\u00a0/g, " ");
}

// A token as a chip: a leading space is shown as a small mark, so that " is" and "is" differ.
export function piece(text, attributes) {
  const space = /^ +/.exec(text);
  const lead = space ? h("span", { class: "lv-space", "aria-hidden": "true" }, "·".repeat(space[0].length)) : null;
  const rest = visible(space ? text.slice(space[0].length) : text);
  return h("bdi", { class: "lv-piece", ...attributes }, lead, rest || (space ? "" : "∅"));
}

// A sentence in parts (text, meaning): words of the glossary say what they mean when pointed at.
export function glossed(parts) {
  return parts.map(([text, meaning]) => (meaning ? h("abbr", { class: "lv-word", title: meaning }, text) : text));
}

export function format(x) {
  if (x === null || x === undefined) return "–";
  if (Number.isNaN(x)) return "NaN";
  if (!Number.isFinite(x)) return x > 0 ? "+inf" : "−inf";
  if (x === 0) return "0";
  const size = Math.abs(x);
  const text = size >= 1e5 || size < 1e-3 ? x.toExponential(2)
    : Number.isInteger(x) ? x.toLocaleString("en-US") : x.toPrecision(4);
  return text.replace("-", "−");
}

export function percent(p) {
  if (p === null || p === undefined) return "–";
  if (p > 0 && p < 0.0005) return "<0.1\u202f%";
  return (100 * p).toFixed(1) + "\u202f%";
}

export function shape(dimensions) {
  return "[" + dimensions.join(", ") + "]";
}

// A number on screen that says which of the engine's numbers it is.
export function value(text, exact, ref, attributes) {
  return h("span", { class: "lv-num", "data-value": exact, "data-ref": ref, ...attributes }, text);
}

// Python's str of a float, read back.
export function parse(text) {
  if (text === "nan") return NaN;
  if (text === "inf") return Infinity;
  if (text === "-inf") return -Infinity;
  if (text === "True") return 1;
  if (text === "False") return 0;
  return Number(text);
}

// -- colours ---------------------------------------------------------------------------------

const VIRIDIS = ["440154", "482878", "3e4a89", "31688e", "26828e", "1f9e89", "35b779", "6dcd59", "b4de2c", "fde725"];
// Blue for negative, orange for positive: told apart with every common colour blindness.
const SIGNED_LIGHT = ["08306b", "2166ac", "6baed6", "c6dbef", "f7f7f7", "fdd0a2", "fd8d3c", "d94801", "7f2704"];
const SIGNED_DARK = ["9ecae1", "6baed6", "4292c6", "2a5a8a", "26282b", "8a4b1c", "d9711f", "fd8d3c", "fdbe85"];

function ramp(stops, n) {
  const rgb = stops.map((s) => [0, 2, 4].map((i) => parseInt(s.slice(i, i + 2), 16)));
  const out = [];
  for (let i = 0; i < n; i++) {
    const t = (i / (n - 1)) * (stops.length - 1), k = Math.min(stops.length - 2, Math.floor(t)), f = t - k;
    out.push(rgb[k].map((c, j) => Math.round(c * (1 - f) + rgb[k + 1][j] * f)));
  }
  return out;
}

export function isDark(root) {
  const m = /rgba?\(([^)]*)\)/.exec(getComputedStyle(root).backgroundColor);
  if (!m) return false;
  const [r, g, b] = m[1].split(/[ ,/]+/).map(Number);
  return 0.299 * r + 0.587 * g + 0.114 * b < 128;
}

const tables = new Map();

// 256 colours as little-endian RGBA words. 253, 254, 255: −inf, +inf, NaN.
export function colours(signed, dark, empty) {
  const key = `${signed} ${dark} ${empty}`;
  if (!tables.has(key)) {
    const table = new Uint32Array(256), stops = ramp(signed ? (dark ? SIGNED_DARK : SIGNED_LIGHT) : VIRIDIS, 253);
    stops.forEach(([r, g, b], i) => { table[i] = (255 << 24) | (b << 16) | (g << 8) | r; });
    table[253] = dark ? 0xff4a4542 : 0xffc9c4c0;
    table[254] = 0xff00d7ff;
    table[255] = empty ? 0 : 0xffc800e6;
    tables.set(key, table);
  }
  return tables.get(key);
}

export function css(word) {
  return `rgb(${word & 255} ${(word >> 8) & 255} ${(word >> 16) & 255})`;
}

export function paint(canvas, bytes, rows, columns, table) {
  canvas.width = columns;
  canvas.height = rows;
  const context = canvas.getContext("2d"), image = context.createImageData(columns, rows);
  const words = new Uint32Array(image.data.buffer);
  for (let i = 0; i < words.length; i++) words[i] = table[bytes[i]];
  context.putImageData(image, 0, 0);
}

// The bytes of a trait, whatever the host hands over.
export function bytes(view) {
  if (!view) return new Uint8Array(0);
  return new Uint8Array(view.buffer || view, view.byteOffset || 0, view.byteLength);
}

export function numbers(view, Type) {
  const b = bytes(view);
  return new Type(b.slice().buffer, 0, Math.floor(b.byteLength / Type.BYTES_PER_ELEMENT));
}

// -- keyboard --------------------------------------------------------------------------------

// One tab stop for a row of things; arrows, Home and End move inside it.
export function roving(box, selector) {
  // Whether it can be seen is asked when a key is pressed: at every drawing it would cost a layout.
  const every = () => [...box.querySelectorAll(selector)].filter((n) => !n.disabled);
  const all = () => every().filter((n) => n.offsetParent !== null);
  const settle = (chosen) => {
    for (const n of box.querySelectorAll(selector)) n.tabIndex = n === chosen ? 0 : -1;
  };
  box.addEventListener("keydown", (e) => {
    const items = all(), at = items.indexOf(document.activeElement);
    if (at < 0) return;
    const to = { ArrowRight: at + 1, ArrowDown: at + 1, ArrowLeft: at - 1, ArrowUp: at - 1, Home: 0, End: items.length - 1 }[e.key];
    if (to === undefined || e.altKey || e.ctrlKey || e.metaKey) return;
    e.preventDefault();
    e.stopPropagation();
    const next = items[Math.max(0, Math.min(items.length - 1, to))];
    settle(next);
    next.focus();
  });
  box.addEventListener("focusin", (e) => { if (e.target.matches(selector)) settle(e.target); });
  return () => {
    const items = every().filter((n) => !n.closest("[hidden]"));
    const kept = items.find((n) => n.tabIndex === 0 && n === document.activeElement)
      || items.find((n) => n.getAttribute("aria-current") || n.getAttribute("aria-pressed") === "true") || items[0];
    settle(kept);
  };
}

// Where arrows, Home, End and the pages lead from a cell of a grid.
export function moved(key, [r, c], rows, columns) {
  const to = {
    ArrowUp: [r - 1, c], ArrowDown: [r + 1, c], ArrowLeft: [r, c - 1], ArrowRight: [r, c + 1],
    Home: [r, 0], End: [r, columns - 1], PageUp: [r - 8, c], PageDown: [r + 8, c],
  }[key];
  return to && [Math.max(0, Math.min(rows - 1, to[0])), Math.max(0, Math.min(columns - 1, to[1]))];
}

// -- a view and its kernel -------------------------------------------------------------------

const PATIENCE = 4000; // ms until a silent kernel is spoken of

const GONE = {
  title: "The kernel does not answer",
  text: "It may be busy with another cell, or it was restarted.",
  hint: "If it is busy, wait for it. If it was restarted, run the cell again: that makes a new panel.",
};

// Everything a zone needs: the model, a way to ask, the root, and clean-up.
export function createView({ model, el }, name, label, build) {
  const root = h("div", {
    class: "llmviz", "data-view": name, "data-draws": 0, "data-here": -1,
    "data-lm-suppress-shortcuts": "true", role: "region", "aria-label": label,
  });
  const live = h("div", { class: "lv-hidden", "aria-live": "polite" });
  const notice = h("div", { class: "lv-notice", role: "alert", hidden: true });
  // Plain keys belong to the view: a notebook around it would insert a cell on "b" and swallow
  // Enter in a field. Shift+Enter and keys with Ctrl or Alt stay the notebook's.
  root.addEventListener("keydown", (e) => {
    const notebooks = e.ctrlKey || e.metaKey || e.altKey || (e.shiftKey && e.key === "Enter");
    if (!notebooks) e.stopPropagation();
  });
  const endings = [], waiting = new Map();
  let next = 1, gone = false, draws = 0, closed = false, dismissed = "", dressed = false;

  const showNotice = (e) => {
    notice.replaceChildren();
    if (!e || !e.title) dismissed = "";
    notice.hidden = !e || !e.title || JSON.stringify(e) === dismissed;
    if (notice.hidden) return;
    notice.dataset.kind = e === GONE ? "gone" : "error";
    // Line by line: a caret under a condition stands where it belongs.
    const lines = String(e.text).split("\n").map((line) => plain(line));
    notice.append(h("strong", {}, e.title), h("span", { class: "lv-notice-text" }, lines.join("\n")), h("span", {}, e.hint),
      h("button", { type: "button", class: "lv-x", "aria-label": "Dismiss", title: "Dismiss", onclick: () => { notice.hidden = true; dismissed = JSON.stringify(e); } }, "×"));
  };
  const setGone = (is) => {
    if (gone === is) return;
    gone = is;
    if (is && host.onGone) host.onGone();
    showNotice(is ? GONE : model.get("error"));
  };

  const host = {
    model, root, el,
    redraw() { queueMicrotask(draw); },
    say(text) { const said = plain(text); if (live.textContent !== said) live.textContent = said; },
    on(event, listener) {
      model.on(event, listener);
      endings.push(() => model.off(event, listener));
    },
    onEnd(f) { endings.push(f); },
    set(name, to) { model.set(name, to); model.save_changes(); },
    // The answer comes with the state that belongs to it, in one message, where `inState` says so.
    ask(message, inState) {
      const id = `${Date.now().toString(36)}-${next++}`;
      return new Promise((resolve) => {
        const timer = setTimeout(() => setGone(true), PATIENCE);
        waiting.set(id, (reply) => { clearTimeout(timer); setGone(false); resolve(reply); });
        endings.push(() => clearTimeout(timer));
        try {
          model.send(inState ? { ...message, id, in_state: true } : { ...message, id });
        } catch {
          clearTimeout(timer);
          waiting.delete(id);
          setGone(true);
          resolve({ lost: true });
        }
      });
    },
  };

  const draw = () => {
    if (closed) return;
    if (!dressed) {
      dressed = true;
      root.dataset.theme = model.get("theme") || "auto";
      root.classList.toggle("lv-projector", !!model.get("projector"));
      host.dark = isDark(root);
    }
    if (!gone) showNotice(model.get("error"));
    for (const zone of zones) {
      if (zone.watch && !zone.dirty) continue; // a zone that says nothing is always drawn
      if (zone.hidden && zone.hidden()) continue; // it is drawn when it can be seen again
      zone.dirty = false;
      zone.draw();
    }
    root.dataset.here = model.get("here");
    root.dataset.draws = ++draws;
  };

  el.append(root);
  const engine = plain(model.get("engine") || "");
  if (engine) root.append(h("p", { class: "lv-engine", title: `Computed by ${engine}` }, h("b", {}, engine), " recorded, not live"));
  root.append(notice);
  const zones = build(host);
  root.append(live);
  const answered = (message) => {
    const done = waiting.get(message.reply);
    if (!done) return;
    waiting.delete(message.reply);
    done(message);
  };
  host.on("msg:custom", answered);
  // All of a message's traits are there before its answer is acted on.
  host.on("change:answered", () => { const reply = model.get("answered"); queueMicrotask(() => answered(reply || {})); });
  // A zone is drawn again when something it watches has changed. A message sets all that it brings
  // before the next microtask, whatever the order of its parts.
  for (const zone of zones) {
    zone.dirty = true;
    for (const name of zone.watch || []) host.on(`change:${name}`, () => { zone.dirty = true; });
  }
  const drawAll = () => { dressed = false; for (const zone of zones) zone.dirty = true; draw(); };
  host.on("change:rev", () => queueMicrotask(draw));
  for (const event of ["change:theme", "change:projector"]) host.on(event, () => queueMicrotask(drawAll));

  // A theme that changes under the view, and a width that changes, are followed.
  const later = () => { if (host.dark !== isDark(root)) drawAll(); };
  const watch = new MutationObserver(() => setTimeout(later, 60));
  for (const node of [document.documentElement, document.body]) {
    watch.observe(node, { attributes: true, attributeFilter: ["class", "theme", "data-jp-theme-light", "data-jp-theme-name", "data-vscode-theme-kind"] });
  }
  endings.push(() => watch.disconnect());
  const system = matchMedia("(prefers-color-scheme: dark)");
  system.addEventListener("change", later);
  endings.push(() => system.removeEventListener("change", later));
  let width = 0;
  const size = new ResizeObserver(([entry]) => {
    const now = Math.round(entry.contentRect.width);
    if (Math.abs(now - width) > 8) { width = now; drawAll(); }
  });
  size.observe(root);
  endings.push(() => size.disconnect());

  draw();
  return () => {
    closed = true;
    for (const end of endings.splice(0)) end();
    for (const zone of zones) if (zone.end) zone.end();
    root.remove();
  };
}

// A node's width as it was laid out last: asking the node itself while a view is being drawn would
// lay the page out once more for each who asks.
export function widthOf(host, node) {
  let known = 0;
  const size = new ResizeObserver(([entry]) => { known = node.clientWidth || entry.contentRect.width; });
  size.observe(node);
  host.onEnd(() => size.disconnect());
  return () => known || node.clientWidth;
}

// A view of one zone, on its own.
export function alone(name, label, makeZone) {
  return {
    render(context) {
      return createView(context, name, label, (host) => {
        const zone = makeZone(host);
        host.root.append(zone.node);
        return [zone];
      });
    },
  };
}

// A card: a title, a short remark beside it, a body.
export function card(title, attributes) {
  const remark = h("span", { class: "lv-remark" });
  const head = h("header", {}, h("h3", {}, title), remark);
  const body = h("div", { class: "lv-card-body" });
  return { node: h("section", { class: "lv-card", ...attributes }, head, body), head, body, remark };
}
