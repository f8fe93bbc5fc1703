// The load view's own rules; colours and sizes come from base.css.
export const LOAD_STYLE = `
.llmviz .lv-load .lv-seg-0 { --lv-c: var(--lv-soft); } .llmviz .lv-load .lv-seg-1 { --lv-c: var(--lv-seq-0); } .llmviz .lv-load .lv-seg-2 { --lv-c: var(--lv-seq-1); }
.llmviz .lv-load .lv-seg-3 { --lv-c: var(--lv-seq-3); } .llmviz .lv-load .lv-seg-4 { --lv-c: var(--lv-seq-2); } .llmviz .lv-load .lv-seg-5 { --lv-c: var(--lv-seq-4); }
.llmviz .lv-load h4 { margin: 0 0 0.35em; font-size: 1em; font-weight: 600; }
.llmviz .lv-load h5 { margin: 0.7em 0 0.3em; font-size: max(13px, 0.93em); font-weight: 400; color: var(--lv-soft); }
.llmviz .lv-load-steps { display: grid; grid-template-columns: auto auto auto minmax(4em, 11em) minmax(0, 1fr); gap: 0.1em 0.8em; margin-bottom: 0.5em; }
.llmviz .lv-load-steps li { display: grid; grid-template-columns: subgrid; grid-column: 1 / -1; align-items: baseline; padding: 0.05em 0.4em; border-left: 3px solid transparent; }
.llmviz .lv-load-steps li[data-state=now] { border-left-color: var(--lv-now); background: var(--lv-now-soft); }
.llmviz .lv-load-steps li[data-state=later] .lv-load-title, .llmviz .lv-load-n { color: var(--lv-soft); }
.llmviz .lv-load-n, .llmviz .lv-load-time { text-align: right; font-variant-numeric: tabular-nums; }
.llmviz .lv-load-time, .llmviz .lv-load-title { white-space: nowrap; }
.llmviz .lv-load-span { align-self: start; height: 0.65em; margin-top: 0.4em; }
.llmviz .lv-load-numbers tr[aria-current] > * { background: var(--lv-now-soft); }
.llmviz .lv-load-span i { display: block; height: 100%; min-width: 2px; border-radius: 0.15em; background: var(--lv-now); }
.llmviz .lv-load-found { min-width: 0; overflow-wrap: anywhere; color: var(--lv-soft); font-size: max(13px, 0.95em); }
.llmviz .lv-load-two { display: grid; grid-template-columns: minmax(0, 1fr) minmax(0, 1fr); gap: 0.4em 1.6em; align-items: start; margin-top: 0.7em; }
.llmviz .lv-load-part { margin-bottom: 1.1em; min-width: 0; }
.llmviz .lv-load-controls { gap: 0.35em 1.1em; }
.llmviz .lv-load-controls label { display: inline-flex; align-items: center; gap: 0.4em; }
.llmviz .lv-load-controls input[type=number] { border: 1px solid var(--lv-line); border-radius: 0.35em; background: var(--lv-bg); padding: 0.1em 0.3em; width: 4.2em; }
.llmviz .lv-load-wide { flex: 1 1 100%; } .llmviz .lv-load-wide input[type=range] { flex: 1; min-width: 7em; }
.llmviz .lv-load-wide input[type=number] { width: 6.5em !important; }
.llmviz .lv-load-controls select { font: inherit; color: inherit; background: var(--lv-bg); border: 1px solid var(--lv-line); border-radius: 0.35em; padding: 0.1em 0.2em; }
.llmviz .lv-load-formula { margin-top: 0.6em; }
.llmviz .lv-load-line { display: flex; flex-wrap: wrap; align-items: flex-start; gap: 0.25em 0.5em; padding: 0.3em 0.6em; margin-bottom: 0.35em; border-left: 4px solid var(--lv-c); background: var(--lv-raised); border-radius: 0 0.35em 0.35em 0; }
.llmviz .lv-load-K { --lv-c: var(--lv-seq-0); } .llmviz .lv-load-V { --lv-c: var(--lv-seq-1); }
.llmviz .lv-load-which { max-width: 9em; }
.llmviz .lv-load-line > b { min-width: 1.4em; font-size: 1.15em; display: inline-flex; flex-direction: column; }
.llmviz .lv-load-factor { display: inline-flex; flex-direction: column; align-items: center; line-height: 1.25; }
.llmviz .lv-load-factor .lv-num { font-size: 1.15em; }
.llmviz .lv-load small { font-size: max(13px, 0.86em); color: var(--lv-soft); font-weight: 400; }
.llmviz .lv-load-times { font-size: 1.15em; line-height: 1.25; color: var(--lv-soft); }
.llmviz .lv-load-product .lv-num { font-weight: 700; }
.llmviz .lv-load-sum b { font-size: 1.15em; } .llmviz .lv-load-sum .lv-tag { margin-left: 0.7em; white-space: nowrap; }
.llmviz .lv-load-own { border-color: var(--lv-now); }
.llmviz .lv-load-rules:empty { display: none; }
.llmviz .lv-load-rules { margin-top: 0.2em; }
.llmviz .lv-load-bar { display: flex; height: 1.5em; border-radius: 0.35em; overflow: hidden; gap: 1px; background: var(--lv-raised); }
.llmviz .lv-load-bar span { background: var(--lv-c); min-width: 3px; }
.llmviz .lv-load-key { display: flex; flex-wrap: wrap; gap: 0.15em 1.3em; margin: 0.35em 0 0; }
.llmviz .lv-load-key i { display: inline-block; width: 0.8em; height: 0.8em; border-radius: 0.15em; background: var(--lv-c); margin-right: 0.4em; }
.llmviz .lv-load-device { display: grid; grid-template-columns: minmax(min(var(--lv-load-name, 4.5em), 30%), auto) minmax(0, 1fr); gap: 0.2em 0.7em; align-items: start; margin-bottom: 0.25em; }
.llmviz .lv-load-held { grid-column: 2; margin-bottom: 0.5em; }
.llmviz .lv-load-held .lv-load-bar { height: 0.8em; }
.llmviz .lv-load-held .lv-load-key { font-size: max(13px, 0.9em); }
.llmviz .lv-load-bar .lv-load-free { background: transparent; }
.llmviz .lv-load-strip { display: flex; flex-wrap: wrap; gap: 2px; }
.llmviz .lv-load-strip button { border: 1px solid var(--lv-c); border-radius: 0.2em; background: color-mix(in srgb, var(--lv-c) 16%, var(--lv-bg)); padding: 0 0.3em; min-width: 1.9em; cursor: pointer; font-size: max(13px, 0.9em); font-variant-numeric: tabular-nums; line-height: 1.6; }
.llmviz .lv-load-strip button:hover, .llmviz .lv-load-strip button:focus { background: color-mix(in srgb, var(--lv-c) 38%, var(--lv-bg)); }
.llmviz .lv-load .lv-readout { display: block; margin: 0.3em 0 0.5em; }
.llmviz .lv-load-scroll { max-height: 33em; overflow: auto; scrollbar-width: thin; border: 1px solid var(--lv-line); border-radius: 0.4em; padding: 0 0.6em; }
.llmviz .lv-load-numbers { width: 100%; }
.llmviz .lv-load-numbers thead th { position: sticky; top: 0; background: var(--lv-bg); padding-top: 0.3em; }
.llmviz .lv-load-numbers th, .llmviz .lv-load-numbers td { padding: 0.12em 0.7em 0.12em 0; }
.llmviz .lv-load-numbers tbody th { color: var(--lv-fg); }
.llmviz .lv-load-numbers td, .llmviz .lv-load-numbers th { overflow-wrap: normal; }
.llmviz .lv-load-numbers td:nth-child(2) { white-space: nowrap; text-align: right; max-width: 9em; overflow: hidden; text-overflow: ellipsis; }
.llmviz .lv-load-numbers thead th:nth-child(2) { text-align: right; }
@container (max-width: 900px) { .llmviz .lv-load-two { grid-template-columns: minmax(0, 1fr); } .llmviz .lv-load-scroll { max-height: none; } .llmviz .lv-load-reading > .lv-load-part { order: -1; } }
@container (max-width: 700px) { .llmviz .lv-load-steps { grid-template-columns: auto auto auto minmax(0, 1fr); } .llmviz .lv-load-span { display: none; } }
.llmviz.lv-projector .lv-load-two { grid-template-columns: minmax(0, 1fr); }
`;
