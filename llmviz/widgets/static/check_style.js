// A question's own rules; colours and sizes come from base.css.
export const CHECK_STYLE = `
.llmviz[data-view=check] { --lv-size: 15px; --lv-good: var(--lv-seq-2); padding: 0; border-left: 4px solid var(--lv-now); border-radius: 0.4em; }
.llmviz[data-view=check].lv-projector { --lv-size: 22px; }
.llmviz[data-view=check]:has([data-state=right], [data-state=done]) { border-left-color: var(--lv-good); }
.llmviz .lv-check { display: grid; gap: 0.6em; padding: 0.75em 0.95em 0.8em; max-width: 60em; }
.llmviz .lv-asked { font-size: 1.06em; font-weight: 500; line-height: 1.45; max-width: 48em; }
.llmviz .lv-check code { padding: 0.05em 0.3em; border-radius: 0.25em; background: var(--lv-hover); }
.llmviz .lv-answer { display: grid; gap: 0.6em; justify-items: start; }
.llmviz .lv-answer > :first-child { max-width: 100%; }
.llmviz :is([data-kind=number], [data-kind=token]) > .lv-answer { display: flex; flex-wrap: wrap; align-items: center; gap: 0.6em 0.9em; }
.llmviz .lv-answer > .lv-order { width: min(40em, 100%); }
.llmviz .lv-check-row { display: flex; flex-wrap: wrap; align-items: center; gap: 0.5em 0.7em; }
.llmviz .lv-check input.lv-check-number, .llmviz .lv-check input.lv-check-text { padding: 0.35em 0.6em; border: 1px solid color-mix(in srgb, var(--lv-fg) 45%, var(--lv-bg)); border-radius: 0.35em; background: var(--lv-bg); color: var(--lv-fg); font-size: 1em; height: auto; }
.llmviz .lv-check-number { width: 11em; font-variant-numeric: tabular-nums; }
.llmviz .lv-check-text { width: 20em; max-width: 100%; font-family: var(--lv-mono); }
.llmviz .lv-check-go { background: var(--lv-now); border-color: var(--lv-now); color: var(--lv-bg); font-weight: 600; padding: 0.35em 1em; }
.llmviz .lv-check-go:hover:not(:disabled) { background: color-mix(in srgb, var(--lv-now) 85%, var(--lv-fg)); }
.llmviz .lv-check [data-action=show-answer] { color: var(--lv-now); border-color: var(--lv-line); padding: 0.35em 0.9em; }

.llmviz .lv-choices { display: grid; gap: 0.15em; }
.llmviz .lv-choice { display: flex; align-items: baseline; gap: 0.6em; padding: 0.28em 0.5em; border-radius: 0.35em; cursor: pointer; }
.llmviz .lv-choice:hover { background: var(--lv-hover); }
.llmviz .lv-choice:has(input:checked) { background: var(--lv-now-soft); }
.llmviz .lv-choice input { accent-color: var(--lv-now); width: 1.05em; height: 1.05em; flex: none; translate: 0 0.15em; }

.llmviz .lv-order { display: grid; gap: 0.25em; counter-reset: place; max-width: 40em; }
.llmviz .lv-order-item { display: flex; align-items: center; gap: 0.3em; padding: 0.25em 0.4em 0.25em 0.7em; border: 1px solid var(--lv-line); border-radius: 0.4em; background: var(--lv-bg); cursor: grab; touch-action: none; user-select: none; counter-increment: place; }
.llmviz .lv-order-item::before { content: counter(place); color: var(--lv-soft); font-variant-numeric: tabular-nums; min-width: 1.3em; }
.llmviz .lv-order-item:hover { background: var(--lv-hover); }
.llmviz .lv-order-item.lv-held { border-color: var(--lv-now); background: var(--lv-now-soft); cursor: grabbing; }
.llmviz .lv-order-text { flex: 1; min-width: 0; }

.llmviz .lv-marks-box { overflow-x: auto; padding: 2px; }
.llmviz table.lv-marks { border-collapse: collapse; border: 0; background: none; width: auto; }
.llmviz .lv-marks :is(tr, th, td) { border: 0; background: none !important; padding: 0; text-align: center; font-weight: 400; vertical-align: middle; }
.llmviz .lv-marks thead th { padding: 0 0.4em 0.25em; vertical-align: bottom; max-width: 9em; }
.llmviz .lv-marks tbody th { text-align: right; padding-right: 0.5em; white-space: nowrap; }
.llmviz .lv-marks .lv-mark-axes { color: var(--lv-soft); font-size: max(13px, 0.88em); text-align: right; padding-right: 0.5em; white-space: nowrap; }
.llmviz .lv-mark-cell { min-width: 2.1em; width: 100%; height: 2.1em; padding: 0 0.3em; border: 1px solid color-mix(in srgb, var(--lv-fg) 30%, var(--lv-bg)); background: var(--lv-bg); cursor: pointer; touch-action: none; user-select: none; display: block; font-variant-numeric: tabular-nums; }
.llmviz .lv-mark-cell:hover { background: var(--lv-hover); }
.llmviz .lv-mark-cell[aria-pressed=true] { background: var(--lv-now); border-color: var(--lv-now); color: var(--lv-bg); }
.llmviz .lv-mark-cell[aria-pressed=true]:empty::after { content: "✓"; }
.llmviz .lv-mark-cell:focus-visible { outline-offset: -3px; outline-color: var(--lv-fg); }

.llmviz .lv-chips { display: flex; flex-wrap: wrap; gap: 0.3em; }
.llmviz .lv-chip { display: inline-flex; flex-direction: column; align-items: center; padding: 0.15em 0.55em; border: 1px solid var(--lv-line); border-radius: 0.35em; background: var(--lv-raised); cursor: pointer; line-height: 1.25; }
.llmviz .lv-chip:hover { background: var(--lv-hover); }
.llmviz .lv-chip small { color: var(--lv-soft); font-size: max(12px, 0.8em); font-variant-numeric: tabular-nums; }
.llmviz .lv-chip[aria-pressed=true] { background: var(--lv-now-soft); border-color: var(--lv-now); box-shadow: inset 0 -2px 0 var(--lv-now); }

.llmviz .lv-verdict { display: grid; grid-template-columns: auto minmax(0, 1fr); gap: 0.6em; align-items: baseline; padding: 0.5em 0.75em; border-radius: 0.4em; background: var(--lv-raised); }
.llmviz .lv-verdict[data-state=right] { background: color-mix(in srgb, var(--lv-good) 13%, var(--lv-bg)); }
.llmviz .lv-sign { width: 1.5em; height: 1.5em; border-radius: 50%; display: inline-grid; place-items: center; font-weight: 700; line-height: 1; background: var(--lv-hover); }
.llmviz .lv-verdict[data-state=right] .lv-sign { background: var(--lv-good); color: var(--lv-bg); }
.llmviz .lv-verdict p { line-height: 1.5; max-width: 48em; }
.llmviz .lv-told { font-variant-numeric: tabular-nums; }
.llmviz .lv-solution { white-space: pre; overflow: auto; margin: 0.4em 0 0; padding: 0.6em 0.8em; background: var(--lv-bg); border: 1px solid var(--lv-line); border-radius: 0.35em; }
.llmviz .lv-check-note:empty { display: none; }
`;
