"""``python -m llmviz``: the same as the ``llmviz`` command."""

from llmviz.cli import main

if __name__ == "__main__":
    main()
