// The file view's own rules; colours and sizes come from base.css.
export const GGUF_STYLE = `
.llmviz .lv-gguf .lv-seg-0 { --lv-c: var(--lv-soft); } .llmviz .lv-gguf .lv-seg-1 { --lv-c: var(--lv-seq-0); } .llmviz .lv-gguf .lv-seg-2 { --lv-c: var(--lv-seq-1); }
.llmviz .lv-gguf .lv-seg-3 { --lv-c: var(--lv-seq-2); } .llmviz .lv-gguf .lv-seg-4 { --lv-c: var(--lv-seq-3); } .llmviz .lv-gguf .lv-seg-5 { --lv-c: var(--lv-seq-4); } .llmviz .lv-gguf .lv-seg-6 { --lv-c: var(--lv-seq-5); }
.llmviz .lv-gguf-bar { display: flex; height: 1.6em; border-radius: 0.35em; overflow: hidden; gap: 1px; }
.llmviz .lv-gguf-bar span { background: var(--lv-c); min-width: 3px; }
.llmviz .lv-gguf-key { display: flex; flex-wrap: wrap; gap: 0.15em 1.3em; margin: 0.4em 0 0.9em; }
.llmviz .lv-gguf-key i { display: inline-block; width: 0.8em; height: 0.8em; border-radius: 0.15em; background: var(--lv-c); margin-right: 0.45em; }
.llmviz .lv-gguf-two { display: grid; grid-template-columns: minmax(20em, 1fr) auto; gap: 0.5em 1.4em; align-items: start; }
.llmviz .lv-gguf h4 { margin: 0; font-size: 1em; font-weight: 600; }
.llmviz .lv-gguf-head { display: flex; flex-wrap: wrap; align-items: center; gap: 0.2em 0.7em; margin-bottom: 0.35em; min-height: 2em; }
.llmviz .lv-gguf-tree { border: 1px solid var(--lv-line); border-radius: 0.4em; overflow: auto; max-height: 31.5em; }
.llmviz .lv-gguf-group, .llmviz .lv-gguf-field { display: grid; gap: 0 0.7em; width: 100%; text-align: left; background: none; border: 0; border-radius: 0; padding: 0.1em 0.6em; cursor: pointer; line-height: 1.45; }
.llmviz .lv-gguf-group { grid-template-columns: minmax(0, 17em) minmax(0, 1fr) auto; }
.llmviz .lv-gguf-field { grid-template-columns: 8.5em minmax(0, 1fr) auto; padding-left: 1.9em; background: var(--lv-raised); }
.llmviz .lv-gguf-group > *, .llmviz .lv-gguf-field > * { overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.llmviz .lv-gguf-group b { font-weight: 400; font-family: var(--lv-mono); font-size: max(13px, 0.95em); }
.llmviz .lv-gguf-group[data-open] b { font-weight: 700; }
.llmviz .lv-gguf-group span, .llmviz .lv-gguf-field span { color: var(--lv-soft); font-size: max(13px, 0.93em); }
.llmviz .lv-gguf-lit { background: var(--lv-now-soft) !important; box-shadow: inset 3px 0 0 var(--lv-now); }
.llmviz .lv-gguf-field[aria-pressed=true] { background: var(--lv-now-soft); box-shadow: inset 3px 0 0 var(--lv-now); }
.llmviz .lv-gguf-hex { font-family: var(--lv-mono); font-size: max(13px, 0.95em); line-height: 1.55; border: 1px solid var(--lv-line); border-radius: 0.4em; padding: 0.3em 0.6em; overflow-x: auto; outline-offset: 2px; }
.llmviz .lv-gguf-line { display: flex; white-space: pre; }
.llmviz .lv-gguf-line > span:first-child { color: var(--lv-soft); width: 6.4em; flex: none; }
.llmviz .lv-gguf-line > span:last-child { margin-left: 0.9em; display: flex; }
.llmviz .lv-gguf-x { padding: 0 0.27em; cursor: default; }
.llmviz .lv-gguf-x:nth-child(9) { margin-left: 0.5em; }
.llmviz .lv-gguf-line > span:last-child .lv-gguf-x { padding: 0; width: 0.62em; text-align: center; margin: 0; }
.llmviz .lv-gguf-x[data-odd] { background: var(--lv-hover); }
.llmviz .lv-gguf-x[data-chosen] { background: var(--lv-now); color: var(--lv-bg); }
.llmviz .lv-gguf-x[data-lit] { background: color-mix(in srgb, var(--lv-final) 35%, var(--lv-bg)); color: var(--lv-fg); }
.llmviz .lv-gguf-x[data-at] { outline: 2px solid var(--lv-fg); outline-offset: -2px; }
.llmviz .lv-gguf-says { min-height: 3em; margin: 0.4em 0 0.9em; display: block; }
.llmviz .lv-gguf-says b { font-family: var(--lv-mono); }
.llmviz .lv-gguf-table { width: 100% !important; }
.llmviz .lv-gguf-table td, .llmviz .lv-gguf-table th { padding: 0.08em 0.8em 0.08em 0.3em; white-space: nowrap; }
.llmviz .lv-gguf-table td { font-family: var(--lv-mono); font-size: max(13px, 0.95em); }
.llmviz .lv-gguf-table td:nth-child(n+4), .llmviz .lv-gguf-table th:nth-child(n+4) { text-align: right; }
.llmviz .lv-gguf-table th button { background: none; border: 0; padding: 0; cursor: pointer; color: inherit; font-size: max(13px, 1em); }
.llmviz .lv-gguf-table th[aria-sort] { color: var(--lv-fg); font-weight: 600; }
.llmviz .lv-gguf-table tbody tr { cursor: pointer; }
.llmviz .lv-gguf-table tbody tr:hover td { background: var(--lv-hover); }
.llmviz .lv-gguf-table tr[aria-selected=true] td { background: var(--lv-now-soft); font-weight: 600; }
.llmviz .lv-gguf-table tr[aria-selected=true] td:first-child { box-shadow: inset 3px 0 0 var(--lv-now); }
.llmviz .lv-gguf-table td button { background: none; border: 0; padding: 0; cursor: pointer; }
.llmviz .lv-gguf input[type=search], .llmviz .lv-gguf input[type=number] { border: 1px solid var(--lv-line); border-radius: 0.35em; background: var(--lv-bg); padding: 0.05em 0.4em; }
.llmviz .lv-gguf input[type=search] { width: 16em; } .llmviz .lv-gguf input[type=number] { width: 6.5em; }
.llmviz .lv-gguf-block { margin-top: 1em; padding-top: 0.7em; border-top: 1px solid var(--lv-line); }
.llmviz .lv-gguf-raw { display: flex; flex-wrap: wrap; gap: 0.5em 1em; margin: 0.3em 0 0.5em; }
.llmviz .lv-gguf-part { border-radius: 0.35em; border: 1px solid var(--lv-line); border-top: 3px solid var(--lv-c); padding: 0.15em 0.45em 0.25em; max-width: 100%; }
.llmviz .lv-gguf-part > div { display: flex; flex-wrap: wrap; max-width: 42em; font-family: var(--lv-mono); font-size: max(13px, 0.95em); }
.llmviz .lv-gguf-plot { display: block; width: 100%; height: auto; overflow: visible; }
.llmviz .lv-gguf-plot text { fill: var(--lv-soft); font-family: inherit; }
.llmviz .lv-gguf-plot .lv-q-level { stroke: var(--lv-line); stroke-width: 1; }
.llmviz .lv-gguf-plot .lv-q-zero { stroke: var(--lv-fg); stroke-width: 1; opacity: 0.55; }
.llmviz .lv-gguf-plot .lv-q-stem { stroke: var(--lv-seq-0); stroke-width: 2; }
.llmviz .lv-gguf-plot .lv-q-dot { fill: var(--lv-seq-0); }
.llmviz .lv-gguf-plot .lv-q-hit { fill: transparent; }
.llmviz .lv-gguf-plot g[data-lit] .lv-q-hit { fill: var(--lv-final); opacity: 0.25; }
.llmviz .lv-gguf-plot g[data-lit] .lv-q-dot { fill: var(--lv-final); }
.llmviz .lv-gguf-plot g[data-lit] .lv-q-stem { stroke: var(--lv-final); }
@container (max-width: 820px) { .llmviz .lv-gguf-two { grid-template-columns: minmax(0, 1fr); } }
@container (max-width: 660px) { .llmviz .lv-gguf-x { padding: 0 0.17em; } .llmviz .lv-gguf-line > span:first-child { width: 5.4em; } .llmviz .lv-gguf-hex { padding: 0.3em 0.4em; } }
.llmviz.lv-projector .lv-gguf-two { grid-template-columns: minmax(0, 1fr); }
`;
