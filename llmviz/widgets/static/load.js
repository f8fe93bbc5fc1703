// What happens before the first token? Seven steps, the cache's size as a formula, the model's numbers.
import { h, fill, alone, card, value, visible, roving } from "./kit.js";
import { LOAD_STYLE } from "./load_style.js";

const count = (n) => n.toLocaleString("en-US");
export const size = (n) => (n >= 2 ** 40 ? `${(n / 2 ** 40).toFixed(1)} TiB` : n >= 2 ** 30 ? `${(n / 2 ** 30).toFixed(2)} GiB` : n >= 2 ** 20 ? `${(n / 2 ** 20).toFixed(n < 100 * 2 ** 20 ? 2 : 1)} MiB` : n >= 1024 ? `${(n / 1024).toFixed(1)} KiB` : `${n} B`);
const time = (s) => (s >= 1 ? `${s.toFixed(2)} s` : 1000 * s < 0.1 ? "<0.1 ms" : `${(1000 * s).toFixed(s < 0.01 ? 1 : 0)} ms`);
const plural = (n, word) => `${count(n)} ${word}${n === 1 ? "" : "s"}`;
// A long name may go on in the next line after a dot or an underscore.
const broken = (name) => name.split(/(?<=[._])/).flatMap((part) => [part, h("wbr", {})]);
const STEP = 64, LEAST = 256, NOTCHES = 1000;

