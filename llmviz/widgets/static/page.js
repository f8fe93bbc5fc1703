// The page of a recorded run: unpacks its data and lets the player play it.
import { show, inflated, words } from "./host.js";
import { player } from "./player.js";
import { recordedView } from "./recorded.js";

(async () => {
  const [core, blob, arrays, flow] = await Promise.all(["core", "blob", "arrays", "flow"].map(inflated));
  const about = JSON.parse(new TextDecoder().decode(core));
  const model = player(about, blob, words(arrays), words(flow), about.start);
  model.views = about.views;
  window.llmviz = model;
  await show(recordedView, model);
})().catch((error) => { document.getElementById("view").textContent = `This page could not be opened: ${error.message}`; });
