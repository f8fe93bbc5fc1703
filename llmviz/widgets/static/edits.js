// Changing the run: what the current event allows, the sampler chain, and the log of changes.
import { h, fill, plain, alone, card, shape } from "./kit.js";
import { driver } from "./driver.js";

export function editsZone(host) {
  const { model } = host, drive = driver(host);
  const { node, body, remark } = card("Change", { class: "lv-card lv-edits" });
  const here = h("div", { class: "lv-change" }), chain = h("details", { class: "lv-chain" }, h("summary", {}, "Sampler chain")), list = h("ul", { class: "lv-edit-list" });
  const links = h("div", { class: "lv-chain-links" });
  chain.append(links);
  body.append(here, list, chain);
  let shownChain = "", shownHere = "";

  const drawHere = (e) => {
    const state = JSON.stringify(e);
    if (state === shownHere) return;
    shownHere = state;
    remark.textContent = e.name ? `${plain(e.name)} ${shape(e.shape)}` : "";
    if (!e.kind) { fill(here, h("p", { class: "lv-remark" }, "Stop at a node to scale or zero it. Heads are ablated in Attention, logits and tokens changed in Logits.")); return; }
    if (e.why) { fill(here, h("p", { class: "lv-remark" }, plain(`cannot be changed: ${e.why}`))); return; }
    if (e.kind !== "node") { fill(here, h("p", { class: "lv-remark" }, e.kind === "logits" ? "Single logits are changed in the Logits view." : "Single numbers are changed in the Tensor view.")); return; }
    const factor = h("input", { type: "text", size: 4, value: "0.5", "aria-label": "Factor" });
    const change = (kind) => drive.work({ ask: "intervene", kind, pattern: e.name, value: factor.value });
    const button = (kind, label, title) => h("button", { type: "button", class: "lv-button lv-small", "data-edit": kind, title, onclick: () => change(kind) }, label);
    fill(here, h("div", { class: "lv-row" }, button("zero", "Zero", "Put 0 in the place of every value"), button("mean", "Mean", "Put each row's mean in the place of its values"),
      h("span", { class: "lv-joined" }, "× ", factor, button("scale", "Scale", "Multiply every value"))),
    h("p", { class: "lv-remark" }, "holds from here on, in every pass"));
  };

  const drawChain = (samplers) => {
    const state = JSON.stringify(samplers);
    chain.hidden = !samplers.length;
    if (state === shownChain || links.contains(document.activeElement) && document.activeElement.type === "range" && document.activeElement.matches(":active")) return;
    shownChain = state;
    const focus = document.activeElement && links.contains(document.activeElement) ? document.activeElement.dataset.param : null;
    fill(links, ...samplers.flatMap((s) => s.params.map((p) => {
      const key = `${s.index}.${p.name}`, ranged = p.low !== undefined, out = h("output", {}, String(p.value));
      const input = h("input", {
        type: ranged ? "range" : "number", min: p.low, max: p.high, step: p.step || "any", value: p.value, "data-param": key, "aria-label": `${s.name}: ${p.name}`,
        oninput: (e) => { out.textContent = e.target.value; },
        onchange: (e) => { if (Number(e.target.value) !== p.value) drive.work({ ask: "set-sampler", index: s.index, name: p.name, value: e.target.value }); },
      });
      return h("label", { class: "lv-param" }, h("span", {}, h("code", {}, plain(s.name)), " ", p.name), input, ranged ? out : null);
    })));
    if (focus) { const again = links.querySelector(`[data-param="${focus}"]`); if (again) again.focus(); }
  };

  const draw = () => {
    drawHere(model.get("editable") || {});
    drawChain(model.get("chain") || []);
    const edits = model.get("edits") || [];
    fill(list, ...edits.map((e) => h("li", { "data-edit-id": e.id },
      h("div", { class: "lv-line" },
        e.standing ? h("label", {}, h("input", { type: "checkbox", checked: e.on, "aria-label": `${e.text}: on`, onchange: () => drive.work({ ask: "switch-edit", which: e.id, on: !e.on }) }), h("span", {}, h("bdi", {}, plain(e.text)))) : h("span", { class: "lv-edit-text" }, "◆ ", h("bdi", {}, plain(e.text))),
        h("button", { type: "button", class: "lv-button lv-small lv-plain", title: "Go to the event of this edit", onclick: () => drive.travel(Math.max(0, e.n)) }, `#${e.n.toLocaleString("en-US")}`),
        h("button", { type: "button", class: "lv-button lv-small", "data-edit": "undo", title: "Take it back as if it had never been made", onclick: () => drive.work({ ask: "undo-edit", which: e.id }) }, "Undo")),
      e.note ? h("p", { class: "lv-why" }, plain(e.note)) : null)));
  };
  return { node, draw, watch: ["editable", "chain", "edits"] };
}

export default alone("edits", "Changes", editsZone);
