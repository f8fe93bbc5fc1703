// The time view's own look. Colour says what kind of time it is, a pattern says it again.

export const TIME_STYLE = `
.llmviz .lv-time :is(dt, dd, th, td, button, select, label, .lv-remark) { font-size: max(13px, calc(var(--lv-size) * 0.93)); }
.llmviz .lv-tm-kernel { background: var(--lv-seq-0); }
.llmviz .lv-tm-kernel.lv-tm-second { background: color-mix(in srgb, var(--lv-seq-0) 55%, var(--lv-bg)); }
.llmviz .lv-tm-around { background: repeating-linear-gradient(90deg, var(--lv-seq-4) 0 3px, color-mix(in srgb, var(--lv-seq-4) 45%, var(--lv-bg)) 3px 5px); }
.llmviz .lv-tm-watching { background: repeating-linear-gradient(135deg, var(--lv-seq-3) 0 3px, color-mix(in srgb, var(--lv-seq-3) 35%, var(--lv-bg)) 3px 6px); }
.llmviz .lv-tm-passes { display: flex; align-items: flex-end; gap: 2px; height: 7.2em; overflow-x: auto; overflow-y: hidden; padding: 2px; }
.llmviz .lv-tm-pass { display: flex; flex-direction: column; justify-content: flex-end; align-items: stretch; height: 100%; flex: 0 0 auto; min-width: 2em; padding: 0 0.15em; background: none; border: 0; border-radius: 0.3em; cursor: pointer; }
.llmviz .lv-tm-pass:hover { background: var(--lv-hover); }
.llmviz .lv-tm-pass[aria-pressed=true] { background: var(--lv-now-soft); box-shadow: inset 0 -2px 0 var(--lv-now); }
.llmviz .lv-tm-column { display: flex; flex-direction: column; flex: 0 0 auto; max-height: calc(100% - 1.6em); min-height: 2px; border-radius: 2px; overflow: hidden; margin: 0 auto; width: 1.3em; }
.llmviz .lv-tm-over .lv-tm-column { border-top: 3px dashed var(--lv-bg); outline: 1px dotted var(--lv-soft); }
.llmviz .lv-tm-name { font-size: max(13px, calc(var(--lv-size) * 0.9)); line-height: 1.5; text-align: center; font-variant-numeric: tabular-nums; color: var(--lv-soft); }
.llmviz .lv-tm-gap { align-self: flex-end; color: var(--lv-soft); padding: 0 0.2em; line-height: 1.5; }
.llmviz .lv-tm-whole { display: flex; height: 1.3em; border-radius: 0.25em; overflow: hidden; gap: 1px; }
.llmviz .lv-tm-legend { display: flex; flex-wrap: wrap; gap: 0.1em 1.4em; margin: 0.25em 0 0.6em; }
.llmviz .lv-tm-by { display: inline-flex; flex-wrap: wrap; gap: 0.3em; align-items: center; }
.llmviz .lv-tm-scroll { overflow-x: auto; margin-top: 0.4em; }
.llmviz .lv-tm-table { width: 100%; }
.llmviz .lv-tm-table td, .llmviz .lv-tm-table th { white-space: nowrap; padding: 0.12em 0.6em 0.12em 0; }
.llmviz .lv-time select, .llmviz .lv-time option { color: var(--lv-fg); background: var(--lv-bg); }
.llmviz .lv-tm-table tbody th, .llmviz .lv-tm-table tbody .lv-num { color: var(--lv-fg); }
.llmviz .lv-tm-table td:nth-child(n+3), .llmviz .lv-tm-table thead th:nth-child(n+3) { text-align: right; font-variant-numeric: tabular-nums; }
.llmviz .lv-tm-bars { width: 45%; vertical-align: middle !important; }
.llmviz .lv-tm-line { display: flex; height: 0.8em; min-width: 1px; border-radius: 0 0.2em 0.2em 0; overflow: hidden; }
.llmviz .lv-tm-other { height: 0.3em; margin-top: 1px; background: color-mix(in srgb, var(--lv-fg) 45%, var(--lv-bg)); }
.llmviz .lv-tm-toggle { background: none; border: 0; padding: 0 0.2em; cursor: pointer; text-align: left; border-radius: 0.2em; }
.llmviz .lv-tm-toggle:hover { background: var(--lv-hover); }
.llmviz .lv-tm-leaf { padding: 0 0.2em; }
.llmviz .lv-tm-table tfoot td, .llmviz .lv-tm-table tfoot th { border-top: 1px solid var(--lv-line); color: var(--lv-fg); font-weight: 600; }
.llmviz .lv-tm-table tfoot td.lv-remark { font-weight: 400; }
.llmviz .lv-tm-note { margin-top: 0.5em; max-width: 60em; }
`;
