// The graph view's own look.

export const GRAPH_STYLE = `
.llmviz .lv-graph :is(button, input, select, label, dt, dd, th, td, .lv-remark, summary) { font-size: max(13px, calc(var(--lv-size) * 0.93)); }
.llmviz .lv-gr-bar { display: flex; flex-wrap: wrap; gap: 0.3em 0.4em; align-items: center; margin-bottom: 0.4em; }
.llmviz .lv-gr-bar input[type=search] { width: 11em; padding: 0.1em 0.45em; border: 1px solid var(--lv-line); border-radius: 0.35em; background: var(--lv-bg); color: var(--lv-fg); }
.llmviz .lv-gr-bar select { color: var(--lv-fg); background: var(--lv-bg); }
.llmviz .lv-gr-bar option { color: var(--lv-fg); background: var(--lv-bg); }
.llmviz .lv-gr-found { min-width: 4.5em; }
.llmviz .lv-gr-stage { position: relative; height: clamp(300px, 62vh, 540px); border: 1px solid var(--lv-line); border-radius: 0.4em; overflow: hidden; }
.llmviz.lv-panel .lv-gr-stage { height: clamp(260px, 42vh, 440px); }
.llmviz.lv-panel.lv-wide .lv-gr-stage { height: clamp(300px, 60vh, 640px); }
.llmviz.lv-projector .lv-gr-stage { height: clamp(380px, 70vh, 760px); }
.llmviz .lv-gr-stage canvas { display: block; width: 100%; height: 100%; cursor: grab; touch-action: none; }
.llmviz .lv-gr-stage canvas:active { cursor: grabbing; }
.llmviz .lv-gr-legend { display: flex; flex-wrap: wrap; gap: 0.1em 1em; margin: 0.3em 0; }
.llmviz .lv-gr-legend .lv-swatch { border-radius: 0.2em; }
.llmviz .lv-gr-dot { border-radius: 50% !important; }
.llmviz .lv-gr-dash { display: inline-block; width: 1.6em; border-top: 2px dashed var(--lv-soft); vertical-align: 0.25em; }
.llmviz .lv-gr-below { display: grid; grid-template-columns: minmax(0, 1fr); gap: 0.6em; margin-top: 0.5em; }
@container (min-width: 46em) { .llmviz .lv-gr-below { grid-template-columns: minmax(0, 1.1fr) minmax(0, 1fr); } }
.llmviz .lv-gr-node { display: flex; flex-wrap: wrap; align-items: baseline; gap: 0.1em 0.6em; }
.llmviz .lv-gr-node strong { font-family: var(--lv-mono); overflow-wrap: anywhere; }
.llmviz .lv-gr-facts { display: grid; grid-template-columns: max-content minmax(0, 1fr); gap: 0.1em 0.8em; margin: 0.3em 0; }
.llmviz .lv-gr-facts dt { color: var(--lv-soft); float: none; width: auto; font-weight: 400; margin: 0; padding: 0; background: none; }
.llmviz .lv-gr-facts dd { margin: 0; overflow-wrap: anywhere; }
.llmviz .lv-gr-link { background: none; border: 0; padding: 0 0.15em; text-decoration: underline dotted; cursor: pointer; font-family: var(--lv-mono); overflow-wrap: anywhere; text-align: left; }
.llmviz .lv-gr-memory canvas { display: block; width: 100%; height: 130px; border-radius: 0.3em; cursor: pointer; }
.llmviz .lv-gr-memory h4, .llmviz .lv-gr-about h4 { margin: 0; font-size: 1em; font-weight: 600; }
.llmviz .lv-graph details { margin-top: 0.5em; }
.llmviz .lv-graph details td, .llmviz .lv-graph details th { white-space: nowrap; }
.llmviz .lv-gr-table { overflow-x: auto; }
.llmviz .lv-gr-table tr[aria-current=true] { background: var(--lv-now-soft); }
.llmviz .lv-gr-table td:nth-child(n+6) { text-align: right; font-variant-numeric: tabular-nums; }
`;
