"""One file per architecture; each registers itself with `llmviz.model.arch`."""
