# Every target makes what it needs; `make help` lists them.

VENV    ?= .venv
WORKERS ?= 2
PYTEST_ARGS ?=
CLUSTER_ARGS ?=
BENCH      ?= ../shared/bench/promo_bench.py
COMPARE_ARGS ?=
BENCH_ARGS ?= latency throughput idle --check

BIN    := $(VENV)/bin
PYTHON := $(BIN)/python
STAMP  := $(VENV)/.installed
SHELL  := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: setup
setup: $(STAMP) ## install everything for development into .venv (once, and when pyproject.toml has changed)

$(STAMP): pyproject.toml
	@if ! $(PYTHON) -c '' 2>/dev/null; then \
	  for python in python3 python3.14 python3.13 python3.12 python3.11; do \
	    if $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then break; fi; \
	    python=; \
	  done; \
	  if [ -z "$$python" ]; then echo "make setup: no Python 3.11 or newer in PATH" >&2; exit 1; fi; \
	  echo "making $(VENV) with $$($$python --version)"; \
	  $$python -m venv --clear $(VENV); \
	fi
	@$(PYTHON) -c 'import pip, sys; sys.exit([*map(int, pip.__version__.split(".")[:2])] < [25, 1])' \
	  || $(PYTHON) -m pip install --quiet --upgrade 'pip>=25.1'
	$(PYTHON) -m pip install --quiet --editable '.[http,local]' --group test --group lint --group docs
	@touch $@

.PHONY: test
test: setup ## tests that need no outside binary
	$(PYTHON) -m pytest -m 'not envtest' -n $(WORKERS) $(PYTEST_ARGS)

.PHONY: envtest
envtest: setup ## build kube-apiserver and etcd into the cache (minutes the first time, then nothing)
	$(PYTHON) -m tests.envtest.binaries

.PHONY: test-envtest
test-envtest: envtest ## tests that run against a real kube-apiserver
	$(PYTHON) -m pytest -m envtest -n $(WORKERS) $(PYTEST_ARGS)

.PHONY: cluster
cluster: envtest ## a real API server with all CRDs to try things on, until Ctrl-C (CLUSTER_ARGS='--port N --directory DIR')
	@exec $(PYTHON) -m tests.envtest.serve $(CLUSTER_ARGS)

.PHONY: lint
lint: setup contracts ## format check, lint, spelling, import contracts
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/codespell

.PHONY: contracts
contracts: setup ## who may import whom
	$(BIN)/lint-imports

.PHONY: format
format: setup ## format, and fix what can be fixed by itself
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

.PHONY: types
types: setup ## mypy --strict
	$(BIN)/mypy

.PHONY: crds
crds: setup ## generate crds/ from the models
	$(PYTHON) -m kargo_py.api.crd crds

.PHONY: check-crds
check-crds: setup ## fail when crds/ is not what the models say
	$(PYTHON) -m kargo_py.api.crd --check crds

.PHONY: messages
messages: setup ## generate docs/reference/messages.md from the declarations
	$(PYTHON) -m kargo_py.cli.messages docs/reference/messages.md

.PHONY: check-messages
check-messages: setup ## fail when docs/reference/messages.md is not what the declarations say
	$(PYTHON) -m kargo_py.cli.messages --check docs/reference/messages.md

.PHONY: docs
docs: setup ## build the documentation into site/
	$(BIN)/mkdocs build --strict

.PHONY: bench
bench: envtest ## measure `kargo-py run` on a real API server (BENCH_ARGS='all --check', BENCH=path of promo_bench.py)
	$(PYTHON) -m tests.envtest.bench --script $(BENCH) -- $(BENCH_ARGS)

.PHONY: compare
compare: envtest ## what the embedded API server costs beside a real one (COMPARE_ARGS='--objects 1000 --writes 200')
	$(PYTHON) -m tests.envtest.compare $(COMPARE_ARGS)

.PHONY: clean
clean: ## remove what the other targets made here (the cache of binaries stays)
	rm -rf $(VENV) site build dist bench-runs .coverage .hypothesis .import_linter_cache
	rm -rf .mypy_cache .pytest_cache .ruff_cache
	find kargo_py tests -name __pycache__ -prune -exec rm -rf {} +
