// The logit lens's own rules; colours and sizes come from base.css.
export const LENS_STYLE = `
.llmviz .lv-lens { margin-top: 0.8em; border-top: 1px solid var(--lv-line); padding-top: 0.6em; }
.llmviz .lv-lens-head { display: flex; flex-wrap: wrap; align-items: baseline; gap: 0.3em 0.8em; }
.llmviz .lv-lens-head > .lv-remark { flex: 1 1 24em; margin: 0 !important; }
.llmviz .lv-lens-says { margin: 0.5em 0 0.3em !important; color: var(--lv-fg) !important; font-size: 1em !important; }
.llmviz .lv-lens table { width: 100%; border-collapse: collapse; }
.llmviz .lv-lens tr:focus-visible { outline-offset: -2px; }
.llmviz .lv-lens td, .llmviz .lv-lens th { padding: 0 0.5em 0 0 !important; line-height: var(--lv-lens-line, 1.55); text-align: left !important; color: var(--lv-fg) !important; max-width: none !important; vertical-align: middle; }
.llmviz .lv-lens thead th { color: var(--lv-soft) !important; vertical-align: bottom; }
.llmviz .lv-lens th[scope=row] { color: var(--lv-soft) !important; font-variant-numeric: tabular-nums; text-align: right !important; padding-right: 0.8em !important; width: 3em; }
.llmviz .lv-lens tr[data-at] { background: var(--lv-hover); }
.llmviz .lv-lens .lv-lens-top { display: inline-block; border-radius: 0.3em; padding: 0 0.3em; max-width: 7.4em; overflow: hidden; text-overflow: ellipsis; vertical-align: middle; background: color-mix(in srgb, var(--lv-now) calc(var(--lv-p, 0) * 45%), transparent); line-height: 1.4; }
.llmviz .lv-lens .lv-lens-top[data-followed] { box-shadow: inset 0 -2px 0 var(--lv-now); font-weight: 700; }
.llmviz .lv-lens-rank { width: 24%; min-width: 7em; position: relative; height: 1.5em; }
.llmviz .lv-lens-plot { position: absolute; inset: 0 1.1em 0 0.4em; }
.llmviz .lv-lens-plot svg { width: 100%; height: 100%; overflow: visible; display: block; }
.llmviz .lv-lens-rank polyline { fill: none; stroke: var(--lv-now); stroke-width: 2; vector-effect: non-scaling-stroke; opacity: 0.55; }
.llmviz .lv-lens-dot { position: absolute; top: 50%; width: 0.55em; height: 0.55em; margin: -0.275em; border-radius: 50%; background: var(--lv-now); }
.llmviz .lv-lens td.lv-lens-num, .llmviz .lv-lens th.lv-lens-num { text-align: right !important; white-space: nowrap; font-variant-numeric: tabular-nums; width: 4.6em; }
.llmviz .lv-lens-entropy { width: 12%; min-width: 4.5em; }
.llmviz .lv-lens-entropy > span { display: block; height: 0.5em; min-width: 1px; border-radius: 0 0.2em 0.2em 0; background: color-mix(in srgb, var(--lv-fg) 42%, var(--lv-bg)); }
.llmviz .lv-lens-axis { display: flex; justify-content: space-between; gap: 1em; }
.llmviz.lv-panel .lv-lens { --lv-lens-line: 1.3; }
.llmviz.lv-panel .lv-lens .lv-lens-top { line-height: 1.2; }
.llmviz.lv-panel .lv-lens-rank { height: 1.3em; }
`;
