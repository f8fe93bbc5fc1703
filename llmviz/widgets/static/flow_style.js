// The flow view's own rules; colours and sizes come from base.css.
export const FLOW_STYLE = `
.llmviz .lv-flow { --lv-weight: #6b3fa0; --lv-weight-soft: color-mix(in srgb, var(--lv-weight) 14%, var(--lv-bg)); --lv-label: max(13px, 0.93em); }
html[theme=dark] .llmviz .lv-flow, [data-jp-theme-light="false"] .llmviz .lv-flow, body.vscode-dark .llmviz .lv-flow, .llmviz[data-theme=dark] .lv-flow { --lv-weight: #c9a6f5; }
@media (prefers-color-scheme: dark) { html:not([theme=light]) body:not([data-jp-theme-light]):not(.vscode-light) .llmviz:not([data-theme=light]) .lv-flow { --lv-weight: #c9a6f5; } }
.llmviz[data-theme=light] .lv-flow { --lv-weight: #6b3fa0; }
.llmviz .lv-flow-scroll { overflow-x: auto; overflow-y: hidden; }
.llmviz .lv-flow-stage { position: relative; }
.llmviz .lv-flow-stage > *, .llmviz .lv-flow-over > * { position: absolute; }
.llmviz .lv-flow-over { left: 0; top: 0; }
.llmviz .lv-flow-card { background: var(--lv-raised); border: 1px solid var(--lv-line); border-radius: 0.6em; }
.llmviz .lv-flow-edges { left: 0; top: 0; pointer-events: none; overflow: visible; }
.llmviz .lv-flow-edges path { fill: none; }
.llmviz .lv-flow-band { fill: var(--lv-fg) !important; opacity: 0.075; }
.llmviz .lv-flow-band-head { fill: var(--lv-weight) !important; opacity: 0.2; }
.llmviz .lv-flow-lane { stroke: var(--lv-soft); stroke-linecap: round; opacity: 0.5; }
.llmviz .lv-flow-lane-stream { opacity: 0.75; }
.llmviz .lv-flow-todo { opacity: 0.03; }
.llmviz .lv-flow-arrow { fill: var(--lv-soft); opacity: 0.8; }
.llmviz .lv-flow-arrow.lv-flow-live { fill: var(--lv-now); opacity: 1; }
.llmviz .lv-flow-lane.lv-flow-todo { opacity: 0.16; }
.llmviz .lv-flow-fan { stroke: var(--lv-weight); stroke-linecap: round; }
.llmviz .lv-flow-return { stroke: var(--lv-soft); stroke-width: 2; stroke-dasharray: 2 6; stroke-linecap: round; opacity: 0.7; }
.llmviz .lv-flow-return.lv-flow-live { stroke: var(--lv-now); stroke-dasharray: none; opacity: 1; }
.llmviz .lv-flow-head { stroke: var(--lv-soft); stroke-width: 1; opacity: 0.6; }
.llmviz .lv-flow-canvas { image-rendering: pixelated; }
.llmviz .lv-flow-hit { cursor: crosshair; outline-offset: 3px; }
.llmviz .lv-flow-mark { pointer-events: none; border: 2px solid var(--lv-fg); border-radius: 2px; box-shadow: 0 0 0 1.5px var(--lv-bg); }
.llmviz .lv-flow-now { pointer-events: none; border: 2px solid var(--lv-now); border-radius: 5px; box-shadow: 0 0 0 3px var(--lv-now-soft); }
.llmviz .lv-flow-row { pointer-events: none; background: var(--lv-hover); border-radius: 4px; }
.llmviz .lv-flow-label { font-size: var(--lv-label); line-height: 1.25; white-space: nowrap; text-align: center; transform: translateX(-50%); color: var(--lv-fg); padding: 0 0.2em; border-radius: 0.25em; }
.llmviz .lv-flow-label[data-state=todo] { color: var(--lv-soft); }
.llmviz .lv-flow-label[data-state=now] { background: var(--lv-now); color: var(--lv-bg); font-weight: 600; }
.llmviz .lv-flow-label[data-selected] { text-decoration: underline; text-decoration-thickness: 2px; text-underline-offset: 0.2em; }
.llmviz .lv-flow-caption { font-size: var(--lv-label); line-height: 1.3; white-space: nowrap; color: var(--lv-soft); }
.llmviz .lv-flow-caption b { color: var(--lv-fg); font-weight: 600; }
.llmviz .lv-flow-rule { height: 4px; border: 1px solid var(--lv-line); border-top: 0; }
.llmviz .lv-flow-middle { transform: translateX(-50%); text-align: center; }
.llmviz .lv-flow-picks { display: flex; align-items: center; gap: 0.3em; white-space: nowrap; }
.llmviz .lv-flow-picks b { font-weight: 600; padding: 0 0.1em; }
.llmviz .lv-flow-picks .lv-flow-of { color: var(--lv-soft); font-size: var(--lv-label); margin-right: 0.2em; }
.llmviz .lv-flow-step { border: 1px solid transparent; background: none; border-radius: 0.35em; cursor: pointer; padding: 0 0.45em; line-height: 1.35; }
.llmviz .lv-flow-step:hover:not(:disabled) { background: var(--lv-hover); border-color: var(--lv-line); }
.llmviz .lv-flow-step:disabled { opacity: 0.3; cursor: default; }
.llmviz .lv-flow-token { display: flex; align-items: center; justify-content: flex-end; gap: 0.5em; border: 0; background: none; padding: 0 0.3em 0 0; cursor: pointer; overflow: hidden; white-space: nowrap; line-height: 1; border-radius: 0.3em; }
.llmviz .lv-flow-token .lv-piece { overflow: hidden; text-overflow: ellipsis; max-width: 100%; line-height: 1.25; }
.llmviz .lv-flow-token[data-state=cached] .lv-piece { color: var(--lv-soft); }
.llmviz .lv-flow-token[data-state=now] .lv-piece { font-weight: 600; }
.llmviz .lv-flow-token[aria-pressed=true] .lv-piece { background: var(--lv-weight-soft); box-shadow: inset 0 -2px 0 var(--lv-weight); border-radius: 0.2em 0.2em 0 0; }
.llmviz .lv-flow-slot .lv-piece { border: 1.5px dashed var(--lv-soft); border-radius: 0.3em; padding: 0 0.5em; color: var(--lv-soft); }
.llmviz .lv-flow-slot[data-state=next] .lv-piece { border: 1.5px solid var(--lv-now); color: var(--lv-fg); }
.llmviz .lv-flow-weight { font-size: 13px; line-height: 1; transform: translateY(-50%); color: var(--lv-fg); text-shadow: 0 0 3px var(--lv-bg), 0 0 3px var(--lv-bg), 0 0 3px var(--lv-bg), 0 0 3px var(--lv-bg); pointer-events: none; font-variant-numeric: tabular-nums; }
.lv-projector .lv-flow-weight { font-size: 18px; }
.llmviz .lv-flow-list { display: grid; grid-template-columns: minmax(0, 1fr); align-content: start; gap: 0.1em; }
.llmviz .lv-flow-options { display: grid; gap: 0.1em; }
.llmviz .lv-flow-wide .lv-flow-options { grid-template-columns: minmax(0, 1fr) minmax(0, 1fr); grid-template-rows: repeat(4, auto); grid-auto-flow: column; column-gap: 1em; }
.llmviz .lv-flow-option { display: grid; grid-template-columns: 5.4em minmax(2em, 1fr) 3.7em; align-items: center; gap: 0.4em; line-height: 1.5; }
.llmviz .lv-flow-option .lv-piece { overflow: hidden; text-overflow: ellipsis; text-align: right; }
.llmviz .lv-flow-option .lv-num { text-align: right; }
.llmviz .lv-flow-option .lv-bar-line + .lv-bar-line { margin-top: 1px; }
.llmviz .lv-flow-option[data-cut] { color: var(--lv-soft); }
.llmviz .lv-flow-option[data-chosen] .lv-piece { background: var(--lv-now); color: var(--lv-bg); border-radius: 0.3em; justify-self: end; padding: 0 0.3em; font-weight: 600; }
.llmviz .lv-flow-option[data-chosen] .lv-space { opacity: 0.8; }
.llmviz .lv-flow-chain { color: var(--lv-soft); font-size: var(--lv-label); margin-top: 0.5em; line-height: 1.5; }
.llmviz .lv-flow-chain b { color: var(--lv-fg); font-weight: 400; }
.llmviz .lv-flow-chain .lv-flow-live { color: var(--lv-bg); background: var(--lv-now); border-radius: 0.25em; padding: 0 0.25em; }
.llmviz .lv-flow-outline { border: 1px dashed var(--lv-line); border-radius: 0.4em; color: var(--lv-soft); padding: 0.5em 0.7em; }
.llmviz .lv-flow-fly { z-index: 3; pointer-events: none; background: var(--lv-now); color: var(--lv-bg); border-radius: 0.3em; padding: 0.1em 0.4em; font-weight: 600; }
.llmviz .lv-flow-foot { display: flex; flex-wrap: wrap; align-items: center; gap: 0.25em 1em; min-height: 3.4em; margin-top: 0.35em; align-content: start; }
.llmviz .lv-flow-foot .lv-readout { flex: 1 1 22em; }
.llmviz .lv-flow-key { display: inline-flex; align-items: center; gap: 0.4em; color: var(--lv-soft); font-size: var(--lv-label); white-space: nowrap; }
.llmviz .lv-flow-key i { width: 4.6em; height: 0.7em; border-radius: 0.2em; display: inline-block; }
.llmviz .lv-flow-start.lv-flow-plan { padding: 0 0 0.4em; text-align: left; color: var(--lv-fg); }
.llmviz .lv-flow-planned .lv-flow-token { cursor: default; }
.llmviz .lv-flow-planned .lv-flow-edges { opacity: 0.6; }
.llmviz .lv-flow-token[data-state=place] { color: var(--lv-soft); }
.llmviz .lv-flow-start { padding: 2.5em 1em; text-align: center; color: var(--lv-soft); }
`;
