// How was this token chosen? The sampler chain as a filmstrip: one column for each sampler, one lane
// for each candidate that ends where it is cut, and the random draw on the cumulative line.
import { h, fill, alone, card, numbers, piece, percent, format, value, visible, moved } from "./kit.js";
import { driver } from "./driver.js";
import { SAMPLER_STYLE } from "./sampler_style.js";

const DECADES = 5; // of the logarithmic scale: 0.001 % to 100 %

export function samplerZone(host) {
  const { model, ask } = host;
  const { node, body, head, remark } = card("How the token is chosen", { class: "lv-card lv-film" });
  const before = h("button", { type: "button", class: "lv-button lv-small", "data-action": "sampler-before", "aria-label": "The token before", title: "The token before", onclick: () => ask({ ask: "sampler-token", by: -1 }) }, "‹");
  const after = h("button", { type: "button", class: "lv-button lv-small", "data-action": "sampler-after", "aria-label": "The token after", title: "The token after", onclick: () => ask({ ask: "sampler-token", by: 1 }) }, "›");
  const scale = h("button", { type: "button", class: "lv-button lv-small", "aria-pressed": "false", "data-action": "sampler-log", title: "Bars on a logarithmic scale: small probabilities become visible", onclick: () => { log = !log; scale.setAttribute("aria-pressed", String(log)); draw(); } }, "log scale");
  head.append(h("span", { class: "lv-grow" }), h("span", { class: "lv-pager" }, before, after), scale);
  const result = h("div", { class: "lv-film-result" });
  const scroll = h("div", { class: "lv-film-scroll" });
  const key = h("div", { class: "lv-film-key" });
  const whys = h("dl", { class: "lv-film-whys" });
  const line = h("div", { class: "lv-draw" });
  const readout = h("output", { class: "lv-readout lv-remark" });
  const empty = h("p", { class: "lv-empty" });
  body.append(h("style", {}, SAMPLER_STYLE), empty, result, scroll, key, whys, line, readout);
  let log = false, built = "", cells = [], parts = [], at = [0, 0], most = 1;

  // -- another parameter: one question on its way at a time, the newest counts ---------------------
  let asking = false, wanted = null;
  const attempt = async (changes) => {
    wanted = changes;
    if (asking) return;
    asking = true;
    while (wanted) {
      const next = wanted;
      wanted = null;
      const reply = await ask({ ask: "sampler-try", changes: next });
      if (reply.error) { for (const p of parts) p.reset(); break; }
    }
    asking = false;
  };
  const change = (index, name, to, was) => {
    const now = { ...(wanted || model.get("what_if") || {}) }, own = { ...(now[index] || {}) };
    if (to === was) delete own[name]; else own[name] = to;
    now[index] = own;
    attempt(now);
  };

  // A parameter: a slider where its ends are known, and always a number.
  const control = (frame, p) => {
    const say = `${frame.name}: ${p.name}`;
    const read = (text) => { const x = Number(text); return text.trim() === "" || Number.isNaN(x) ? null : p.whole ? Math.round(x) : x; };
    let shown = p;
    const take = (e, other) => {
      const x = read(e.target.value);
      if (x === null) return;
      if (other) other.value = x;
      change(frame.index, p.name, x, shown.was);
    };
    const number = h("input", { type: "number", step: p.step || "any", "aria-label": say, "data-param": `${frame.index}.${p.name}`, onchange: (e) => take(e, slider) });
    const slider = p.low === null ? null : h("input", { type: "range", min: p.low, max: p.high, step: p.step, "aria-label": say, "data-slider": `${frame.index}.${p.name}`, oninput: (e) => take(e, number) });
    const label = h("label", { class: "lv-film-param", title: p.name }, h("span", {}, p.name.replace(/^(penalty|dry)_/, "").replace(/_/g, " ")), number, slider);
    const show = (now) => {
      shown = now;
      label.toggleAttribute("data-moved", now.value !== now.was);
      // Where only a recording is there, the numbers are shown and cannot be moved.
      const recorded = !!(model.get("strip") || {}).recorded;
      number.disabled = recorded;
      if (slider) slider.hidden = recorded;
      for (const input of [number, slider]) if (input && document.activeElement !== input) input.value = now.value;
    };
    return { label, show, reset: () => show(shown) };
  };

  // -- the table: built once for a chain, then only its numbers change -------------------------------
  const build = (s) => {
    const frames = s.frames;
    parts = [];
    const heads = [], controls = [];
    frames.forEach((f, i) => {
      const ordered = [...f.params].sort((a, b) => (a.low === null) - (b.low === null));
      const mine = ordered.map((p) => ({ p, ...control(f, p) }));
      parts.push(...mine);
      // What is off, and min_keep and the like, is seldom turned: it waits behind a word.
      const first = mine.slice(0, f.off ? 0 : 1), more = mine.slice(f.off ? 0 : 1);
      const word = f.off ? "set" : more.length === 1 ? more[0].p.name.replace("_", " ") : "more";
      const last = i === frames.length - 1;
      const off = f.off ? "lv-film-off" : "";
      const count = h("span", { class: "lv-film-count" });
      const th = h("th", { scope: "col", class: off, "data-frame": i + 1, "data-last": last, "data-sampler": f.name }, h("span", { class: "lv-film-name" }, f.name), count);
      heads.push(th);
      th.count = count;
      controls.push(h("th", { class: off, "data-frame": i + 1, "data-last": last }, first.map((c) => c.label), more.length ? h("details", {}, h("summary", {}, word), more.map((c) => c.label)) : null));
    });
    const rest = [null, ...frames].map((f, stage) => h("td", { "data-frame": stage, "data-last": stage === frames.length, class: f && f.off ? "lv-film-off" : "" }, h("div", { class: "lv-film-cell" }, h("span", {}), h("span", { class: "lv-film-p" }))));
    const why = frames.map((f, i) => h("td", { "data-frame": i + 1, "data-last": i === frames.length - 1, "data-why": f.name }));
    const raw = h("th", { scope: "col", "data-frame": 0 }, h("span", { class: "lv-film-name" }, "logits"), h("span", { class: "lv-film-count" }, "raw p"));
    const table = h("table", { "aria-label": "Candidates after each sampler. Arrow keys move." },
      h("colgroup", {}, h("col", { class: "lv-film-tokens" }), h("col"), frames.map((f) => h("col", { class: f.off ? "lv-film-narrow" : "" }))),
      h("thead", {}, h("tr", {}, h("th", {}, h("span", { class: "lv-hidden" }, "token")), raw, heads), h("tr", {}, h("th"), h("th", { "data-frame": 0 }), controls)),
      h("tbody", {}),
      h("tfoot", {}, h("tr", { class: "lv-film-others" }, h("th", { scope: "row" }), rest), h("tr", { class: "lv-film-why" }, h("th", { scope: "row" }, "why"), h("td", { "data-frame": 0 }, `softmax of all ${s.n_vocab.toLocaleString("en-US")} logits`), why)));
    fill(scroll, table);
    Object.assign(table, { heads, rest, why });
    table.addEventListener("keydown", (e) => {
      const td = e.target.closest("td[data-row]");
      if (!td) return;
      if (e.key === "Escape") { td.blur(); return; }
      const to = moved(e.key, [Number(td.dataset.row), Number(td.dataset.frame)], cells.length, frames.length + 1);
      if (!to) return;
      e.preventDefault();
      e.stopPropagation();
      focus(to, true);
    });
    const point = (e, spoken) => { const td = e.target.closest("td[data-row]"); if (td) read(Number(td.dataset.row), Number(td.dataset.frame), spoken); };
    table.addEventListener("focusin", (e) => point(e, true));
    table.addEventListener("pointerover", (e) => point(e, false));
    cells = [];
  };
  // As many lanes as there are candidates to show; the heads stay, so that a slider keeps the focus.
  const buildLanes = () => {
    const cell = (f, stage, r) => {
      const bars = h("span", { class: "lv-film-bars" }), p = h("span", { class: "lv-film-p" });
      const bit = (kind) => { const b = h("i", { class: `lv-film-${kind}`, hidden: true }); bars.append(b); return b; };
      const td = h("td", { class: f && f.off ? "lv-film-off" : "", tabindex: -1, "data-frame": stage, "data-last": stage === frames.length, "data-row": r }, h("div", { class: "lv-film-cell" }, h("span", { class: "lv-film-lane" }), bars, p));
      return { td, p, ghost: bit("ghost"), bar: bit("bar"), was: bit("was"), line: bit("line"), sum: bit("sum") };
    };
    cells = rows.map((_, r) => [null, ...frames].map((f, stage) => cell(f, stage, r)));
    fill(scroll.querySelector("tbody"), cells.map((line) => h("tr", {}, h("th", { scope: "row" }), line.map((c) => c.td))));
    at = [0, 0];
    cells[0][0].td.tabIndex = 0;
  };
  const focus = (to) => {
    cells[at[0]][at[1]].td.tabIndex = -1;
    at = to;
    cells[at[0]][at[1]].td.tabIndex = 0;
    cells[at[0]][at[1]].td.focus();
  };

  // -- numbers --------------------------------------------------------------------------------------
  let p = [], was = [], rows = [], frames = [];
  const N = (a, stage, r) => a[stage * rows.length + r];
  const state = (stage, r) => {
    if (!(N(p, stage, r) > 0)) return stage > 0 && N(p, stage - 1, r) > 0 ? "cut" : stage === 0 ? "left" : "gone";
    return "left";
  };
  const x = (q) => (log ? Math.max(0, 1 + Math.log10(Math.max(q, 1e-30)) / DECADES) : Math.min(1, q / most)) * 100;
  const read = (r, stage, spoken) => {
    const f = frames[stage - 1], name = `“${visible(rows[r].text)}” (token ${rows[r].id})`, how = state(stage, r);
    const text = !f ? `${name}: logit ${format(rows[r].logit)}, raw probability ${percent(N(p, 0, r))}`
      : how === "gone" ? `${name} was cut before ${f.name}`
      : how === "cut" ? `${name}: cut by ${f.name}, had ${percent(N(p, stage - 1, r))}. ${f.why}`
      : `${name}: ${percent(N(p, stage - 1, r))} before ${f.name}, ${percent(N(p, stage, r))} after it`;
    readout.textContent = text;
    if (spoken) host.say(text);
  };

  const drawCells = (s, table) => {
    const last = frames.length;
    rows.forEach((row, r) => {
      const tr = cells[r][0].td.parentNode, chosen = row.id === s.chosen;
      tr.toggleAttribute("data-chosen", chosen);
      tr.dataset.tokenId = row.id;
      fill(tr.firstChild, chosen ? h("span", { class: "lv-hidden" }, "chosen: ") : null, piece(row.text, { title: `token ${row.id}, logit ${format(row.logit)}` }));
      const sums = [];
      for (let stage = 0; stage <= last; stage++) {
        const c = cells[r][stage], now = N(p, stage, r), prior = stage ? N(p, stage - 1, r) : NaN, f = frames[stage - 1], how = state(stage, r);
        c.td.dataset.state = how;
        c.bar.hidden = !(now > 0);
        if (now > 0) c.bar.style.width = x(now) + "%";
        // What was there before is outlined where it says something: it was cut, or it moved.
        c.ghost.hidden = !(prior > 0) || (how === "left" && Math.abs(x(prior) - x(now)) < 0.5);
        if (!c.ghost.hidden) c.ghost.style.width = x(prior) + "%";
        const old = was.length ? N(was, stage, r) : NaN;
        c.was.hidden = stage < last || !(old > 0) || Math.abs(x(old) - x(now > 0 ? now : 0)) < 0.5;
        if (!c.was.hidden) c.was.style.left = x(old) + "%";
        c.line.hidden = !f || !(f.line === "p" || f.line === "sum");
        if (!c.line.hidden) c.line.style.left = (f.line === "p" ? x(f.at) : f.at * 100) + "%";
        c.sum.hidden = true;
        sums.push(how);
        if (how === "cut") fill(c.p, "cut");
        else if (how === "gone") fill(c.p);
        else fill(c.p, value(percent(now), now, stage ? `sampler[${stage - 1}].p[${row.id}]` : `p_raw[${row.id}]`));
        c.td.removeAttribute("data-edge");
      }
    });
    // Rules under the last of a run of survivors; running sums as dots that walk towards their line.
    frames.forEach((f, i) => {
      const stage = i + 1;
      if (f.line !== "rank" && f.line !== "sum") return;
      const order = rows.map((_, r) => r).filter((r) => N(p, i, r) > 0).sort((a, b) => N(p, i, b) - N(p, i, a) || a - b);
      const inOrder = order.every((r, k) => !k || r > order[k - 1]);
      const left = order.filter((r) => N(p, stage, r) > 0);
      if (inOrder && left.length && left.length < order.length) cells[left[left.length - 1]][stage].td.setAttribute("data-edge", "");
      if (f.line !== "sum") return;
      let sum = 0;
      for (const r of order.slice(0, left.length + 1)) {
        sum += N(p, i, r);
        const dot = cells[r][stage].sum;
        dot.hidden = false;
        dot.style.left = Math.min(sum, 1) * 100 + "%";
      }
    });
    const others = model.get("strip_rest") || [];
    fill(table.querySelector(".lv-film-others th"), `${(s.n_vocab - rows.length).toLocaleString("en-US")} others`);
    others.forEach((o, stage) => fill(table.rest[stage].querySelector(".lv-film-p"), o.n ? [`${o.n.toLocaleString("en-US")} · `, value(percent(o.p), o.p, `others[${stage}]`)] : stage && others[stage - 1].n ? "cut" : ""));
    frames.forEach((f, i) => {
      table.heads[i].toggleAttribute("data-now", f.now);
      fill(table.heads[i].count, f.off ? "off" : f.draw !== null && i === last - 1 ? ["draws ", h("b", {}, "1"), ` of ${f.after.toLocaleString("en-US")}`] : f.before === f.after ? `all ${f.after.toLocaleString("en-US")} stay` : [`${f.before.toLocaleString("en-US")} → `, h("b", {}, f.after.toLocaleString("en-US"))]);
      fill(table.why[i], f.off ? "off" : f.why);
    });
    for (const part of parts) {
      const f = frames.find((g) => g.params.some((q) => q.name === part.p.name) && part.label.querySelector(`[data-param="${g.index}.${part.p.name}"]`));
      if (f) part.show(f.params.find((q) => q.name === part.p.name));
    }
  };

  // -- the draw -------------------------------------------------------------------------------------
  const drawn = (label, u, segments, chosen) => {
    const on = segments.find((g) => g.id === chosen);
    const wide = line.clientWidth ? line.clientWidth * 0.86 : 900;
    const left = Math.min(Math.max(u * 100, 0), 100);
    return h("div", { class: "lv-draw-row" }, h("span", {}, label), h("div", { class: "lv-draw-line", role: "img", "aria-label": `The number ${u} falls on ${on ? visible(on.text) : "no token"}` },
      h("div", { class: "lv-draw-segments" }, segments.map((g) => {
        const width = g.end - g.start, text = visible(g.text);
        return h("span", { class: "lv-draw-segment", "data-token-id": g.id, "data-chosen": g.id === chosen, style: `left:${(100 * g.start).toFixed(4)}%;width:${(100 * width).toFixed(4)}%`, title: `${text}: ${format(g.start)} to ${format(g.end)}` },
          width * wide > 10 * text.length + 14 ? piece(g.text) : null);
      })),
      h("span", { class: "lv-draw-needle", style: `left:${left}%` }),
      h("span", { class: "lv-draw-u", style: left > 50 ? `right:${100 - left}%;padding-right:0.7em` : `left:${left}%;padding-left:0.7em` }, "drew ", value(u.toFixed(6), u, "sampler.draw"))));
  };
  const drawLine = (s) => {
    const now = model.get("strip_segments") || [], old = model.get("strip_segments_was") || [];
    line.hidden = s.draw === null || !now.length;
    if (line.hidden) return;
    const moved = old.length && s.draw_was !== null;
    fill(line,
      h("div", { class: "lv-draw-title" }, h("strong", {}, "The draw"), h("span", { class: "lv-remark" }, "the final probabilities laid end to end; the random number picks the token that it falls on")),
      moved ? drawn("as it was", s.draw_was, old, s.was) : null,
      drawn(moved ? "now" : "", s.draw, now, s.chosen),
      h("div", { class: "lv-draw-scale", "aria-hidden": "true" }, ["0", "0.25", "0.5", "0.75", "1"].map((k) => h("span", {}, k))));
  };

  const drawResult = (s) => {
    const texts = s.texts || {}, changed = Object.keys(model.get("what_if") || {}).length > 0;
    const chip = (id, old) => piece(texts[id] || "", { class: "lv-piece lv-film-chip", "data-old": old, "data-token-id": id });
    const r = rows.findIndex((row) => row.id === s.chosen), stage = frames.length;
    const how = r >= 0 ? [h("span", { class: "lv-remark" }, "raw p "), value(percent(N(p, 0, r)), N(p, 0, r), `p_raw[${s.chosen}]`), h("span", { class: "lv-remark" }, " → final p "), value(percent(N(p, stage, r)), N(p, stage, r), `p[${s.chosen}]`)] : null;
    const other = s.taken !== null && s.taken !== s.was;
    const same = s.was === s.chosen;
    fill(result,
      changed && !same ? [chip(s.was, true), h("span", { "aria-label": "becomes" }, "→")] : null, chip(s.chosen), h("span", {}, how),
      changed ? h("span", { class: "lv-remark" }, same ? "the same token with your numbers" : "with your numbers") : s.taken === null ? h("span", { class: "lv-remark" }, "will be chosen") : null,
      other ? h("span", { class: "lv-remark" }, "the run took ", piece(texts[s.taken] || ""), " instead: it was changed by hand") : null,
      changed ? [h("span", { class: "lv-grow" }),
        h("button", { type: "button", class: "lv-button lv-small", "data-action": "sampler-apply", title: "set_sampler: the run goes on with these numbers", onclick: () => ask({ ask: "sampler-apply" }) }, "Apply from here on"),
        s.taken === null ? null : h("button", { type: "button", class: "lv-button lv-small", "data-action": "sampler-again", title: "Go back to where this token is sampled, and apply", onclick: () => driver(host).work({ ask: "sampler-apply", again: true }) }, "Choose this token anew"),
        h("button", { type: "button", class: "lv-button lv-small", "data-action": "sampler-reset", onclick: () => attempt({}) }, "Put back")] : null);
    if (changed) host.say(same ? `The same token: ${visible(texts[s.chosen] || "")}` : `Now ${visible(texts[s.chosen] || "")} instead of ${visible(texts[s.was] || "")}`);
  };

  const draw = () => {
    const s = model.get("strip") || {};
    frames = s.frames || [];
    const has = frames.length > 0;
    empty.hidden = has;
    for (const part of [result, scroll, key, whys, line, readout, scale, before, after]) part.hidden = !has;
    if (!has) {
      remark.textContent = "";
      fill(empty, s.reason || "Appears with the logits (step 14). Nothing is decoded for it: the recorded logits go through the chain again.");
      scroll.replaceChildren();
      built = "";
      return;
    }
    rows = model.get("strip_rows") || [];
    p = numbers(model.get("strip_p"), Float32Array);
    was = numbers(model.get("strip_was"), Float32Array);
    remark.textContent = `position ${s.pos} · showing ${rows.length} of ${s.n_vocab.toLocaleString("en-US")} candidates`;
    const sign = JSON.stringify(frames.map((f) => [f.name, f.off && !f.params.some((q) => q.value !== q.was), f.params.map((q) => [q.name, q.high])]));
    if (sign !== built) { built = sign; build(s); }
    if (cells.length !== rows.length) buildLanes();
    most = Math.max(...p.filter((q) => q > 0), ...was.filter((q) => q > 0), 1e-6);
    const tight = host.root.classList.contains("lv-projector") || host.root.clientWidth < 900;
    node.toggleAttribute("data-tight", tight);
    fill(whys, tight ? frames.filter((f) => !f.off).map((f) => [h("dt", {}, f.name), h("dd", { "data-why": f.name }, f.why)]) : null);
    drawCells(s, scroll.firstChild);
    drawResult(s);
    drawLine(s);
    const lines = frames.some((f) => f.line), sum = frames.some((f) => f.line === "sum");
    fill(key, h("span", {}, log ? "bars: 0.001 % to 100 %, logarithmic" : `bars: 0 to ${percent(most)}`), h("span", {}, h("i", { class: "lv-film-bar" }), "after the sampler"), h("span", {}, h("i", { class: "lv-film-ghost" }), "before it"),
      lines ? h("span", {}, h("i", { class: "lv-film-line" }), "its threshold") : null, sum ? h("span", {}, h("i", { class: "lv-film-sum", style: "width:0.6em;height:0.6em;margin-left:0" }), "running sum") : null,
      was.length ? h("span", {}, h("i", { class: "lv-film-was" }), "as it was") : null);
  };
  return { node, draw, watch: ["strip", "strip_rows", "strip_p", "strip_was", "strip_rest", "strip_segments", "strip_segments_was", "what_if"] };
}

export default alone("sampler", "How the token is chosen", samplerZone);
