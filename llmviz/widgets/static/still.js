// One view on a page of its own, as it stood when the page was made. `view` stands above.
import { show, inflated, stillModel, unpacked } from "./host.js";

(async () => {
  const [core, blob] = await Promise.all(["core", "blob"].map(inflated));
  const model = stillModel(unpacked(JSON.parse(new TextDecoder().decode(core)), blob));
  window.llmviz = model;
  await show(view, model);
})().catch((error) => { document.getElementById("view").textContent = `This page could not be opened: ${error.message}`; });
