# llmviz: every target does its own set-up, from a fresh clone, and is quick the second time.
#
#   make lab      open the quickstart notebook in JupyterLab
#   make test     run the tests
#   make check    lint, format and types
#   make bench    measure speed
#   make gpu-check  test-gpu and bench-gpu, on a machine with a CUDA device
#   make parity   measure agreement with llama.cpp, write docs/parity.md
#   make builtin-model  train the built-in model again, measure it, write its card
#
# Settings: PYTHON=python3.12  VENV=.venv  MODEL=smollm2-135m
#           LAB_ARGS="--no-browser --port 9000"  PYTEST_ARGS="-x tests/test_hub.py"
#           BENCH_ARGS="--rounds 3"

PYTHON      ?= python3
VENV        ?= .venv
MODEL       ?= smollm2-135m
LAB_ARGS    ?=
PYTEST_ARGS ?= -n auto
BENCH_ARGS  ?=
PARITY_ARGS ?=
TRAIN_ARGS  ?=

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check

.PHONY: lab test check format bench test-gpu bench-gpu gpu-check parity builtin-model model chromium clean help
.DEFAULT_GOAL := help

help:
	@sed -n '3,13p' Makefile | sed 's/^# \{0,1\}//'

# -- set-up: a stamp for each set of packages, renewed when pyproject.toml changes ---------------

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "llmviz needs Python 3.11 or newer, $(PYTHON) is older or missing: make ... PYTHON=python3.12" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
	  echo "no virtual environment could be made; on Debian or Ubuntu: apt-get install python3-venv" >&2; exit 1; }

$(VENV)/.lab: pyproject.toml | $(BIN)/python
	$(PIP) install --quiet --editable '.[lab]'
	@touch $@

$(VENV)/.test: pyproject.toml | $(BIN)/python
	$(PIP) install --quiet --editable '.[lab,test]'
	@touch $@ $(VENV)/.lab

$(VENV)/.train: pyproject.toml | $(BIN)/python
	$(PIP) install --quiet --editable '.[train]'
	@touch $@

$(VENV)/.dev: pyproject.toml | $(BIN)/python
	$(PIP) install --quiet --editable '.[lab,test,dev]'
	@touch $@ $(VENV)/.lab $(VENV)/.test

# Checks the cache first, so it costs nothing once the model is there.
model: | $(VENV)/.lab
	@$(BIN)/llmviz models fetch $(MODEL)

# The browser tests drive a Chromium or Chrome that the system has; they skip where there is none.
chromium:
	@for name in chromium chromium-browser google-chrome google-chrome-stable; do \
	  if command -v $$name >/dev/null 2>&1; then exit 0; fi; \
	done; \
	if [ -d "/Applications/Google Chrome.app" ]; then exit 0; fi; \
	if ! command -v apt-get >/dev/null 2>&1; then \
	  echo "no Chromium found: install Chromium or Google Chrome to run the browser tests, which are skipped now"; exit 0; \
	fi; \
	if [ "$$(id -u)" = 0 ]; then sudo=""; \
	elif command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then sudo="sudo"; \
	else \
	  echo "no Chromium found: 'sudo apt-get install chromium' lets the browser tests run, which are skipped now"; exit 0; \
	fi; \
	echo "installing Chromium for the browser tests"; \
	$$sudo apt-get update -qq && \
	$$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium >/dev/null

# -- what people run ----------------------------------------------------------------------------

lab: $(VENV)/.lab model
	$(BIN)/llmviz lab $(LAB_ARGS)

# One BLAS thread a worker: pytest-xdist already keeps every core busy.
test: $(VENV)/.test model chromium
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest $(PYTEST_ARGS)

check: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.test model chromium
	$(BIN)/python tests/benchmarks/bench_engine.py $(BENCH_ARGS)
	$(BIN)/python tests/benchmarks/bench_start.py
	$(BIN)/python tests/benchmarks/bench_memory.py
	$(BIN)/python tests/benchmarks/bench_cost.py
	$(BIN)/python tests/benchmarks/bench_panel.py $(BENCH_ARGS)
	$(BIN)/python tests/benchmarks/bench_graph.py

# On a machine with a CUDA device: docs/gpu.md.
$(VENV)/.cuda: pyproject.toml | $(VENV)/.test
	$(PIP) install --quiet --editable '.[lab,test,cuda]'
	@touch $@

test-gpu: $(VENV)/.cuda model
	$(BIN)/python tests/gpu_check.py tests

bench-gpu: $(VENV)/.cuda model
	$(BIN)/python tests/gpu_check.py bench $(BENCH_ARGS)

gpu-check: $(VENV)/.cuda model
	$(BIN)/python tests/gpu_check.py all $(BENCH_ARGS)

# Every figure in docs/parity.md is measured here.
parity: $(VENV)/.test model
	cd tests && OPENBLAS_NUM_THREADS=1 LLMVIZ_KERNELS=exact ../$(BIN)/python parity_table.py $(PARITY_ARGS)

# Three courses, as docs/builtin-model.md tells; then the files, what they can do, and the card.
TRAINED := build/builtin-model
TRAIN   := $(BIN)/python -m training.builtin.train
builtin-model: $(VENV)/.train
	$(TRAIN) --out $(TRAINED)/first --steps 9600 --stop 6200 $(TRAIN_ARGS)
	$(TRAIN) --course second --after $(TRAINED)/first --out $(TRAINED)/second \
	  --steps 5200 --stop 3120 --peak 1.5e-3 --seed 2 $(TRAIN_ARGS)
	$(TRAIN) --course third --after $(TRAINED)/second --out $(TRAINED)/third \
	  --steps 3000 --peak 1.5e-3 --seed 3 $(TRAIN_ARGS)
	$(BIN)/python -m training.builtin.export --runs $(TRAINED)
	$(BIN)/python -m training.builtin.measure
	$(BIN)/python -m training.builtin.card

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache
