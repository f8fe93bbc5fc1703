// Sentinels: what is unusual in this run, and the way there.
import { h, fill, plain, visible, alone, card } from "./kit.js";
import { driver } from "./driver.js";

const STYLE = `
.llmviz .lv-sn-list { display: grid; gap: 0.5em; max-height: 16em; overflow: auto; }
.llmviz .lv-sn-list li { border-left: 3px solid var(--lv-danger); padding-left: 0.6em; min-width: 0; }
.llmviz .lv-sn-list li[data-past=no] { border-left-style: dashed; }
.llmviz .lv-sn-list .lv-row { gap: 0.2em 0.5em; }
.llmviz .lv-sn-list p { overflow-wrap: anywhere; }
.llmviz .lv-sn-list strong { font-weight: 600; }
.llmviz .lv-sn-set { margin-top: 0.5em; }
.llmviz .lv-sn-set summary { cursor: pointer; color: var(--lv-soft); }
.llmviz .lv-sn-set ul { display: grid; gap: 0.5em; margin-top: 0.4em; }
.llmviz .lv-sn-set label { display: inline-flex; align-items: baseline; gap: 0.4em; margin-right: 0.9em; }
.llmviz .lv-sn-set input { accent-color: var(--lv-now); }
`;

export function sentinelsZone(host) {
  const { model, ask } = host, drive = driver(host);
  const { node, body, remark } = card("Unusual", { class: "lv-card lv-quiet lv-sentinels" });
  const none = h("p", { class: "lv-remark" });
  const list = h("ul", { class: "lv-sn-list" });
  const switches = h("ul", {}), settings = h("details", { class: "lv-sn-set" }, h("summary", {}, "What is looked out for"), switches);
  body.append(h("style", {}, STYLE), none, list, settings);
  let shown = "", said = null;

  const drawSwitches = (all) => {
    const state = JSON.stringify(all);
    if (state === shown) return;
    shown = state;
    const kept = switches.contains(document.activeElement) ? document.activeElement.dataset : null, key = kept && [kept.sentinel, kept.stops];
    fill(switches, all.map((s) => h("li", { "data-kind": s.kind },
      h("div", {}, h("label", {}, h("input", { type: "checkbox", checked: s.on, "data-sentinel": s.kind, onchange: (e) => ask({ ask: "sentinel", kind: s.kind, on: e.target.checked }) }), s.title),
        h("label", {}, h("input", { type: "checkbox", checked: s.stop, "data-stops": s.kind, "aria-label": `Stop at ${s.title}`, onchange: (e) => ask({ ask: "sentinel-stop", kind: s.kind, stop: e.target.checked }) }), "stop there")),
      h("p", { class: "lv-remark" }, plain(s.about)))));
    const same = key && [...switches.querySelectorAll("input")].find((x) => x.dataset.sentinel === key[0] && x.dataset.stops === key[1]);
    if (same) same.focus({ preventScroll: true });
  };

  const draw = () => {
    const all = model.get("sentinels") || [], found = model.get("findings") || [], total = model.get("findings_total"), origin = model.get("nan_origin") || {};
    settings.hidden = !all.length;
    const off = all.filter((s) => !s.on).length;
    none.hidden = found.length > 0;
    none.textContent = !all.length ? "A recording is not looked at." : off === all.length ? "All are switched off." : "Nothing so far.";
    remark.textContent = found.length ? (total > found.length ? `${found.length} newest of ${total.toLocaleString("en-US")}` : String(total)) : "";
    fill(list, found.map((f) => h("li", { "data-finding": f.n, "data-kind": f.kind, "data-past": f.past ? "yes" : "no" },
      h("div", { class: "lv-row" }, h("strong", {}, f.title), h("code", {}, visible(f.name)),
        h("button", { type: "button", class: "lv-button lv-small lv-plain", "data-go": f.n, title: "Go to this event", onclick: () => drive.travel(f.n) }, `#${f.n.toLocaleString("en-US")}`)),
      h("p", {}, plain(f.text), f.more ? h("span", { class: "lv-remark" }, ` · ${f.more.toLocaleString("en-US")} more in this pass`) : null),
      f.kind !== "nan" ? null : origin.n_of === f.n
        ? h("p", {}, "It began in ", h("code", {}, visible(origin.name)), h("button", { type: "button", class: "lv-button lv-small lv-plain", "data-go": origin.n, title: "Go to this event", onclick: () => drive.travel(origin.n) }, `#${origin.n.toLocaleString("en-US")}`), h("span", { class: "lv-remark" }, ` ${plain(origin.text)}`))
        : h("button", { type: "button", class: "lv-button lv-small", "data-action": "sentinel-origin", onclick: () => drive.work({ ask: "sentinel-origin", which: f.i }) }, "Where did it begin?"))));
    drawSwitches(all);
    // What is new is said once; what was there when the view was opened is not.
    const newest = found.length ? `${found[0].title}: ${found[0].name}, ${found[0].text}` : "";
    if (said !== null && newest && newest !== said) host.say(newest);
    said = newest;
  };
  return { node, draw, watch: ["findings", "findings_total", "sentinels", "nan_origin"] };
}

export default alone("sentinels", "What is unusual", sentinelsZone);
