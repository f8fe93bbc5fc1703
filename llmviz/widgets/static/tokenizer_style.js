// The tokenizer view's own rules; colours and sizes come from base.css.
export const TOKENIZER_STYLE = `
.llmviz .lv-tok textarea { width: 100%; box-sizing: border-box; font: inherit; color: inherit; background: var(--lv-bg); border: 1px solid var(--lv-line); border-radius: 0.4em; padding: 0.4em 0.6em; resize: vertical; min-height: 2.6em; unicode-bidi: plaintext; }
.llmviz .lv-tok-settings { margin: 0.35em 0 0.6em; }
.llmviz .lv-tok-settings label { display: inline-flex; align-items: center; gap: 0.4em; }
.llmviz .lv-tok-settings input { accent-color: var(--lv-now); }
.llmviz .lv-tok-side + .lv-tok-side { margin-top: 0.7em; padding-top: 0.6em; border-top: 1px solid var(--lv-line); }
.llmviz .lv-tok-head { display: flex; flex-wrap: wrap; align-items: baseline; gap: 0.1em 0.8em; margin-bottom: 0.35em; }
.llmviz .lv-tok-head b { font-weight: 600; }
.llmviz .lv-tok-head .lv-tok-count { font-size: 1.15em; font-weight: 600; font-variant-numeric: tabular-nums; }
.llmviz .lv-tok-boxes { display: flex; flex-wrap: wrap; gap: 0.4em 0.45em; max-height: 19em; overflow: auto; padding: 0.8em 0.6em 0.35em 3px; direction: ltr; }
.llmviz .lv-tok-rules { color: var(--lv-soft); font-size: max(13px, 0.93em); }
.llmviz .lv-tok-rules summary { cursor: pointer; }
.llmviz .lv-tok-rules code { display: block; overflow-wrap: anywhere; padding: 0.1em 0 0.1em 1.2em; }
.llmviz .lv-tok-settings input { width: 1em; height: 1em; }
.llmviz .lv-tok-word { display: inline-flex; flex-wrap: wrap; gap: 0.35em 0; max-width: 100%; }
.llmviz .lv-tok-box { position: relative; display: inline-grid; justify-items: center; gap: 0; padding: 0.1em 0.4em 0.05em; background: var(--lv-raised); border: 1px solid var(--lv-line); cursor: pointer; line-height: 1.3; max-width: 100%; }
.llmviz .lv-tok-word > .lv-tok-box + .lv-tok-box { margin-left: -1px; }
.llmviz .lv-tok-word > .lv-tok-box:first-child { border-radius: 0.4em 0 0 0.4em; }
.llmviz .lv-tok-word > .lv-tok-box:last-child { border-radius: 0 0.4em 0.4em 0; }
.llmviz .lv-tok-word > .lv-tok-box:only-child { border-radius: 0.4em; }
.llmviz .lv-tok-box:hover { background: var(--lv-hover); }
.llmviz .lv-tok-box .lv-piece { font-size: 1.08em; max-width: 22em; overflow: hidden; text-overflow: ellipsis; }
.llmviz .lv-tok-id { font-size: max(13px, 0.93em); color: var(--lv-soft); font-variant-numeric: tabular-nums; }
.llmviz .lv-tok-box[data-kind="1"] { background: color-mix(in srgb, var(--lv-final) 15%, var(--lv-bg)); border-color: var(--lv-final); }
.llmviz .lv-tok-box[data-kind="1"] .lv-tok-id { color: var(--lv-fg); }
.llmviz .lv-tok-box[data-kind="2"] { background: none; border-style: dashed; border-color: var(--lv-final); }
.llmviz .lv-tok-box[data-kind="3"] { background: none; border-style: dashed; border-color: var(--lv-soft); }
.llmviz .lv-tok-box[data-kind="3"] .lv-piece { color: var(--lv-soft); }
.llmviz .lv-tok-box[aria-pressed=true] { border-color: var(--lv-now); box-shadow: inset 0 0 0 1px var(--lv-now); background: var(--lv-now-soft); z-index: 1; }
.llmviz .lv-tok-box[data-diff]::before { content: "≠"; position: absolute; top: -0.75em; right: -0.35em; width: 1.25em; height: 1.25em; line-height: 1.2em; text-align: center; border-radius: 50%; background: var(--lv-danger); color: var(--lv-bg); font-weight: 700; z-index: 2; }
.llmviz .lv-tok-box[data-diff] { border-color: var(--lv-danger); border-style: solid; box-shadow: inset 0 0 0 1px var(--lv-danger); }
.llmviz .lv-tok-key { display: inline-flex; flex-wrap: wrap; gap: 0.2em 1.2em; color: var(--lv-soft); font-size: max(13px, 0.93em); margin-top: 0.3em; }
.llmviz .lv-tok-key i { display: inline-block; width: 1.5em; height: 0.85em; vertical-align: -0.1em; margin-right: 0.4em; border: 1px solid var(--lv-line); border-radius: 0.2em; background: var(--lv-raised); }
.llmviz .lv-tok-part { display: flex; flex-wrap: wrap; align-items: center; gap: 0.3em 0.9em; margin-top: 0.6em; }
.llmviz .lv-tok-films { display: grid; grid-template-columns: 1fr; gap: 0.8em; margin-top: 0.8em; }
.llmviz .lv-tok-films[data-two] { grid-template-columns: 1fr 1fr; }
.llmviz .lv-tok-film { border: 1px solid var(--lv-line); border-radius: 0.5em; padding: 0.55em 0.8em 0.7em; background: var(--lv-raised); min-width: 0; }
.llmviz .lv-tok-film h4 { margin: 0; font-size: 1em; font-weight: 600; }
.llmviz .lv-tok-film header { display: flex; flex-wrap: wrap; align-items: baseline; gap: 0.1em 0.7em; }
.llmviz .lv-tok-symbols { display: flex; flex-wrap: wrap; gap: 0.55em 0.3em; margin: 0.7em 0 0.6em; min-height: 3.6em; align-content: flex-start; direction: ltr; }
.llmviz .lv-tok-symbol { display: inline-grid; justify-items: center; padding: 0.15em 0.5em; border: 1px solid var(--lv-line); border-radius: 0.4em; background: var(--lv-bg); line-height: 1.3; transition: padding 0.2s, border-color 0.2s; max-width: 100%; }
.llmviz .lv-tok-symbol .lv-piece { font-size: 1.25em; }
.llmviz .lv-tok-symbol small { font-size: max(13px, 0.9em); color: var(--lv-soft); font-family: var(--lv-mono); }
.llmviz .lv-tok-symbol[data-next] { border: 1px dashed var(--lv-now); box-shadow: 0 0 0 1px var(--lv-now-soft); }
.llmviz .lv-tok-symbol[data-next=left] { margin-right: -0.3em; border-radius: 0.4em 0 0 0.4em; }
.llmviz .lv-tok-symbol[data-next=right] { border-radius: 0 0.4em 0.4em 0; border-left-color: transparent; }
.llmviz .lv-tok-symbol[data-new] { background: var(--lv-now); border-color: var(--lv-now); animation: lv-tok-join 0.35s ease-out; }
.llmviz .lv-tok-symbol[data-new] .lv-piece, .llmviz .lv-tok-symbol[data-new] small { color: var(--lv-bg); }
.llmviz .lv-tok-symbol[data-token] { border-width: 2px; border-color: var(--lv-fg); }
@keyframes lv-tok-join { from { transform: scale(1.18); } }
.llmviz .lv-tok-say { min-height: 1.5em; }
.llmviz .lv-tok-list { max-height: 11.5em; overflow: auto; margin-top: 0.3em; }
.llmviz .lv-tok-list table { font-family: var(--lv-mono); font-size: max(13px, 0.93em); min-width: min(100%, 30em); }
.llmviz .lv-tok-list th { font-size: max(13px, 1em); padding: 0 1.4em 0 0; position: sticky; top: 0; background: var(--lv-raised); font-family: var(--jp-ui-font-family, system-ui, sans-serif); }
.llmviz .lv-tok-list th:last-child { text-align: right; padding-right: 0.4em; }
.llmviz .lv-tok-list td { padding: 0.05em 1.4em 0.05em 0.4em; white-space: nowrap; cursor: pointer; }
.llmviz .lv-tok-list td:last-child { padding-right: 0.4em; }
.llmviz .lv-tok-list td:first-child, .llmviz .lv-tok-list td:last-child { text-align: right; font-variant-numeric: tabular-nums; }
.llmviz .lv-tok-list td:first-child { color: var(--lv-soft); width: 2.6em; }
.llmviz .lv-tok-list tr[aria-current] td { background: var(--lv-now-soft); font-weight: 600; }
.llmviz .lv-tok-list tr[data-todo] td { color: var(--lv-soft); }
.llmviz .lv-tok-list tr[data-diff] td { box-shadow: inset 0 -1px 0 var(--lv-danger), inset 0 1px 0 var(--lv-danger); }
.llmviz .lv-tok-control { display: flex; flex-wrap: wrap; align-items: center; gap: 0.35em 0.5em; margin-top: 0.8em; }
.llmviz .lv-tok-control input[type=range] { flex: 1; min-width: 8em; accent-color: var(--lv-now); }
@container (max-width: 760px) { .llmviz .lv-tok-films[data-two] { grid-template-columns: 1fr; } }
`;
