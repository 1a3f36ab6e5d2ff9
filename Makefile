# Everything runs in .venv, made with nothing but Python and pip. `make help` lists the targets.

unexport PYTHONDONTWRITEBYTECODE # every process would compile all of the source anew

# 3.11 or newer; test processes, of one thread each; more for pytest and others, as in ARGS="-k replay".
PYTHON  ?= python3
WORKERS ?= 2
ARGS    ?=

# Test processes, a file each; programs that compile in a third of the time, but round differently.
QUICK  := --xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false \
  --xla_cpu_parallel_codegen_split_count=1
SHARED := -n $(WORKERS) --dist loadfile --no-loadscope-reorder
OPTIMISED = $(shell grep -rl --include='test_*.py' mark.optimised tests)

VERSION = $(shell sed -n 's/^version = "\([^"]*\)".*/\1/p' pyproject.toml)
BIN  := .venv/bin
PIP  := $(BIN)/python -m pip install -qq --disable-pip-version-check

DEMO := train sac --env jax:pendulum --steps 20000 --algo.hidden 64 64

.PHONY: help setup demo docs test test-thorough test-slow test-faults test-browser test-wheel mutants browser bench zoo lint \
  format build release clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-12s %s\n", $$1, $$2}' Makefile

setup: .venv/.dev ## install Thespis and the tools for working on it into .venv

demo: .venv/.core ## train SAC to swing up a pendulum
	$(BIN)/thespis $(DEMO)

docs: .venv/.docs ## the documentation as a site, in build/site
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "build/site/index.html"

test: .venv/.dev ## the default tests
	XLA_FLAGS="$(QUICK)" $(BIN)/python -m pytest $(SHARED) -m "not slow and not thorough and not optimised" $(ARGS) || [ $$? = 5 ]
	$(BIN)/python -m pytest $(SHARED) -m "optimised and not slow and not thorough" $(if $(findstring tests/,$(ARGS)),,$(OPTIMISED)) $(ARGS) || [ $$? = 5 ]

test-thorough: .venv/.dev ## further cases of what the default tests show
	XLA_FLAGS="$(QUICK)" $(BIN)/python -m pytest $(SHARED) -m "thorough and not slow and not optimised" $(ARGS)
	$(BIN)/python -m pytest $(SHARED) -m "thorough and optimised and not slow" $(OPTIMISED) $(ARGS) || [ $$? = 5 ]

test-slow: .venv/.slow browser test-thorough ## the tests that learn to a threshold, in a browser, or on Brax and PettingZoo
	$(BIN)/python -m pytest -n $(WORKERS) -m slow $(ARGS)
	XLA_FLAGS="$(QUICK)" $(BIN)/python -m pytest $(SHARED) -m "not slow and not thorough" tests/envs $(ARGS) || [ $$? = 5 ]

test-faults: .venv/.dev ## attack runs: kills, failing disks, damaged files, nonsense; into docs/reliability.md
	XLA_FLAGS="$(QUICK)" $(BIN)/python -m tests.faults --save docs/reliability.md $(ARGS)

mutants: .venv/.dev ## put a fault into one line at a time, and tell which no test notices
	XLA_FLAGS="$(QUICK)" $(BIN)/python -m tests.mutants -n $(WORKERS) $(ARGS)

test-browser: .venv/.dev browser ## the report in a real browser
	$(BIN)/python -m pytest -m slow tests/browser $(ARGS)

browser:
	@command -v chromedriver >/dev/null && { command -v chromium || command -v google-chrome; } >/dev/null || { \
	  [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && echo "Installing Chromium, once." \
	    && apt-get update -qq && apt-get install -yqq --no-install-recommends chromium chromium-driver >/dev/null; } || { \
	  echo "The tests in a browser need Chromium and its driver: apt-get install chromium chromium-driver" >&2; exit 1; }

bench: .venv/.dev ## speed against other libraries, into docs/benchmarks.md; about an hour
	$(BIN)/python benchmarks/run.py --save docs/benchmarks.md $(ARGS)

zoo: .venv/.dev ## train the policies of thespis zoo again; some thirteen CPU-minutes
	$(BIN)/python benchmarks/zoo.py $(ARGS)

lint: .venv/.dev ## style, layers and types
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/lint-imports
	$(BIN)/pyright

format: .venv/.dev ## fix what can be fixed automatically
	$(BIN)/ruff check --fix --exit-zero
	$(BIN)/ruff format

build: .venv/.release ## wheel and sdist, in dist
	rm -rf dist
	$(BIN)/python -m build
	$(BIN)/python -m twine check --strict dist/*

test-wheel: build ## the wheel in a clean environment; PYTHON=python3.13, ARGS=--lowest for the oldest dependencies
	$(BIN)/python -m tests.wheel --python "$(if $(filter file,$(origin PYTHON)),$(BIN)/python,$(PYTHON))" $(ARGS)

release: ## build and try what is published by a tag, as in TAG=v0.2.0
	@[ "$(TAG)" = "v$(VERSION)" ] || { echo "TAG is '$(TAG)', but pyproject.toml has the version $(VERSION)" >&2; exit 1; }
	$(MAKE) test-wheel

clean: ## remove caches and builds; .venv and runs stay
	rm -rf .cache .hypothesis build dist
	find . -path ./.venv -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/.core: pyproject.toml | $(BIN)/python
	@echo "Installing Thespis into .venv, once: some 200 MB to fetch, a minute or two."
	@$(PIP) -e .
	@touch $@

.venv/.dev: pyproject.toml | $(BIN)/python
	@echo "Installing Thespis and its tools into .venv, once: some 350 MB to fetch, a minute or three."
	@$(PIP) -e '.[dev]'
	@touch $@ .venv/.core

.venv/.slow: pyproject.toml | $(BIN)/python
	@echo "Installing also what the slow tests train on, once."
	@$(PIP) -e '.[dev,slow]'
	@touch $@ .venv/.dev .venv/.core

.venv/.docs: pyproject.toml | $(BIN)/python
	@echo "Installing Thespis and mkdocs into .venv, once."
	@$(PIP) -e '.[docs]'
	@touch $@ .venv/.core

.venv/.release: pyproject.toml | $(BIN)/python
	@echo "Installing what builds packages into .venv, once."
	@$(PIP) -e '.[release]'
	@touch $@ .venv/.core

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Thespis needs Python 3.11 or newer; '$(PYTHON)' is" \
	    "$$($(PYTHON) --version 2>&1). Say which to use: make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -m venv .venv || { rm -rf .venv; exit 1; }
