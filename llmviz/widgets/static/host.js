// A page without a kernel around a view: the plain widget model, and the data that the page carries.

// A model that holds its own state: get, set, save_changes, send, on, off. Nobody answers.
export function stillModel(state) {
  const listeners = new Map(), changed = new Set();
  const fire = (event, ...a) => [...(listeners.get(event) || [])].forEach((f) => f(...a));
  return {
    get: (k) => state[k],
    set(k, v) { if (state[k] !== v) { state[k] = v; changed.add(k); } },
    save_changes() {
      const keys = [...changed];
      changed.clear();
      for (const k of keys) fire(`change:${k}`);
      fire("change:rev");
    },
    send(message) { queueMicrotask(() => fire("msg:custom", { reply: message.id, running: false }, [])); },
    on(event, f) { listeners.set(event, [...(listeners.get(event) || []), f]); },
    off(event, f) { listeners.set(event, (listeners.get(event) || []).filter((g) => g !== f)); },
    fire, heard: () => [...listeners].filter(([, f]) => f.length).map(([event]) => event),
  };
}

// What a data element of the page holds: base64 of bytes that were deflated.
export async function inflated(id) {
  const text = document.getElementById(id).textContent.trim();
  const packed = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

// Four-byte words that were stored byte by byte: first all lowest bytes, then all second ones ...
export function words(planes) {
  const n = planes.length / 4, out = new Uint8Array(planes.length);
  for (let b = 0; b < 4; b++) for (let i = 0; i < n; i++) out[4 * i + b] = planes[b * n + i];
  return { f: new Float32Array(out.buffer), i: new Int32Array(out.buffer) };
}

// Bytes as a model's state holds them.
export function unpacked(state, blob) {
  const out = {};
  for (const [k, v] of Object.entries(state)) out[k] = v && v.$ ? new DataView(blob.buffer, blob.byteOffset + v.$[0], v.$[1]) : v;
  return out;
}

// The page's own switches, and the view.
export async function show(view, model) {
  const root = document.documentElement, buttons = [...document.querySelectorAll("[data-theme-choice]")];
  const theme = (name) => {
    root.dataset.theme = name;
    for (const b of buttons) b.setAttribute("aria-pressed", String(b.dataset.themeChoice === name));
    model.set("theme", name);
    model.save_changes();
  };
  for (const b of buttons) b.addEventListener("click", () => theme(b.dataset.themeChoice));
  const large = document.querySelector("[data-page-projector]");
  const follow = () => {
    root.toggleAttribute("data-projector", !!model.get("projector"));
    large.setAttribute("aria-pressed", String(!!model.get("projector")));
  };
  large.addEventListener("click", () => { model.set("projector", !model.get("projector")); model.save_changes(); });
  model.on("change:projector", follow);
  await view.render({ model, el: document.getElementById("view") });
  theme(model.get("theme") || "auto");
  follow();
}
