// The KV view's own rules; colours and sizes come from base.css.
export const KV_STYLE = `
.llmviz .lv-kv-strip + .lv-kv-strip { border-top: 1px solid var(--lv-line); margin-top: 0.8em; padding-top: 0.6em; }
.llmviz .lv-kv-strip > h4 { margin: 0 0 0.3em; font: inherit; font-weight: 600; }
.llmviz .lv-kv-strip > h4 .lv-remark { font-weight: 400; margin-left: 0.6em; }
.llmviz .lv-cell { position: relative; }
.llmviz .lv-cells { padding-top: 3px; }
.llmviz .lv-roomy .lv-cell { height: 2.7em; }
.llmviz .lv-cell.lv-head::after { content: ""; position: absolute; right: 0; top: 0; border: 0.42em solid transparent; border-top-color: var(--lv-now); border-right-color: var(--lv-now); }
.llmviz .lv-roomy .lv-cell.lv-head { overflow: visible; }
.llmviz .lv-kv-legend { display: flex; flex-wrap: wrap; gap: 0.2em 1.2em; margin-top: 0.2em; }
.llmviz .lv-kv-legend i { display: inline-block; width: 0.85em; height: 0.85em; border-radius: 2px; margin-right: 0.35em; vertical-align: -0.05em; position: relative; }
.llmviz .lv-kv-legend .lv-kv-search { width: 0; height: 0; border: 0.42em solid transparent; border-top-color: var(--lv-now); border-right-color: var(--lv-now); border-radius: 0; }
.llmviz .lv-kv-size { display: grid; grid-template-columns: minmax(6em, 15em) 1fr; align-items: center; gap: 0.1em 0.9em; margin: 0.6em 0; }
.llmviz.lv-panel .lv-kv-size { grid-template-columns: 1fr; margin: 0.4em 0; }
.llmviz .lv-kv-bar { position: relative; height: 0.8em; border: 1px solid var(--lv-line); border-radius: 0.25em; overflow: hidden; background: var(--lv-raised); }
.llmviz .lv-kv-bar > span { position: absolute; left: 0; top: 0; bottom: 0; min-width: 2px; }
.llmviz .lv-kv-bar .lv-kv-read { background: color-mix(in srgb, var(--lv-now) 28%, var(--lv-bg)); }
.llmviz .lv-kv-bar .lv-kv-used { background: var(--lv-now); }
.llmviz .lv-kv-words { display: flex; flex-wrap: wrap; gap: 0.1em 1.1em; }
.llmviz .lv-kv-norms { display: flex; flex-wrap: wrap; gap: 0.6em 2em; margin-top: 0.6em; }
.llmviz .lv-kv .lv-kv-map .lv-readout { font-size: 1em; margin-top: 0; }
.llmviz .lv-kv-map > p { margin: 0 0 0.2em; }
.llmviz .lv-kv-map .lv-heat { margin-left: 2.2em; }
.llmviz .lv-kv-map .lv-scale { margin-left: 2.2em; }
.llmviz .lv-kv-rows { position: absolute; right: 100%; top: 0; bottom: 0; width: 2.2em; color: var(--lv-soft); font-size: 13px; line-height: 1; text-align: right; padding-right: 0.4em; }
.llmviz.lv-projector .lv-kv-rows { font-size: 18px; }
.llmviz .lv-kv-rows span { position: absolute; right: 0.4em; transform: translateY(-50%); }
.llmviz .lv-kv-tops { display: grid; align-items: end; margin-left: 2.2em; line-height: 1; padding-bottom: 3px; }
.llmviz .lv-kv-tops span { writing-mode: vertical-rl; transform: rotate(180deg); max-height: 5.5em; overflow: hidden; justify-self: center; }
`;
