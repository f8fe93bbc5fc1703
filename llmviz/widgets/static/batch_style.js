// The batch view's own rules; colours and sizes come from base.css.
export const BATCH_STYLE = `
.llmviz .lv-batch h4 { margin: 0; font-size: 1em; font-weight: 600; }
.llmviz .lv-batch-two { display: grid; grid-template-columns: minmax(24em, auto) minmax(0, 1fr); gap: 0.5em 1.8em; align-items: start; margin-top: 0.6em; }
.llmviz .lv-batch-part { min-width: 0; margin-bottom: 1em; }
.llmviz .lv-batch .lv-tag[data-state=dry] { border-style: dashed; border-color: var(--lv-final); color: var(--lv-final); }
.llmviz .lv-batch .lv-tag[data-state=running] { border-color: var(--lv-now); }
.llmviz .lv-batch-key { display: flex; flex-wrap: wrap; gap: 0.1em 1.3em; margin-top: 0.3em; }
.llmviz .lv-batch-key i { display: inline-block; width: 0.8em; height: 0.8em; border-radius: 0.15em; background: var(--lv-c); margin-right: 0.4em; }
.llmviz .lv-batch-scroll { max-height: 34em; overflow: auto; scrollbar-width: thin; border: 1px solid var(--lv-line); border-radius: 0.4em; margin-top: 0.35em; }
.llmviz .lv-batch-table { width: 100%; }
.llmviz .lv-batch-table th, .llmviz .lv-batch-table td { padding: 0.1em 0.6em 0.1em 0.35em; white-space: nowrap; }
.llmviz .lv-batch-table thead th { position: sticky; top: 0; background: var(--lv-bg); z-index: 1; padding-top: 0.25em; }
.llmviz .lv-batch-table td { font-variant-numeric: tabular-nums; }
.llmviz .lv-batch-table :is(td, th):is(:nth-child(1), :nth-child(3), :nth-child(4), :nth-child(7), :nth-child(8)) { text-align: right; }
.llmviz .lv-batch-table td:first-child { color: var(--lv-soft); box-shadow: inset 4px 0 0 var(--lv-c); padding-left: 0.7em; }
.llmviz .lv-batch-table tr[data-cut] td { border-top: 2px dashed var(--lv-soft); }
.llmviz .lv-batch-table tbody tr { cursor: pointer; }
.llmviz .lv-batch-table tbody tr:hover td { background: var(--lv-hover); }
.llmviz .lv-batch-table tr[aria-selected=true] td { background: var(--lv-now-soft); font-weight: 600; }
.llmviz .lv-batch-table button { background: none; border: 0; padding: 0; cursor: pointer; max-width: 13em; overflow: hidden; text-overflow: ellipsis; }
.llmviz .lv-batch-flag { text-align: center !important; color: var(--lv-now); }
.llmviz .lv-batch-seq { border-left: 0.55em solid var(--lv-c); padding-left: 0.35em; border-radius: 2px; }
.llmviz .lv-batch-cuts { display: flex; flex-wrap: wrap; gap: 0.45em; margin: 0.35em 0; align-items: flex-start; max-height: 22em; overflow: auto; scrollbar-width: thin; padding: 2px; }
.llmviz .lv-batch-cut { border: 1px solid var(--lv-line); border-radius: 0.4em; padding: 0.2em 0.5em 0.35em; min-width: 0; max-width: 100%; cursor: pointer; }
.llmviz .lv-batch-cut:hover { background: var(--lv-hover); }
.llmviz .lv-batch-cut[aria-current] { border-color: var(--lv-now); box-shadow: 0 0 0 1px var(--lv-now); }
.llmviz .lv-batch-cut[data-of=waiting] { border-style: dashed; }
.llmviz .lv-batch-head { display: inline-flex; flex-wrap: wrap; gap: 0 0.7em; align-items: baseline; background: none; border: 0; padding: 0; cursor: pointer; text-align: left; }
.llmviz .lv-batch-chips { display: flex; flex-wrap: wrap; gap: 2px; align-items: baseline; margin: 0.15em 0; }
.llmviz .lv-batch-chip { border-left: 4px solid var(--lv-c); background: color-mix(in srgb, var(--lv-c) 16%, var(--lv-bg)); border-radius: 2px; padding: 0 0.3em; max-width: 12em; overflow: hidden; text-overflow: ellipsis; }
.llmviz .lv-batch-chip[data-lit] { outline: 2px solid var(--lv-fg); font-weight: 700; }
.llmviz .lv-batch-slot { color: var(--lv-soft); font-size: max(13px, 0.93em); }
.llmviz .lv-batch-slot code { color: var(--lv-fg); }
.llmviz .lv-batch-grid { display: grid; grid-template-columns: auto auto; justify-content: start; align-items: end; overflow-x: auto; padding: 3px; margin-top: 0.3em; }
.llmviz .lv-batch-labels { display: flex; flex-direction: column; }
.llmviz .lv-batch-label { display: flex; align-items: center; justify-content: flex-end; gap: 0.4em; background: none; border: 0; border-right: 4px solid var(--lv-c); padding: 0 0.4em 0 0.2em; cursor: pointer; line-height: 1; white-space: nowrap; max-width: 12em; overflow: hidden; margin-left: auto; width: 100%; }
.llmviz .lv-batch-label[aria-pressed=true] { font-weight: 700; background: var(--lv-now-soft); }
.llmviz .lv-batch-top { display: flex; position: relative; margin-bottom: 2px; }
.llmviz .lv-batch-stream { position: absolute; right: 100%; padding-right: 0.6em; white-space: nowrap; }
.llmviz .lv-batch-cell { flex: none; height: 1.35em; border: 1px solid var(--lv-bg); border-width: 0 1px; border-bottom: 0; box-shadow: inset 0 -4px 0 var(--lv-c, var(--lv-line)); text-align: center; font-size: max(13px, 0.86em); line-height: 1; font-variant-numeric: tabular-nums; overflow: hidden; }
.llmviz .lv-batch-cell[data-lit] { outline: 2px solid var(--lv-fg); outline-offset: -2px; font-weight: 700; }
.llmviz .lv-batch .lv-heat { cursor: pointer; }
.llmviz .lv-batch .lv-mark { box-shadow: none; outline-offset: -1px; }
.llmviz .lv-batch-pointed { outline-width: 1px !important; }
.llmviz .lv-batch .lv-readout { display: block; margin-top: 0.4em; }
@container (max-width: 980px) { .llmviz .lv-batch-two { grid-template-columns: minmax(0, 1fr); } .llmviz .lv-batch-scroll { max-height: 13.5em; } }
.llmviz.lv-projector .lv-batch-two { grid-template-columns: minmax(0, 1fr); }
`;