export function loadZone(host) {
  const { model } = host;
  const { node, body, remark } = card("What happens before the first token?", { class: "lv-card lv-load" });
  const steps = h("ol", { class: "lv-load-steps" }), note = h("p", { class: "lv-remark" });

  // -- the cache: what can be moved ------------------------------------------------------------------
  let timer = 0, wanted = null;
  host.onEnd(() => clearTimeout(timer));
  const move = (name, to) => { // a drag sends thirty values a second at most
    wanted = { ...wanted, [name]: to };
    if (timer) return;
    timer = setTimeout(() => {
      timer = 0;
      for (const [trait, v] of Object.entries(wanted || {})) model.set(trait, v);
      wanted = null;
      model.save_changes();
    }, 33);
  };
  const most = () => { const kv = model.get("kv") || {}; return Math.max(4096, kv.n_ctx_train || 0, (kv.own || {}).n_ctx || 0); };
  const at = (n) => Math.round((NOTCHES * Math.log2(Math.max(1, n / LEAST))) / Math.log2(most() / LEAST));
  const from = (place) => Math.max(LEAST, Math.round((LEAST * 2 ** ((place / NOTCHES) * Math.log2(most() / LEAST))) / STEP) * STEP);
  const slider = h("input", { type: "range", min: 0, max: NOTCHES, step: 1, "aria-label": "n_ctx, tokens that the cache holds", "data-load": "n_ctx-slider", oninput: () => { const n = from(Number(slider.value)); number.value = n; slider.setAttribute("aria-valuetext", count(n)); move("n_ctx", n); } });
  const number = h("input", { type: "number", min: 0, step: 1, "aria-label": "n_ctx", "data-load": "n_ctx", onchange: () => move("n_ctx", Math.max(0, Math.round(Number(number.value)) || 0)) });
  const sequences = h("input", { type: "number", min: 1, max: 256, step: 1, "aria-label": "n_seq_max", "data-load": "n_seq_max", onchange: () => move("n_seq_max", Math.max(1, Math.min(256, Math.round(Number(sequences.value)) || 1))) });
  const unified = h("input", { type: "checkbox", "data-load": "kv_unified", onchange: () => move("kv_unified", unified.checked) });
  const pick = (trait) => h("select", { "data-load": trait, "aria-label": trait, "data-lm-suppress-shortcuts": "true", onchange: (e) => move(trait, e.target.value) }, []);
  const typeK = pick("type_k"), typeV = pick("type_v");
  const own = h("button", { type: "button", class: "lv-button lv-small", "data-action": "load-reset", onclick: () => host.ask({ ask: "load-reset" }) });
  const controls = h("div", { class: "lv-row lv-load-controls" },
    h("label", { class: "lv-load-wide", title: "how many tokens the cache can hold; 0 takes the model's training length" }, h("code", {}, "n_ctx"), slider, number),
    h("label", { title: "how many sequences can be told apart" }, h("code", {}, "n_seq_max"), sequences),
    h("label", { title: "one stream of cells that all sequences share, instead of one each" }, unified, h("code", {}, "kv_unified")),
    h("label", {}, h("code", {}, "type_k"), typeK), h("label", {}, h("code", {}, "type_v"), typeV), own);
  const formula = h("div", { class: "lv-load-formula", "aria-live": "off" }), rules = h("ul", { class: "lv-load-rules lv-remark" });
  const bar = h("div", { class: "lv-load-bar", role: "img" }), key = h("div", { class: "lv-load-key" });
  const cache = h("section", { class: "lv-load-part", "aria-label": "Size of the KV cache" }, h("h4", {}, "The KV cache: what it will take"), controls, formula, rules,
    h("h5", {}, "Memory, drawn to scale"), bar, key);

  // -- weights and numbers ---------------------------------------------------------------------------
  const strips = h("div", { class: "lv-load-places", role: "group", "aria-label": "Layers and the devices they are on. Arrow keys move." });
  const readout = h("output", { class: "lv-readout" }), typeBar = h("div", { class: "lv-load-bar", role: "img" }), typeKey = h("div", { class: "lv-load-key" });
  const weightsHead = h("h4", {}, "Where the weights are"), placesTable = h("div", { class: "lv-hidden" });
  const weights = h("section", { class: "lv-load-part", "aria-label": "Weights" }, weightsHead, strips, readout, typeBar, typeKey, placesTable);
  const settle = roving(strips, "button");
  const numbers = h("table", { class: "lv-load-numbers" }), numbersHead = h("h4", {}, "Hyperparameters");
  const hparams = h("section", { class: "lv-load-part", "aria-label": "Hyperparameters" }, numbersHead, h("div", { class: "lv-load-scroll", tabindex: 0, role: "group", "aria-label": "Hyperparameters; scrolls" }, numbers));
  const two = h("div", { class: "lv-load-two" }, h("div", {}, cache, weights), hparams);
  body.append(h("style", {}, LOAD_STYLE), steps, note, two);

  const drawSteps = () => {
    const list = model.get("steps") || [], about = model.get("about") || {};
    remark.textContent = [visible(about.name || "").replace(/\u00a0/g, " "), about.seconds !== null && about.seconds !== undefined ? `${time(about.seconds)} so far measured` : ""].filter(Boolean).join(" · ");
    note.textContent = about.note || "";
    note.hidden = !about.note;
    const longest = Math.max(0, ...list.map((s) => s.seconds || 0));
    const word = { later: "not yet", before: "before this run", now: "now" };
    fill(steps, list.map((s) => h("li", { "data-state": s.state, "data-step": s.number, "aria-current": s.state === "now" ? "step" : null },
      h("span", { class: "lv-load-n" }, String(s.number)), h("span", { class: "lv-load-title" }, s.title),
      h("span", { class: "lv-load-time" }, s.seconds === null ? h("span", { class: "lv-remark" }, word[s.state] || "") : value(time(s.seconds), s.seconds, `seconds[${s.number}]`)),
      h("span", { class: "lv-load-span", "aria-hidden": "true" }, s.seconds === null ? null : h("i", { style: `width:${longest ? (100 * s.seconds) / longest : 0}%` })),
      h("span", { class: "lv-load-found" }, visible(s.found).replace(/\u00a0/g, " ")))));
  };

  const factor = (n, label, ref) => h("span", { class: "lv-load-factor" }, value(typeof n === "number" ? count(n) : n, n, ref), h("small", {}, label));
  const times = () => h("span", { class: "lv-load-times" }, "×");
  const drawFormula = () => {
    const kv = model.get("kv") || {}, terms = kv.terms || [], mine = kv.own || {};
    const focus = document.activeElement;
    if (focus !== slider || !terms.length) slider.value = at(model.get("n_ctx") || kv.n_ctx_train || LEAST);
    slider.setAttribute("aria-valuetext", count(model.get("n_ctx") || kv.n_ctx_train || 0));
    if (focus !== number) number.value = model.get("n_ctx");
    if (focus !== sequences) sequences.value = model.get("n_seq_max");
    unified.checked = !!model.get("kv_unified");
    for (const [select, trait] of [[typeK, "type_k"], [typeV, "type_v"]]) {
      if (select.options.length !== (kv.types || []).length) fill(select, (kv.types || []).map((k) => h("option", { value: k }, k)));
      select.value = model.get(trait);
    }
    const same = mine.nbytes !== undefined && ["n_seq_max", "kv_unified", "type_k", "type_v"].every((k) => model.get(k) === mine[k]) && model.get("n_ctx") === mine.asked;
    own.hidden = mine.nbytes === undefined || same;
    own.textContent = `as the context has it (n_ctx ${count(mine.n_ctx || 0)})`;
    if (kv.reason) {
      fill(formula, h("p", { class: "lv-empty" }, visible(kv.reason).replace(/\u00a0/g, " ")), mine.nbytes !== undefined ? h("p", {}, "The context has ", value(size(mine.nbytes), mine.nbytes, "memory.total_size"), ".") : null);
      fill(rules);
      return same;
    }
    const heads = (x) => (kv.n_head_kv ? `${kv.n_head_kv} KV head${kv.n_head_kv === 1 ? "" : "s"} × ${x.what === "K" ? kv.n_embd_head_k : kv.n_embd_head_v}` : `values of a token`);
    const each = (x, i) => (x.block_size === 1 ? factor(x.type_size, `bytes (${x.type})`, `kv.terms[${i}].type_size`)
      : h("span", { class: "lv-load-factor" }, value(`${x.type_size}/${x.block_size}`, x.type_size / x.block_size, `kv.terms[${i}].type_size`), h("small", {}, `bytes (${x.type}: ${x.type_size} for ${x.block_size})`)));
    const line = (x, i) => h("div", { class: `lv-load-line lv-load-${x.what}` }, h("b", {}, x.what, x.layers || x.window ? h("small", { class: "lv-load-which" }, [x.layers ? `layers ${x.layers}` : "", x.window ? `window ${count(x.window)}` : ""].filter(Boolean).join(", ")) : null),
      factor(x.n_layer, x.n_layer === 1 ? "layer" : "layers", `kv.terms[${i}].n_layer`), times(),
      x.n_stream > 1 ? [factor(x.n_stream, "sequences", `kv.terms[${i}].n_stream`), times()] : null,
      factor(x.n_cells, "cells", `kv.terms[${i}].n_cells`), times(), factor(x.width, heads(x), `kv.terms[${i}].width`), times(),
      each(x, i), h("span", { class: "lv-load-times" }, "="),
      h("span", { class: "lv-load-factor lv-load-product" }, value(size(x.nbytes), x.nbytes, `kv.terms[${i}].nbytes`), h("small", {}, `${count(x.nbytes)} bytes`)));
    fill(formula, terms.map(line), h("p", { class: "lv-load-sum" }, "K + V = ", h("b", {}, value(size(kv.nbytes), kv.nbytes, "kv.nbytes")), h("span", { class: "lv-remark" }, terms.some((x) => x.window) ? "" : ` · ${size(kv.per_token)} for each of ${plural(kv.n_ctx, "cell")}`),
      same ? h("span", { class: "lv-tag lv-load-own", "data-value": mine.nbytes, "data-ref": "memory.total_size" }, mine.nbytes === kv.nbytes ? "as allocated" : `allocated: ${size(mine.nbytes)}`) : h("span", { class: "lv-tag" }, "worked out, nothing allocated")));
    fill(rules, (kv.rules || []).map((r) => h("li", {}, r)));
    return same;
  };

  const scale = (box, keys, parts, what) => {
    const there = parts.filter((p) => p.n > 0);
    box.setAttribute("aria-label", there.map((p) => `${p.name} ${size(p.n)}`).join(", ") || "nothing");
    fill(box, there.map((p) => h("span", { class: p.class, style: `flex:${p.n} 1 0`, title: `${p.name}: ${count(p.n)} bytes`, "data-part": p.id })));
    fill(keys, there.map((p) => h("span", { class: p.class }, h("i"), h("strong", {}, p.name), " ", value(size(p.n), p.n, `${what}.${p.id}`), p.more ? h("span", { class: "lv-remark" }, ` ${p.more}`) : null)));
  };
  const drawMemory = (same) => {
    const w = model.get("weights") || {}, kv = model.get("kv") || {};
    const mapped = !w.memory;
    scale(bar, key, [
      { id: "weights", name: mapped ? "weights, in the file" : "weights", n: mapped ? w.file : w.memory, class: "lv-seg-0" },
      { id: "k", name: "K", n: kv.k || 0, class: "lv-seg-1" }, { id: "v", name: "V", n: kv.v || 0, class: "lv-seg-2" },
      { id: "copies", name: "K and V again as float32", n: same ? w.copies : 0, class: "lv-seg-3", more: "this engine's, while it attends" },
      { id: "compute", name: "graphs' working memory", n: same ? w.compute : 0, class: "lv-seg-4" },
    ], "memory");
  };

  let places = [], told = -1;
  const tell = (i, spoken) => {
    const p = places[i];
    told = i;
    if (!p) { readout.textContent = ""; return; }
    const name = p.what === "input" ? "token embeddings" : p.what === "output" ? "output" : `layer ${p.what}`;
    const text = `${name}: ${plural(p.n, "tensor")}, ${size(p.file)} in the file${p.memory ? `, ${size(p.memory)} in memory` : ""}${p.device ? `, on ${p.device}` : ""}`;
    readout.textContent = text;
    if (spoken) host.say(text);
  };
  strips.addEventListener("pointerover", (e) => { const b = e.target.closest("[data-place]"); if (b) tell(Number(b.dataset.i)); });
  strips.addEventListener("focusin", (e) => { const b = e.target.closest("[data-place]"); if (b) tell(Number(b.dataset.i), true); });
  const heldBy = (m, at) => {
    if (!m) return null;
    const parts = [["weights", "weights", 0], ["kv", "KV cache", 1], ["compute", "graphs' working memory", 4]].filter(([k]) => m[k] > 0);
    const used = m.weights + m.kv + m.compute, whole = m.device === "CPU" || !m.total ? used : m.total;
    const of = m.device === "CPU" || !m.total ? "" : ` of ${size(m.total)}`;
    return h("div", { class: "lv-load-held", "data-device": m.device },
      h("div", { class: "lv-load-bar", role: "img", "aria-label": `${m.device}: ${parts.map(([k, name]) => `${name} ${size(m[k])}`).join(", ")}${of}` }, parts.map(([k, name, c]) => h("span", { class: `lv-seg-${c}`, style: `flex:${m[k]} 1 0`, title: `${name}: ${count(m[k])} bytes` })), whole > used ? h("span", { class: "lv-load-free", style: `flex:${whole - used} 1 0`, title: `free: ${count(whole - used)} bytes` }) : null),
      h("p", { class: "lv-load-key" }, parts.map(([k, name, c]) => h("span", { class: `lv-seg-${c}` }, h("i"), name, " ", value(size(m[k]), m[k], `memory[${at}].${k}`))), of ? h("span", { class: "lv-remark" }, `${size(used)}${of}`) : null));
  };
  const drawWeights = () => {
    const w = model.get("weights") || {}, held = model.get("memory") || [];
    places = model.get("places") || [];
    weights.hidden = !places.length;
    const devices = [...new Set([...places.map((p) => p.device), ...held.map((m) => m.device)])];
    const focused = strips.contains(document.activeElement) ? document.activeElement.dataset.i : null;
    strips.style.setProperty("--lv-load-name", `${Math.max(4.5, 0.64 * Math.max(...devices.map((d) => d.length)))}em`);
    weightsHead.textContent = w.loaded ? "Layers and the devices they are on" : "Layers in the file";
    fill(strips, devices.map((d, k) => h("div", { class: "lv-load-device" }, h("b", {}, visible(d) || (w.loaded ? "not recorded" : "not loaded")),
      h("div", { class: `lv-load-strip lv-seg-${1 + (k % 5)}` }, places.map((p, i) => (p.device !== d ? null : h("button", { type: "button", tabindex: -1, "data-place": p.what, "data-i": i, "data-device": p.device, "aria-label": `${p.what === "input" ? "token embeddings" : p.what === "output" ? "output" : `layer ${p.what}`}, ${size(p.file)}, ${p.device || "no device"}` },
        p.what === "input" ? "embeddings" : p.what === "output" ? "output" : p.what)))), heldBy(held.find((m) => m.device === d), held.findIndex((m) => m.device === d)))));
    settle();
    if (focused !== null) { const again = strips.querySelector(`[data-i="${focused}"]`); if (again) again.focus({ preventScroll: true }); }
    if (told >= 0 && places[told]) tell(told); else readout.textContent = `${plural((model.get("types") || []).reduce((n, x) => n + x.n, 0), "tensor")}: ${w.how}`;
    scale(typeBar, typeKey, (model.get("types") || []).map((x, i) => ({ id: x.type, name: x.type, n: x.file, class: `lv-seg-${1 + (i % 5)}`, more: `in the file${x.memory ? `, ${size(x.memory)} in memory` : ""}, ${plural(x.n, "tensor")}` })), "types");
    fill(placesTable, h("table", {}, h("caption", {}, "Where the weights are"), h("thead", {}, h("tr", {}, ["part", "device", "tensors", "bytes in the file", "bytes in memory"].map((x) => h("th", { scope: "col" }, x)))), h("tbody", {}, places.map((p) => h("tr", {}, [p.what, p.device, p.n, p.file, p.memory].map((x) => h("td", {}, String(x))))))));
  };

  const drawNumbers = () => {
    const read = model.get("hparams") || [], all = model.get("n_hparams") || 0, reading = read.length < all && (model.get("about") || {}).step === 4;
    const list = reading ? [...read].reverse() : read; // what was read now stands on top
    hparams.hidden = !all;
    numbersHead.textContent = list.length < all ? `Hyperparameters: ${list.length} of ${all} read so far${reading ? ", the newest first" : ""}` : `Hyperparameters: ${list.filter((x) => x.key).length} of ${list.length} from the file`;
    fill(numbers, h("caption", { class: "lv-hidden" }, "Hyperparameters and where each came from"), h("thead", {}, h("tr", {}, ["name", "value", "came from"].map((x) => h("th", { scope: "col" }, x)))),
      h("tbody", {}, list.map((x, i) => h("tr", { "data-hparam": x.name, "aria-current": reading && i === 0 ? "true" : null, "data-key": x.key || null }, h("th", { scope: "row" }, h("code", {}, broken(x.name))), h("td", { title: x.value }, value(visible(x.value).replace(/\u00a0/g, " "), x.value, `hparams.${x.name}`)),
        x.key ? h("td", {}, h("code", {}, broken(visible(x.key))), " ", h("code", { class: "lv-remark", "data-type": x.type }, x.type), x.why ? h("span", { class: "lv-remark" }, ` ${x.why}`) : null)
          : h("td", { class: "lv-remark" }, visible(x.why).replace(/\u00a0/g, " "))))));
  };

  const draw = () => {
    drawSteps();
    const kv = model.get("kv") || {};
    cache.hidden = !kv.known && (kv.own || {}).nbytes === undefined;
    two.classList.toggle("lv-load-reading", (model.get("about") || {}).step === 4); // what is read now comes first
    drawMemory(drawFormula());
    drawWeights();
    drawNumbers();
  };
  return { node, draw };
}

export default alone("load", "What happens before the first token", loadZone);
