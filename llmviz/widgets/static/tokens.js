// The text so far, one chip per token, shaded by the probability each was chosen with.
import { h, fill, alone, card, piece, percent, roving } from "./kit.js";

export function tokensZone(host) {
  const { model } = host;
  const { node, body, remark } = card("Text", { class: "lv-card lv-text" });
  const list = h("div", { class: "lv-tokens", role: "list" });
  const legend = h("span", { class: "lv-shade-legend" }, "chosen with probability 0", h("span", { class: "lv-shade-bar" }), "1");
  const empty = h("p", { class: "lv-empty" }, "The prompt appears here once it is tokenized (step 9).");
  body.append(list, empty);
  node.querySelector("header").append(legend);
  const settle = roving(list, "button");
  const draw = () => {
    const tokens = model.get("tokens") || [], total = model.get("n_tokens"), selected = model.get("selected");
    empty.hidden = tokens.length > 0;
    legend.hidden = !tokens.some((t) => !t.given);
    const given = tokens.filter((t) => t.given).length;
    remark.textContent = !tokens.length ? "" : tokens.length < total ? `showing the last ${tokens.length} of ${total.toLocaleString("en-US")} tokens`
      : `${given} of the prompt` + (total > given ? `, ${total - given} generated` : "");
    fill(list, ...tokens.map((t, i) => {
      const newest = i === tokens.length - 1 && !t.given;
      const hint = `token ${t.id} at position ${t.pos}` + (t.given ? ", from the prompt" : `: probability ${percent(t.p_raw)} raw` + (t.p === null ? "" : `, ${percent(t.p)} after the chain`) + `, rank ${t.rank + 1}`);
      return h("button", {
        type: "button", role: "listitem", class: "lv-token" + (t.given ? " lv-given" : "") + (newest ? " lv-newest" : ""),
        "data-token-id": t.id, "data-pos": t.pos, "data-p": t.p_raw, title: hint, "aria-label": `${t.text}, ${hint}`,
        "aria-pressed": String(selected === t.pos), style: t.given ? undefined : `--lv-p:${Math.sqrt(t.p_raw || 0).toFixed(3)}`,
        onclick: () => host.set("selected", selected === t.pos ? -1 : t.pos),
      }, piece(t.text));
    }));
    settle();
  };
  return { node, draw, watch: ["tokens", "n_tokens", "selected"] };
}

export default alone("tokens", "The text so far", tokensZone);
