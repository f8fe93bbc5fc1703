// The text so far, one chip per token: click to travel, point to see what else was likely.
import { h, fill, svg, alone, card, piece, percent, value, plain, roving } from "./kit.js";
import { driver } from "./driver.js";

// What a token was chosen from, and a way to take another one: a small sheet under the chip.
export function alternativesSheet(host, home) {
  const { ask } = host;
  const sheet = h("div", { class: "lv-sheet", role: "dialog", "aria-label": "Alternatives", hidden: true });
  let timer = 0, pinned = false, chip = null, asked = 0;
  const hide = () => { clearTimeout(timer); pinned = false; sheet.hidden = true; sheet.replaceChildren(); asked++; };
  const take = (pos, token) => { hide(); driver(host).work({ ask: "choose-another", pos, token }); };
  const show = async (at, pos, focus) => {
    const mine = ++asked, reply = await ask({ ask: "alternatives", pos }), a = reply.value;
    if (mine !== asked || !a || !at.isConnected) return;
    chip = at;
    const input = h("input", { type: "text", maxlength: 60, placeholder: "another token", "aria-label": "Text of another token, exactly, its leading space included" });
    fill(sheet,
      h("p", {}, h("strong", {}, piece(a.text)), a.given ? " was given by the prompt: nothing else was to be chosen here." : h("span", { class: "lv-remark" }, ` at position ${a.pos}, rank ${a.rank}`)),
      a.given || !a.top.length ? null : h("table", {},
        h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "piece"), h("th", { scope: "col" }, "raw p"), h("th", { scope: "col" }, "final p"), h("th", {}))),
        h("tbody", {}, a.top.map((o) => h("tr", { class: o.id === a.id ? "lv-chosen" : o.cut ? "lv-cut" : "" },
          h("td", {}, piece(o.text)), h("td", {}, value(percent(o.p_raw), o.p_raw, `top[${a.pos}].p_raw[${o.id}]`)),
          h("td", {}, o.p === null ? (o.cut ? "cut" : "–") : value(percent(o.p), o.p, `top[${a.pos}].p[${o.id}]`)),
          h("td", {}, o.id === a.id ? h("span", { class: "lv-remark" }, "chosen") : h("button", { type: "button", class: "lv-button lv-small", "data-choose": o.id, title: "Go on with this token, in a branch of its own", onclick: () => take(a.pos, o.id) }, "take")))))),
      a.given ? null : h("form", { class: "lv-break-form", onsubmit: (e) => { e.preventDefault(); if (input.value) take(a.pos, input.value); } }, input, h("button", { type: "submit", class: "lv-button lv-small" }, "Take")));
    sheet.hidden = false;
    const box = at.getBoundingClientRect(), around = home.getBoundingClientRect();
    sheet.style.top = box.bottom - around.top + 4 + "px";
    sheet.style.left = Math.max(0, Math.min(around.width - sheet.offsetWidth, box.left - around.left)) + "px";
    if (focus) (sheet.querySelector("button") || sheet).focus();
  };
  const open = (at, pos, focus) => { clearTimeout(timer); pinned = true; show(at, pos, focus); };
  sheet.addEventListener("pointerenter", () => clearTimeout(timer));
  sheet.addEventListener("pointerleave", () => { if (!pinned) timer = setTimeout(hide, 200); });
  sheet.addEventListener("keydown", (e) => {
    if (e.key !== "Escape") return;
    e.stopPropagation();
    hide();
    if (chip && chip.isConnected) chip.focus();
  });
  host.root.addEventListener("pointerdown", (e) => { if (!sheet.hidden && !sheet.contains(e.target)) hide(); });
  host.onEnd(() => clearTimeout(timer));
  return {
    node: sheet, hide, open,
    near(at, pos) { if (pinned) return; clearTimeout(timer); timer = setTimeout(() => show(at, pos, false), 280); },
    far() { if (pinned) return; clearTimeout(timer); asked++; timer = setTimeout(hide, 200); },
  };
}

