// Why these tokens? The text in boxes, the merges of one word as a film, two tokenizers side by side.
import { h, fill, alone, card, bytes, numbers, piece, visible, value, roving } from "./kit.js";
import { TOKENIZER_STYLE } from "./tokenizer_style.js";

const PAGE = 300;
const KINDS = ["token", "special token", "added token", "part of a character"];
const count = (n, one, many) => `${n.toLocaleString("en-US")} ${n === 1 ? one : many || one + "s"}`;
const hex = (b) => Array.from(b, (x) => x.toString(16).toUpperCase().padStart(2, "0")).join(" ");

export function tokenizerZone(host) {
  const { model } = host;
  const { node, body, remark } = card("Why these tokens?", { class: "lv-card lv-tok" });
  let timer = 0;
  const area = h("textarea", {
    rows: 2, spellcheck: "false", "aria-label": "The text to tokenize", "data-lm-suppress-shortcuts": "true", dir: "auto",
    oninput: () => { clearTimeout(timer); timer = setTimeout(() => host.set("text", area.value), area.value.length > 4000 ? 400 : 120); },
  });
  host.onEnd(() => { clearTimeout(timer); stop(); });
  const box = (trait, label, title) => {
    const input = h("input", { type: "checkbox", "data-setting": trait, onchange: () => host.set(trait, input.checked) });
    return { node: h("label", { title }, input, label), show: () => { input.checked = !!model.get(trait); } };
  };
  const settings = [
    box("add_special", "add BOS and EOS", "add_special: where the vocabulary wants them"),
    box("parse_special", "read special tokens", "parse_special: a text such as <|im_end|> becomes its token"),
    box("compare", "side by side", "The same text with another tokenizer, or with other settings"),
  ];
  const others = [
    box("other_add_special", "second: add BOS and EOS", "add_special of the second"),
    box("other_parse_special", "second: read special tokens", "parse_special of the second"),
  ];
  const pager = h("div", { class: "lv-tok-part" });
  const sides = h("div", {});
  const key = h("div", { class: "lv-tok-key" });
  const readout = h("output", { class: "lv-readout lv-tok-part" });
  const parting = h("div", { class: "lv-tok-part" });
  const films = h("div", { class: "lv-tok-films" });
  const control = h("div", { class: "lv-tok-control" });
  body.append(h("style", {}, TOKENIZER_STYLE), area, h("div", { class: "lv-row lv-tok-settings" }, settings.map((s) => s.node), others.map((s) => s.node)), parting, sides, pager, key, readout, films, control);
  let settle = [], shown = [], rulesOpen = false;

  // -- boxes ----------------------------------------------------------------------------------------
  const slice = (at, end) => {
    const from = model.get("bytes_from") || 0;
    return bytes(model.get("text_bytes")).slice(at - from, end - from);
  };
  const describe = (k, b) => {
    const where = b.end > b.start ? `bytes ${b.start}–${b.end - 1}` : "no bytes of the text";
    return `token ${b.index} of side ${k + 1}: id ${b.id}, ${KINDS[b.kind]}, ${where}: ${hex(slice(b.start, b.end))}`;
  };
  const point = (k, b) => {
    if (!b) return;
    fill(readout, piece(b.text), h("span", {}, `id ${b.id}`), h("code", {}, hex(slice(b.start, b.end)) || "no bytes"),
      h("span", { class: "lv-remark" }, `${KINDS[b.kind]} · token ${b.index} · ${b.end > b.start ? `bytes ${b.start} to ${b.end - 1} of the text` : "stands for no byte of the text"}`));
  };
  const drawSide = (k, side, differs) => {
    const flat = numbers(model.get(k ? "boxes_other" : "boxes"), Int32Array), texts = model.get(k ? "box_texts_other" : "box_texts") || [];
    const list = texts.map((text, i) => {
      const [id, start, end, kind, word, index] = flat.slice(6 * i, 6 * i + 6);
      return { id, start, end, kind, word, index, text };
    });
    shown[k] = list;
    const words = [];
    for (const b of list) {
      const last = words[words.length - 1];
      if (last && side.kind === "byte-pair" && b.word >= 0 && last[0].word === b.word) last.push(b); else words.push([b]);
    }
    const chosen = model.get("side") === k ? model.get("selected") : ((model.get("films") || [])[k] || { token: { index: -1 } }).token.index;
    const chip = (b) => h("button", {
      type: "button", class: "lv-tok-box", tabindex: -1, "data-token-id": b.id, "data-pos": b.index, "data-kind": b.kind, "data-side": k, "data-byte": b.start,
      "data-diff": differs && differs.index && differs.index[k] === b.index, "aria-pressed": String(b.index === chosen), "aria-label": `${visible(b.text)}, ${describe(k, b)}`,
    }, b.kind === 3 ? h("bdi", { class: "lv-piece" }, hex(slice(b.start, b.end))) : piece(b.text), h("span", { class: "lv-tok-id", "aria-hidden": "true" }, String(b.id)));
    const boxes = h("div", { class: "lv-tok-boxes", role: "group", "aria-label": `Tokens of ${side.name}. Arrow keys move.` }, words.map((w) => h("span", { class: "lv-tok-word" }, w.map(chip))));
    const find = (e) => { const t = e.target.closest && e.target.closest("[data-pos]"); return t && list.find((b) => b.index === Number(t.dataset.pos)); };
    boxes.addEventListener("pointerover", (e) => point(k, find(e)));
    boxes.addEventListener("focusin", (e) => point(k, find(e)));
    boxes.addEventListener("click", (e) => {
      const b = find(e);
      if (!b) return;
      stop();
      model.set("side", k);
      host.set("selected", b.index);
    });
    settle.push(roving(boxes, "[data-pos]"));
    const what = [side.kind, side.pre, `${side.n_vocab.toLocaleString("en-US")} tokens to choose from`].filter(Boolean).join(" · ");
    const two = model.get("compare") ? ` · ${side.add_special ? "adds" : "does not add"} BOS and EOS, ${side.parse_special ? "reads" : "does not read"} special tokens` : "";
    return h("div", { class: "lv-tok-side", "data-side": k },
      h("div", { class: "lv-tok-head" }, h("b", {}, side.name), h("span", { class: "lv-tok-count", "data-value": side.n, "data-ref": `n_tokens[${k}]` }, count(side.n, "token")),
        h("span", { class: "lv-remark" }, `${count(side.n_bytes, "byte")}${side.kind === "byte-pair" ? ` in ${count(side.n_words, "word")}` : ""} · ${what}${two}`)),
      side.notes.map((n) => h("p", { class: "lv-remark" }, n)),
      boxes,
      side.rules.length ? h("details", { class: "lv-tok-rules", open: rulesOpen, ontoggle: (e) => { rulesOpen = e.target.open; } }, h("summary", {}, `How words are cut: ${count(side.rules.length, "rule")}`), side.rules.map((r) => h("code", {}, visible(r)))) : null,
      side.n ? null : h("p", { class: "lv-empty" }, "No tokens: write some text."));
  };

  // -- the film -------------------------------------------------------------------------------------
  let at = 0, playing = 0, of = "", jump = false;
  const stop = () => { clearInterval(playing); playing = 0; const b = control.querySelector("[data-action=film-play]"); if (b) b.textContent = "Play"; };
  const length = () => Math.max(0, ...(model.get("films") || []).map((f) => f.merges.length));
  const go = (to, spoken) => { at = Math.max(0, Math.min(length(), to)); drawFilms(spoken); };
  const play = () => {
    if (playing) { stop(); return; }
    if (at >= length()) go(0);
    playing = setInterval(() => { go(at + 1); if (at >= length()) stop(); }, 900);
    control.querySelector("[data-action=film-play]").textContent = "Pause";
  };
  // Symbols after the first n joins: a joined right place belongs to the symbol before it.
  const symbols = (f, n) => {
    const inner = new Set(f.merges.slice(0, n).map((m) => m.b)), out = [];
    f.symbols.forEach((s, place) => {
      if (inner.has(place)) {
        const last = out[out.length - 1];
        last.text += s.text;
        last.hex += " " + s.hex;
      } else out.push({ place, text: s.text, hex: s.hex });
    });
    const done = f.merges[n - 1], next = f.merges[n];
    // Bytes that are no whole character are written \xNN until they are: ask the merge for its name.
    for (const s of out) {
      const made = f.merges.slice(0, n).reverse().find((m) => m.a === s.place);
      if (made) s.text = made.result;
      s.fresh = done && s.place === done.a;
      s.next = next && (s.place === next.a ? "left" : s.place === next.b ? "right" : null);
    }
    return out;
  };
  const number = (m) => (m.rank !== null ? `rank ${m.rank.toLocaleString("en-US")}` : `score ${m.score}`);
  const how = (f) => {
    const k = f.token.kind;
    if (k === 1) return "a special token: cut out of the text before anything else happens to it";
    if (k === 2) return "added by the tokenizer, because the vocabulary asks for it";
    if (!f.merges.length) return f.symbols.length === 1 ? "one symbol: there is nothing to merge" : "no two neighbours may be merged";
    return "";
  };
  // Kinds that take whole tokens: which one, what was passed over, what the other ways would cost.
  const FOUND = {
    wpm: "the longest token that begins the rest of the word", rwkv: "the longest token that begins the rest of the text",
    ugm: "on the path with the highest sum of scores", plamo2: "on the path with the highest sum of scores, found from the end",
  };
  const drawFound = (f, k) => {
    const d = f.found;
    const say = d.bytes ? ["no token has this character: it is written as bytes"]
      : d.unknown ? [piece(d.text), ` is in no token here: the unknown token ${d.id} stands for it`]
        : [piece(d.text), ` · token ${d.id} · ${FOUND[d.kind] || ""}`];
    const shorter = d.shorter && d.shorter.length ? h("p", { class: "lv-remark" }, "Shorter tokens that begin it too, passed over: ", d.shorter.flatMap((s, i) => [i ? ", " : "", piece(s.text), ` ${s.id}`])) : null;
    const list = d.choices && d.choices.length ? h("div", { class: "lv-tok-list" }, h("table", {}, h("thead", {}, h("tr", {}, (d.kind === "ugm" ? ["", "could end here", "token", "its score", "sum up to here"] : ["", "could begin here", "token", "its score", "sum to the end"]).map((t) => h("th", { scope: "col" }, t)))), h("tbody", {}, d.choices.map((c, i) => h("tr", { "data-choice": i, "aria-current": c.chosen ? "step" : null },
      h("td", {}, String(i + 1)), h("td", {}, piece(c.text)), h("td", {}, c.id < 0 ? "bytes" : String(c.id)), h("td", { "data-value": c.score, "data-ref": `choice[${i}].score` }, c.score.toFixed(3)), h("td", { "data-value": c.total, "data-ref": `choice[${i}].total` }, c.total.toFixed(3))))))) : null;
    return h("section", { class: "lv-tok-film", "data-film": k },
      h("header", {}, h("h4", {}, "How this token was found"), f.word ? piece(f.word.length > 40 ? f.word.slice(0, 40) + "…" : f.word) : null),
      h("p", { class: "lv-tok-say" }, say), shorter, list);
  };
  const drawFilm = (f, k, differ) => {
    if (f.found) return drawFound(f, k);
    const n = Math.min(at, f.merges.length), last = n === f.merges.length && f.merges.length > 0, m = f.merges[n - 1], next = f.merges[n];
    const row = f.symbols.length ? symbols(f, n) : [];
    const say = how(f) || (next && n === 0 ? ["first: ", ...pair(next), ` have the ${next.rank !== null ? "lowest rank" : "highest score"} of all neighbours, ${number(next)}`]
      : m ? [`${n} of ${f.merges.length}: `, ...pair(m), " → ", piece(m.result), ` · ${number(m)}`, m.id >= 0 ? ` · token ${m.id}` : " · not a token by itself"] : "");
    const list = f.merges.length ? h("div", { class: "lv-tok-list" }, h("table", {}, h("thead", {}, h("tr", {}, ["", "pair", "makes", f.merges[0].rank !== null ? "rank" : "score"].map((t) => h("th", { scope: "col" }, t)))), h("tbody", {}, f.merges.map((x, i) => h("tr", {
      "data-merge": i, "aria-current": i === n - 1 ? "step" : null, "data-todo": i >= n, "data-diff": differ === i, onclick: () => { stop(); go(i + 1, true); },
    }, h("td", {}, String(i + 1)), h("td", {}, piece(x.left), " + ", piece(x.right)), h("td", {}, piece(x.result)), h("td", { "data-value": x.rank !== null ? x.rank : x.score, "data-ref": `merge[${i}]` }, x.rank !== null ? x.rank.toLocaleString("en-US") : String(x.score))))))) : null;
    const part = f.char && f.token.kind === 3 ? h("span", { class: "lv-remark" }, "bytes of ", h("bdi", {}, visible(f.char))) : null;
    const long = f.n_symbols > f.symbols.length ? h("span", { class: "lv-remark" }, `${f.symbols.length} of the ${f.n_symbols.toLocaleString("en-US")} symbols that are merged together`) : null;
    return h("section", { class: "lv-tok-film", "data-film": k },
      h("header", {}, h("h4", {}, f.word ? "Merges of the word" : "This token"), f.word ? piece(f.word.length > 40 ? f.word.slice(0, 40) + "…" : f.word) : piece(f.token.text), part, long),
      row.length ? h("div", { class: "lv-tok-symbols" }, row.map((s) => h("span", { class: "lv-tok-symbol", "data-new": s.fresh && n > 0, "data-next": s.next, "data-token": last }, piece(s.text), s.hex.length <= 23 ? h("small", {}, s.hex.toUpperCase()) : null))) : null,
      h("p", { class: "lv-tok-say" }, say), list);
  };
  const pair = (m) => [piece(m.left), " + ", piece(m.right)];
  const drawFilms = (spoken) => {
    const list = model.get("films") || [], part = model.get("films_part");
    films.toggleAttribute("data-two", list.length > 1);
    fill(films, list.map((f, k) => drawFilm(f, k, list.length > 1 ? part : -1)));
    for (const r of films.querySelectorAll("tr[aria-current]")) r.parentNode.parentNode.parentNode.scrollTop = r.offsetTop - 60;
    const slider = control.querySelector("input");
    if (slider) { slider.max = length(); slider.value = at; }
    const label = control.querySelector("output");
    if (label) label.textContent = `merge ${at} of ${length()}`;
    control.hidden = length() === 0;
    if (spoken) host.say([...films.querySelectorAll(".lv-tok-say")].map((e) => e.textContent).join("; "));
  };
  const key_ = (e) => {
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: length() }[e.key];
    if (e.key === " ") { e.preventDefault(); play(); return; }
    if (to === undefined || e.altKey || e.ctrlKey || e.metaKey) return;
    e.preventDefault();
    stop();
    go(to, true);
  };
  const step = (label, action, title, to) => h("button", { type: "button", class: "lv-button lv-small", "data-action": action, title, "aria-label": title, onclick: () => { stop(); go(to(), true); } }, label);
  control.append(
    step("«", "film-start", "Before the first merge (Home)", () => 0), step("‹", "film-back", "One merge back (left arrow)", () => at - 1),
    h("button", { type: "button", class: "lv-button lv-small", "data-action": "film-play", title: "Play the merges (space)", onclick: play }, "Play"),
    step("›", "film-next", "One merge on (right arrow)", () => at + 1), step("»", "film-end", "After the last merge (End)", length),
    h("input", { type: "range", min: 0, max: 0, value: 0, "aria-label": "Merge", oninput: (e) => { stop(); go(Number(e.target.value), true); } }), h("output", { class: "lv-remark" }));
  control.addEventListener("keydown", (e) => { if (e.target.tagName !== "BUTTON" || e.key !== " ") key_(e); });

  const draw = () => {
    const list = model.get("sides") || [], differs = model.get("differs") || {}, first = model.get("first") || 0;
    if (document.activeElement !== area) area.value = model.get("text") || "";
    for (const s of [...settings, ...others]) s.show();
    for (const s of others) s.node.hidden = !model.get("compare");
    settle = [];
    shown = [];
    const focused = sides.contains(document.activeElement) ? document.activeElement.dataset : null;
    const tops = [...sides.querySelectorAll(".lv-tok-boxes")].map((b) => b.scrollTop);
    fill(sides, list.map((s, k) => drawSide(k, s, differs)));
    sides.querySelectorAll(".lv-tok-boxes").forEach((b, k) => { b.scrollTop = tops[k] || 0; });
    if (focused && focused.pos !== undefined) { const again = sides.querySelector(`[data-side="${focused.side}"][data-pos="${focused.pos}"]`); if (again) again.focus({ preventScroll: true }); }
    for (const f of settle) f();
    remark.textContent = "text → special tokens → words → merges → ids";
    const most = Math.max(0, ...list.map((s) => s.n)), end = Math.min(most, first + PAGE);
    pager.hidden = most <= PAGE;
    fill(pager, h("button", { type: "button", class: "lv-button lv-small", "data-action": "tokens-before", disabled: first <= 0, onclick: () => host.set("first", Math.max(0, first - PAGE)) }, "‹ before"),
      h("button", { type: "button", class: "lv-button lv-small", "data-action": "tokens-after", disabled: end >= most, onclick: () => host.set("first", first + PAGE) }, "after ›"),
      h("span", { class: "lv-remark" }, `showing tokens ${first.toLocaleString("en-US")} to ${(end - 1).toLocaleString("en-US")} of ${most.toLocaleString("en-US")}`));
    parting.hidden = list.length < 2;
    if (list.length > 1) {
      fill(parting, differs.index ? [h("strong", {}, `They part at byte `, value(differs.byte.toLocaleString("en-US"), differs.byte, "differs.byte")),
        h("span", { class: "lv-remark" }, differs.index[0] ? `the ${count(differs.index[0], "token")} before are the same` : "at the very first token"),
        h("button", { type: "button", class: "lv-button lv-small", "data-action": "show-difference", onclick: () => {
          of = "";
          jump = true;
          model.set("first", Math.floor(differs.index[0] / PAGE) * PAGE);
          model.set("side", 0);
          host.set("selected", Math.min(differs.index[0], list[0].n - 1));
        } }, "Show how")] : h("strong", {}, "Both give the same tokens"));
    }
    const kinds = new Set(shown.flat().map((b) => b.kind));
    fill(key, list.some((s) => s.kind === "byte-pair") ? h("span", {}, "touching boxes: one word") : null, kinds.has(1) ? h("span", {}, h("i", { style: "border-color:var(--lv-final);background:color-mix(in srgb,var(--lv-final) 15%,var(--lv-bg))" }), "special") : null,
      kinds.has(2) ? h("span", {}, h("i", { style: "border-color:var(--lv-final);border-style:dashed;background:none" }), "added") : null,
      kinds.has(3) ? h("span", {}, h("i", { style: "border-color:var(--lv-soft);border-style:dashed;background:none" }), "bytes that are no whole character, or a byte token") : null,
      h("span", {}, "click a box to see how it came about"));
    if (!readout.textContent) fill(readout, h("span", { class: "lv-remark" }, "Point at a token to read its bytes."));
    const now = JSON.stringify((model.get("films") || []).map((f) => [f.word, f.token.index]));
    if (now !== of) { at = jump ? Math.min(length(), Math.max(0, model.get("films_part")) + 1) : length(); jump = false; of = now; }
    drawFilms();
  };
  return { node, draw, watch: ["text", "sides", "boxes", "boxes_other", "box_texts", "box_texts_other", "text_bytes", "differs", "films", "films_part", "selected", "side", "first", "add_special", "parse_special", "compare", "other_add_special", "other_parse_special"], end: stop };
}

export default alone("tokenizer", "Why these tokens", tokenizerZone);
