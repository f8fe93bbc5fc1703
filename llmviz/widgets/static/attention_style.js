// The attention view's own rules; colours and sizes come from base.css.
export const ATTENTION_STYLE = `
.llmviz .lv-att-turn { display: flex; flex-wrap: wrap; align-items: center; gap: 0.3em 0.5em; margin-bottom: 0.5em; }
.llmviz .lv-att-turn .lv-button b { font-weight: 400; color: var(--lv-soft); font-variant-numeric: tabular-nums; }
.llmviz .lv-att-turn .lv-button[aria-pressed=true] { font-weight: 600; }
.llmviz .lv-att-turn > .lv-att-arrow { color: var(--lv-soft); }
.llmviz .lv-att-says { flex-basis: 100%; color: var(--lv-soft); font-size: max(13px, 0.93em); min-height: 1.45em; }
.llmviz .lv-att-says code { color: var(--lv-fg); }
.llmviz .lv-att-stage { grid-template-columns: repeat(5, auto) !important; }
.llmviz .lv-att-sums { grid-area: 2 / 5; display: grid; grid-auto-rows: var(--lv-line, 20px); padding-left: 0.5em; }
.llmviz .lv-att-sums span { height: var(--lv-line); line-height: var(--lv-line); color: var(--lv-soft); font-size: max(13px, 0.93em); }
.llmviz .lv-att-sums [data-now] { color: var(--lv-fg); font-weight: 600; }
.llmviz .lv-att-sum { grid-area: 3 / 1 / 3 / 4; padding: 0.2em 0.35em 0; border-top: 1px solid var(--lv-line); font-size: max(13px, 0.95em); }
.llmviz .lv-att-sum .lv-remark { margin-left: 0.5em; }
.llmviz .lv-att-key.lv-signed { background: color-mix(in srgb, var(--lv-s, transparent) calc(var(--lv-p, 0) * 45%), transparent); }
.llmviz .lv-att-key.lv-shut { color: var(--lv-soft); background: repeating-linear-gradient(-45deg, transparent 0 4px, color-mix(in srgb, var(--lv-fg) 12%, transparent) 4px 5px); }
.llmviz .lv-att-key.lv-shut .lv-piece { text-decoration: line-through; text-decoration-color: var(--lv-soft); }
.llmviz .lv-att-links path.lv-pos { stroke: #d94801; }
.llmviz .lv-att-links path.lv-neg { stroke: #2166ac; }
.llmviz .lv-att-links.lv-dark path.lv-pos { stroke: #fd8d3c; }
.llmviz .lv-att-links.lv-dark path.lv-neg { stroke: #6baed6; }
.llmviz .lv-att-shut { position: absolute; left: 0; top: 0; pointer-events: none; }
.llmviz .lv-att-shut path { stroke: color-mix(in srgb, var(--lv-fg) 45%, transparent); stroke-width: 1; fill: none; }
.llmviz .lv-hatch { background: repeating-linear-gradient(-45deg, transparent 0 3px, color-mix(in srgb, var(--lv-fg) 30%, transparent) 3px 4px); }
.llmviz .lv-att-swatch { display: inline-block; width: 1.5em; height: 0.75em; border-radius: 0.2em; border: 1px solid var(--lv-line); vertical-align: -0.05em; }
.llmviz .lv-over-pick { display: flex; flex-wrap: wrap; gap: 0.25em; margin-bottom: 0.35em; }
.llmviz .lv-over-gone { position: absolute; left: 0; pointer-events: none; }
.llmviz .lv-over-key { display: flex; align-items: center; gap: 0.4em; }
.llmviz .lv-over-key .lv-legend { width: 3.4em; }
.llmviz .lv-over-key .lv-remark { white-space: nowrap; }
.llmviz .lv-over-notes { display: grid; justify-items: start; gap: 0.3em; margin-top: 0.3em; }
.llmviz .lv-over-box .lv-readout { display: block; }
@container (min-width: 78em) { .llmviz:not(.lv-panel) .lv-over-box { width: 24em; } }
`;