export function tokensZone(host) {
  const { model } = host, drive = driver(host);
  const { node, body, remark } = card("Text", { class: "lv-card lv-text" });
  const list = h("div", { class: "lv-tokens", role: "list" });
  const legend = h("span", { class: "lv-shade-legend" }, "chosen with probability 0", h("span", { class: "lv-shade-bar" }), "1");
  const ways = h("span", { class: "lv-branches", role: "group", "aria-label": "Branches" });
  const empty = h("p", { class: "lv-empty" }, "The prompt appears here once it is tokenized (step 9).");
  body.append(list, empty);
  const sheet = alternativesSheet(host, node);
  node.append(sheet.node);
  node.querySelector("header").append(ways, legend);
  const settle = roving(list, "button"), settleWays = roving(ways, "button");
  const draw = () => {
    const tokens = model.get("tokens") || [], total = model.get("n_tokens"), ahead = model.get("n_ahead") || 0;
    empty.hidden = tokens.length > 0;
    legend.hidden = !tokens.some((t) => !t.given);
    const given = tokens.filter((t) => t.given).length, now = total - ahead;
    remark.textContent = !tokens.length ? "" : (tokens.length < total ? `showing ${tokens.length} of ${total.toLocaleString("en-US")} tokens, from position ${model.get("first_token")}`
      : `${given} of the prompt` + (total > given ? `, ${total - given} generated` : "")) + (ahead ? `, ${ahead} of them ahead` : "");
    sheet.hide();
    const focused = document.activeElement && list.contains(document.activeElement) ? document.activeElement.dataset.pos : null;
    fill(list, ...tokens.map((t) => {
      const newest = t.pos === now - 1 && !t.given;
      const hint = `token ${t.id} at position ${t.pos}` + (t.given ? ", from the prompt" : `: probability ${percent(t.p_raw)} raw` + (t.p === null ? "" : `, ${percent(t.p)} after the chain`) + `, rank ${t.rank}`) + (t.ahead ? ", ahead of the present" : "");
      const chip = h("button", {
        type: "button", role: "listitem", class: "lv-token" + (t.given ? " lv-given" : "") + (newest ? " lv-newest" : "") + (t.ahead ? " lv-ahead" : ""),
        "data-token-id": t.id, "data-pos": t.pos, "data-p": t.p_raw, "data-rank": t.rank, "aria-label": `${t.text}, ${hint}. Enter travels there, C shows alternatives.`,
        "aria-current": newest ? "true" : undefined, style: t.given ? undefined : `--lv-p:${Math.sqrt(t.p_raw || 0).toFixed(3)}`,
        onclick: () => drive.travel(t.n),
        oncontextmenu: (e) => { e.preventDefault(); e.stopPropagation(); sheet.open(chip, t.pos, false); },
        onpointerenter: () => sheet.near(chip, t.pos), onpointerleave: () => sheet.far(),
        onkeydown: (e) => { if (e.key === "c" && !e.ctrlKey && !e.metaKey && !e.altKey) { e.preventDefault(); e.stopPropagation(); sheet.open(chip, t.pos, true); } },
      }, piece(t.text));
      return chip;
    }));
    settle();
    if (focused !== null) { const again = list.querySelector(`[data-pos="${focused}"]`); if (again) again.focus(); }
    const current = list.querySelector(".lv-newest");
    if (current && list.scrollHeight > list.clientHeight) list.scrollTop = Math.max(0, current.offsetTop - list.offsetTop - list.clientHeight / 2);
    const branches = model.get("branches") || [];
    ways.hidden = branches.length < 2;
    fill(ways, ...(branches.length < 2 ? [] : branches.map((b) => h("button", {
      type: "button", class: "lv-button lv-small lv-branch", "data-branch": b.name, "aria-pressed": String(b.current),
      title: plain(`${b.parent ? `from ${b.parent} at event ${b.fork_n}${b.reason ? `: ${b.reason}` : ""}. ` : ""}${b.n_tokens} tokens: ${b.text}`),
      onclick: () => { if (!b.current) drive.work({ ask: "switch", name: b.name }); },
    }, b.parent ? svg("svg", { viewBox: "0 0 16 16", "aria-hidden": "true" }, svg("path", { d: "M4 2v12M4 9c0-4 8-2 8-7" })) : null, h("bdi", {}, plain(b.name)), b.reason ? h("span", { class: "lv-remark" }, h("bdi", {}, plain(b.reason).slice(0, 28))) : null))));
    settleWays();
  };
  return { node, draw, watch: ["tokens", "n_tokens", "n_ahead", "branches"] };
}

export default alone("tokens", "The text so far", tokensZone);
