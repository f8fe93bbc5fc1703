// The sampler view's own rules; colours and sizes come from base.css.
export const SAMPLER_STYLE = `
.llmviz .lv-film > header { align-items: center; }
.llmviz .lv-film-result { display: flex; flex-wrap: wrap; align-items: center; gap: 0.35em 0.7em; min-height: 2.4em; margin-bottom: 0.5em; }
.llmviz .lv-film-chip { font-size: 1.15em; font-weight: 700; padding: 0.12em 0.5em; border-radius: 0.35em; background: var(--lv-now); color: var(--lv-bg); }
.llmviz .lv-film-chip .lv-space { opacity: 0.7; }
.llmviz .lv-film-chip[data-old] { background: none; color: var(--lv-fg); border: 1px solid var(--lv-line); font-weight: 400; }
.llmviz .lv-film-scroll { overflow-x: auto; padding: 2px; }
.llmviz .lv-film table { width: 100%; border-collapse: separate; border-spacing: 0; table-layout: fixed; }
.llmviz .lv-film th, .llmviz .lv-film td { padding: 0; max-width: none; vertical-align: top; white-space: nowrap; overflow-wrap: normal; }
.llmviz .lv-film thead th { border: 0; padding: 0.3em 0.55em 0.35em; font-size: 1em; color: var(--lv-fg); }
.llmviz .lv-film col.lv-film-tokens { width: 9.2em; }
.llmviz .lv-film col.lv-film-narrow { width: 6.6em; }
.llmviz .lv-film-off .lv-film-param { grid-template-columns: 1fr; }
.llmviz .lv-film [data-frame] { border-left: 1px solid var(--lv-line); }
.llmviz .lv-film thead [data-frame] { border-top: 1px solid var(--lv-line); background: var(--lv-raised); }
.llmviz .lv-film thead tr:first-child [data-frame="0"] { border-top-left-radius: 0.5em; }
.llmviz .lv-film tfoot tr:last-child [data-frame] { border-bottom: 1px solid var(--lv-line); }
.llmviz .lv-film tfoot tr:last-child [data-frame="0"] { border-bottom-left-radius: 0.5em; }
.llmviz .lv-film [data-last] { border-right: 1px solid var(--lv-line); }
.llmviz .lv-film thead tr:first-child [data-last] { border-top-right-radius: 0.5em; }
.llmviz .lv-film tfoot tr:last-child [data-last] { border-bottom-right-radius: 0.5em; }
.llmviz .lv-film thead tr + tr [data-frame] { border-top: 0; padding-top: 0; }
.llmviz .lv-film thead [data-now] { box-shadow: inset 0 3px 0 var(--lv-now); }
.llmviz .lv-film-name { font-weight: 600; display: block; }
.llmviz .lv-film-count { color: var(--lv-soft); font-size: max(13px, 0.93em); font-variant-numeric: tabular-nums; white-space: normal; }
.llmviz .lv-film-count b { color: var(--lv-fg); font-weight: 600; }
.llmviz .lv-film-param { display: grid; grid-template-columns: 1fr auto; align-items: center; gap: 0 0.4em; font-weight: 400; color: var(--lv-soft); font-size: max(13px, 0.93em); }
.llmviz .lv-film-param[data-moved] { color: var(--lv-final); font-weight: 600; }
.llmviz .lv-film-param > span { overflow: hidden; text-overflow: ellipsis; }
.llmviz .lv-film-param input[type=range] { grid-column: 1 / -1; width: 100%; margin: 0.1em 0 0.25em; accent-color: var(--lv-now); height: 1.1em; }
.llmviz .lv-film-param input[type=number] { width: 4.6em; padding: 0 0.2em; border: 1px solid var(--lv-line); border-radius: 0.3em; background: var(--lv-bg); color: var(--lv-fg); text-align: right; -moz-appearance: textfield; appearance: textfield; }
.llmviz .lv-film-param input[type=number]::-webkit-inner-spin-button { display: none; }
.llmviz .lv-film details { font-size: max(13px, 0.93em); color: var(--lv-soft); font-weight: 400; }
.llmviz .lv-film summary { cursor: pointer; }
.llmviz .lv-film tbody th { text-align: right; padding: 0.16em 0.6em 0.16em 0; color: var(--lv-fg); overflow: hidden; text-overflow: ellipsis; }
.llmviz .lv-film tbody tr[data-chosen] th .lv-piece { font-weight: 700; box-shadow: 0 0.15em 0 var(--lv-now); }
.llmviz .lv-film-cell { position: relative; display: grid; grid-template-columns: 1fr 3.7em; align-items: center; gap: 0.4em; height: 1.75em; padding: 0 0.5em; cursor: default; }
.llmviz .lv-film-bars { position: relative; height: 100%; }
.llmviz .lv-film-bars > * { position: absolute; left: 0; transition: width 0.18s, left 0.18s; }
.llmviz .lv-film-lane { position: absolute; inset: 0.22em 0; background: var(--lv-fg); opacity: 0.055; }
.llmviz .lv-film tr[data-chosen] .lv-film-lane { background: var(--lv-now); opacity: 0.16; }
.llmviz .lv-film td[data-state=cut] .lv-film-lane { right: auto; width: 0.5em; border-radius: 0 0.5em 0.5em 0; }
.llmviz .lv-film td[data-state=gone] .lv-film-lane, .llmviz .lv-film td[data-state=gone] .lv-film-bars > *:not(.lv-film-line):not(.lv-film-was) { display: none; }
.llmviz .lv-film-ghost { top: 0.42em; bottom: 0.42em; min-width: 1px; border: 1px solid var(--lv-soft); border-left: 0; border-radius: 0 0.15em 0.15em 0; opacity: 0.75; }
.llmviz .lv-film td[data-state=cut] .lv-film-ghost { border-style: dashed; border-color: var(--lv-danger); opacity: 1; }
.llmviz .lv-film-bar { top: 0.42em; bottom: 0.42em; min-width: 2px; background: color-mix(in srgb, var(--lv-fg) 45%, var(--lv-bg)); border-radius: 0 0.15em 0.15em 0; }
.llmviz .lv-film [data-last] .lv-film-bar { background: var(--lv-final); }
.llmviz .lv-film-line { top: -1px; bottom: -1px; width: 0; border-left: 2px dashed var(--lv-now); }
.llmviz .lv-film-sum { top: calc(50% - 0.22em); width: 0.44em; height: 0.44em; margin-left: -0.22em; border-radius: 50%; background: var(--lv-now); box-shadow: 0 0 0 1.5px var(--lv-bg); }
.llmviz .lv-film-was { top: 0.15em; bottom: 0.15em; width: 2px; margin-left: -1px; background: var(--lv-fg); }
.llmviz .lv-film-p { position: relative; text-align: right; font-variant-numeric: tabular-nums; }
.llmviz .lv-film td[data-state=cut] .lv-film-p { color: var(--lv-danger); }
.llmviz .lv-film [data-last] .lv-film-p { font-weight: 600; }
.llmviz .lv-film tr[data-chosen] [data-last] .lv-film-p { background: var(--lv-now); color: var(--lv-bg); border-radius: 0.3em; padding: 0 0.3em; margin-right: -0.3em; }
.llmviz .lv-film tbody td { position: relative; }
.llmviz .lv-film td[data-edge]::after { content: ""; position: absolute; left: 0; right: 0; bottom: -1px; border-bottom: 2px dashed var(--lv-now); pointer-events: none; }
.llmviz .lv-film tr.lv-film-others > * { color: var(--lv-soft); border-top: 1px solid var(--lv-line); }
.llmviz .lv-film tr.lv-film-others .lv-film-cell { grid-template-columns: auto; height: auto; padding: 0.2em 0.5em; white-space: normal; }
.llmviz .lv-film tr.lv-film-others .lv-film-cell > span:first-child { display: none; }
.llmviz .lv-film tr.lv-film-others th { text-align: right; white-space: normal; padding: 0.2em 0.6em 0.2em 0; }
.llmviz .lv-film td:focus-visible { outline-offset: -2px; }
.llmviz .lv-film-why td { white-space: normal; padding: 0.4em 0.55em 0.5em; font-size: max(13px, 0.93em); line-height: 1.35; color: var(--lv-soft); background: var(--lv-raised); border-top: 1px solid var(--lv-line); overflow-wrap: break-word; }
.llmviz .lv-film-why th { text-align: right; padding: 0.4em 0.6em 0 0; font-size: max(13px, 0.93em); }
.llmviz .lv-film-off .lv-film-cell { grid-template-columns: 1fr; }
.llmviz .lv-film-off .lv-film-bars, .llmviz .lv-film-off .lv-film-p { display: none; }
.llmviz .lv-film-key { display: inline-flex; flex-wrap: wrap; gap: 0.2em 1.2em; color: var(--lv-soft); font-size: max(13px, 0.93em); margin-top: 0.35em; }
.llmviz .lv-film-key i { display: inline-block; position: static; width: 1.5em; height: 0.7em; vertical-align: -0.02em; margin-right: 0.4em; }
.llmviz .lv-film-key i.lv-film-line { width: 0; height: 1em; vertical-align: -0.15em; }
.llmviz .lv-film-key i.lv-film-was { width: 2px; height: 1em; vertical-align: -0.15em; }
.llmviz .lv-draw { margin-top: 0.8em; }
.llmviz .lv-draw-title { display: flex; flex-wrap: wrap; gap: 0.2em 0.6em; align-items: baseline; }
.llmviz .lv-draw-row { display: grid; grid-template-columns: 9.2em 1fr; align-items: end; padding: 0 2px; }
.llmviz .lv-draw-row > span:first-child { text-align: right; padding-right: 0.6em; color: var(--lv-soft); line-height: 2.1em; }
.llmviz .lv-draw-line { position: relative; height: 3.8em; }
.llmviz .lv-draw-segments { position: absolute; left: 0; right: 0; bottom: 0; height: 2.1em; border-radius: 0.35em; overflow: hidden; background: repeating-linear-gradient(135deg, var(--lv-raised) 0 5px, var(--lv-line) 5px 6px); border: 1px solid var(--lv-line); }
.llmviz .lv-draw-segment { position: absolute; top: 0; bottom: 0; display: flex; align-items: center; justify-content: center; overflow: hidden; white-space: nowrap; background: color-mix(in srgb, var(--lv-final) 16%, var(--lv-bg)); border-right: 1px solid var(--lv-bg); transition: left 0.18s, width 0.18s; }
.llmviz .lv-draw-segment:nth-child(even) { background: color-mix(in srgb, var(--lv-final) 30%, var(--lv-bg)); }
.llmviz .lv-draw-segment[data-chosen] { background: var(--lv-now); color: var(--lv-bg); font-weight: 700; }
.llmviz .lv-draw-needle { position: absolute; top: 1.2em; bottom: -2px; width: 0; margin-left: -1px; border-left: 2px solid var(--lv-fg); transition: left 0.18s; }
.llmviz .lv-draw-needle::before { content: ""; position: absolute; left: -0.42em; margin-left: -1px; top: -0.1em; border: 0.42em solid transparent; border-top-color: var(--lv-fg); border-bottom: 0; }
.llmviz .lv-draw-u { position: absolute; top: -0.15em; line-height: 1.35; white-space: nowrap; font-variant-numeric: tabular-nums; transition: left 0.18s; }
.llmviz .lv-draw-scale { display: flex; justify-content: space-between; margin-left: 9.2em; padding: 0 2px; color: var(--lv-soft); font-size: max(13px, 0.93em); font-variant-numeric: tabular-nums; }
@container (max-width: 760px) {
  .llmviz .lv-film table { width: auto; min-width: 62em; }
  .llmviz .lv-draw-row { grid-template-columns: 1fr; }
  .llmviz .lv-draw-row > span:first-child { text-align: left; }
  .llmviz .lv-draw-scale { margin-left: 0; }
}
.llmviz .lv-film[data-tight] .lv-film-why { display: none; }
.llmviz .lv-film[data-tight] tr.lv-film-others [data-frame] { border-bottom: 1px solid var(--lv-line); }
.llmviz .lv-film[data-tight] col.lv-film-tokens { width: 7em; }
.llmviz .lv-film-whys { display: grid; grid-template-columns: max-content 1fr; gap: 0.1em 0.9em; margin: 0.6em 0 0; }
.llmviz .lv-film-whys:empty { display: none; }
.llmviz .lv-film-whys dt { float: none; width: auto; font-weight: 600; }
.llmviz .lv-film-whys dd { color: var(--lv-soft); }
`;
