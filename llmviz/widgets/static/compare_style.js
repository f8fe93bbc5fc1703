// The compare view's own rules; colours and sizes come from base.css.
export const COMPARE_STYLE = `
.llmviz .lv-cp h4 { margin: 0 0 0.3em; font-size: 1em; font-weight: 600; }
.llmviz .lv-cp-runs { display: flex; flex-wrap: wrap; gap: 0.2em 1.4em; margin-bottom: 0.45em; }
.llmviz .lv-cp-runs span { display: inline-flex; align-items: baseline; gap: 0.45em; min-width: 0; overflow-wrap: anywhere; }
.llmviz .lv-cp-letter { font-family: var(--lv-mono); font-weight: 700; border: 1px solid var(--lv-line); border-radius: 0.3em; padding: 0 0.4em; background: var(--lv-raised); }
.llmviz .lv-cp-verdict { font-size: 1.12em; margin-bottom: 0.5em; line-height: 1.45; }
.llmviz .lv-cp-verdict code { font-weight: 700; font-size: 1em; }
.llmviz .lv-cp-bar { gap: 0.4em 1.4em; margin-bottom: 0.5em; }
.llmviz .lv-cp-passes { display: flex; flex-wrap: wrap; gap: 0.2em; align-items: center; max-height: 4.4em; overflow: auto; padding: 2px; }
.llmviz .lv-cp-passes button { max-width: 15em; overflow: hidden; text-overflow: ellipsis; white-space: pre; }
.llmviz .lv-cp-passes button[data-first]::after { content: " ●"; color: var(--lv-final); }
.llmviz .lv-cp-tolerance { display: inline-flex; align-items: center; gap: 0.5em; }
.llmviz .lv-cp-tolerance input { width: 11em; accent-color: var(--lv-final); }
.llmviz .lv-cp-tolerance output { font-family: var(--lv-mono); min-width: 5em; }
.llmviz .lv-cp-chart { position: relative; outline-offset: 3px; cursor: crosshair; }
.llmviz .lv-cp-chart svg { display: block; width: 100%; height: auto; overflow: visible; }
.llmviz .lv-cp-chart text { fill: var(--lv-soft); font-family: inherit; font-variant-numeric: tabular-nums; }
.llmviz .lv-cp-chart .lv-cp-first-text { fill: var(--lv-fg); font-weight: 600; }
.llmviz .lv-cp-grid { stroke: var(--lv-line); stroke-width: 1; }
.llmviz .lv-cp-band { fill: var(--lv-raised); }
.llmviz .lv-cp-limit { stroke: var(--lv-final); stroke-width: 1.5; stroke-dasharray: 6 4; }
.llmviz .lv-cp-dot { fill: var(--lv-c); stroke: var(--lv-bg); stroke-width: 0.75; }
.llmviz .lv-cp-dot[data-bound] { fill: none; stroke: var(--lv-c); stroke-width: 1.5; }
.llmviz .lv-cp-ring { fill: none; stroke: var(--lv-now); stroke-width: 2; }
.llmviz .lv-cp-first { fill: none; stroke: var(--lv-final); stroke-width: 2; }
.llmviz .lv-cp-cursor { stroke: var(--lv-fg); stroke-width: 1; opacity: 0.6; }
.llmviz .lv-k-0 { --lv-c: var(--lv-seq-0); } .llmviz .lv-k-1 { --lv-c: var(--lv-soft); } .llmviz .lv-k-2 { --lv-c: var(--lv-seq-1); }
.llmviz .lv-k-3 { --lv-c: var(--lv-seq-2); } .llmviz .lv-k-4 { --lv-c: var(--lv-seq-3); } .llmviz .lv-k-5 { --lv-c: var(--lv-fg); }
.llmviz .lv-cp-key { display: flex; flex-wrap: wrap; gap: 0.1em 1.1em; margin: 0.2em 0 0.1em; }
.llmviz .lv-cp-key span { display: inline-flex; align-items: center; gap: 0.35em; color: var(--lv-soft); }
.llmviz .lv-cp-key svg { width: 1em; height: 1em; overflow: visible; }
.llmviz .lv-cp-two { display: grid; grid-template-columns: minmax(0, 1.9fr) minmax(16em, 1fr); gap: 1em 1.6em; align-items: start; margin-top: 0.9em; }
.llmviz .lv-cp-box { border-top: 1px solid var(--lv-line); padding-top: 0.6em; min-width: 0; }
.llmviz .lv-cp-node > .lv-row { margin: 0.2em 0 0.4em; }
.llmviz .lv-cp-heats { display: grid; gap: 0.4em; }
.llmviz .lv-cp-heat { display: grid; grid-template-columns: 5.4em minmax(0, 1fr); gap: 0.6em; align-items: center; }
.llmviz .lv-cp-heat > span { text-align: right; color: var(--lv-soft); }
.llmviz .lv-cp-heats .lv-heat { outline-offset: 2px; max-width: none; justify-self: start; }
.llmviz .lv-cp-heats .lv-legend { width: 6em; }
.llmviz .lv-cp-table-box { max-height: 21em; overflow: auto; border: 1px solid var(--lv-line); border-radius: 0.4em; }
.llmviz .lv-cp-table { width: 100% !important; }
.llmviz .lv-cp-table thead th { position: sticky; top: 0; background: var(--lv-bg); z-index: 1; }
.llmviz .lv-cp-table td, .llmviz .lv-cp-table th { padding: 0.06em 0.7em 0.06em 0.4em; white-space: nowrap; }
.llmviz .lv-cp-table td { font-family: var(--lv-mono); font-size: max(13px, 0.95em); }
.llmviz .lv-cp-table td:nth-child(n+4):nth-child(-n+5), .llmviz .lv-cp-table th:nth-child(n+4):nth-child(-n+5) { text-align: right; }
.llmviz .lv-cp-table td:last-child { color: var(--lv-soft); font-family: inherit; white-space: normal; }
.llmviz .lv-cp-table button { background: none; border: 0; padding: 0; cursor: pointer; color: inherit; font-size: inherit; font-family: inherit; text-align: left; }
.llmviz .lv-cp-table th[aria-sort] { color: var(--lv-fg); font-weight: 600; }
.llmviz .lv-cp-table tbody tr { cursor: pointer; }
.llmviz .lv-cp-table tbody tr:hover td { background: var(--lv-hover); }
.llmviz .lv-cp-table tr[aria-selected=true] td { background: var(--lv-now-soft); }
.llmviz .lv-cp-table tr[aria-selected=true] td:first-child { box-shadow: inset 3px 0 0 var(--lv-now); }
.llmviz .lv-cp-table tr[data-over] td:nth-child(4) { font-weight: 700; color: var(--lv-final); }
.llmviz .lv-cp input[type=search], .llmviz .lv-cp input[type=number] { border: 1px solid var(--lv-line); border-radius: 0.35em; background: var(--lv-bg); padding: 0.05em 0.4em; }
.llmviz .lv-cp-says { display: grid; grid-template-columns: auto minmax(2em, 1fr) auto; gap: 0.1em 0.6em; align-items: center; }
.llmviz .lv-cp-says .lv-num { text-align: right; }
.llmviz .lv-cp-p { display: block; height: 0.7em; border-radius: 0.2em; min-width: 1px; background: var(--lv-now); }
.llmviz .lv-cp-says b { grid-column: 1 / -1; margin-top: 0.25em; font-weight: 600; }
.llmviz .lv-cp-says > .lv-piece { max-width: 11em; overflow: hidden; text-overflow: ellipsis; }
.llmviz .lv-cp-texts { display: grid; gap: 0.25em; overflow-x: auto; padding-bottom: 0.2em; }
.llmviz .lv-cp-texts > div { display: flex; gap: 0.2em; }
.llmviz .lv-cp-texts .lv-piece { border: 1px solid var(--lv-line); border-radius: 0.3em; padding: 0 0.25em; }
.llmviz .lv-cp-texts [data-other] { border-color: var(--lv-final); border-width: 2px; font-weight: 700; }
.llmviz .lv-cp-about td { font-family: var(--lv-mono); font-size: max(13px, 0.95em); padding-right: 0.9em; }
.llmviz .lv-cp-patched { border-left: 3px solid var(--lv-now); padding-left: 0.7em; margin-top: 0.5em; }
@container (max-width: 900px) { .llmviz .lv-cp-two { grid-template-columns: minmax(0, 1fr); } }
.llmviz.lv-projector .lv-cp-two { grid-template-columns: minmax(0, 1fr); }
`;
