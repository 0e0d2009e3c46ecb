# Every target makes what it needs; `make help` lists them.

VENV    ?= .venv
RUN_VENV ?= .venv-run
WORKERS ?= 2
DEMO_ARGS ?=
PYTEST_ARGS ?=
SEEDS ?= 1000
FRESH ?= 0
CLUSTER_ARGS ?=
SEQUENCES  ?= 500
FUZZ_ARGS  ?=
BENCH      ?= ../shared/bench/promo_bench.py
COMPARE_ARGS ?=
BENCH_ARGS ?= latency throughput idle --check

BIN    := $(VENV)/bin
PYTHON := $(BIN)/python
STAMP  := $(VENV)/.installed
# The demo runs in the development environment where that is there and current, else in a small one of its own.
DEMO_VENV := $(if $(shell [ $(STAMP) -nt pyproject.toml ] && echo current),$(VENV),$(RUN_VENV))
# Where it is set, Python would compile all of it again in each worker and in each process that a test starts.
unexport PYTHONDONTWRITEBYTECODE

SHELL  := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

# $(1): the environment, made unless its Python runs; $(2): the target that a complaint names.
define make-venv
if ! $(1)/bin/python -c '' 2>/dev/null; then \
  for python in python3 python3.14 python3.13 python3.12 python3.11; do \
    if $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then break; fi; \
    python=; \
  done; \
  if [ -z "$$python" ]; then echo "$(2): no Python 3.11 or newer in PATH" >&2; exit 1; fi; \
  echo "making $(1) with $$($$python --version)"; \
  $$python -m venv --clear $(1); \
fi
endef

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: demo
demo: $(DEMO_VENV)/.installed ## see it work in ten seconds, without a cluster (DEMO_ARGS='--keep --port N')
	@exec $(DEMO_VENV)/bin/python -m kargo_py demo $(DEMO_ARGS)

$(RUN_VENV)/.installed: pyproject.toml
	@$(call make-venv,$(RUN_VENV),make demo)
	@echo 'installing kargo-py[local] into $(RUN_VENV)'
	@$(RUN_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[local]'
	@touch $@

.PHONY: setup
setup: $(STAMP) ## install everything for development into .venv (once, and when pyproject.toml has changed)

$(STAMP): pyproject.toml
	@$(call make-venv,$(VENV),make setup)
	@$(PYTHON) -c 'import pip, sys; sys.exit([*map(int, pip.__version__.split(".")[:2])] < [25, 1])' \
	  || $(PYTHON) -m pip install --quiet --upgrade 'pip>=25.1'
	$(PYTHON) -m pip install --quiet --editable '.[local]' --group test --group lint --group docs
	@touch $@

.PHONY: test
test: setup ## tests that need no outside binary
	$(PYTHON) -m pytest -m 'not envtest and not golang' -n $(WORKERS) --dist worksteal $(PYTEST_ARGS)

.PHONY: simulate
simulate: setup ## play simulated histories and judge them by the Laws (SEEDS=1000 fixed ones, FRESH=0 new ones)
	$(PYTHON) -m tests.simulation --seeds $(SEEDS) --fresh $(FRESH) --shrink --processes $(WORKERS)

.PHONY: envtest
envtest: setup ## build kube-apiserver and etcd into the cache (minutes the first time, then nothing)
	$(PYTHON) -m tests.envtest.binaries

.PHONY: test-golang
test-golang: setup ## expressions nobody wrote, compared with the Go library (needs Go)
	$(PYTHON) -m pytest tests/expressions -m golang -n 0 $(PYTEST_ARGS)

.PHONY: test-envtest
test-envtest: envtest ## tests that run against a real kube-apiserver
	$(PYTHON) -m pytest -m envtest -n $(WORKERS) --dist worksteal $(PYTEST_ARGS)

.PHONY: cluster
cluster: envtest ## a real API server with all CRDs to try things on, until Ctrl-C (CLUSTER_ARGS='--port N --directory DIR')
	@exec $(PYTHON) -m tests.envtest.serve $(CLUSTER_ARGS)

.PHONY: fuzz
fuzz: envtest ## ask the embedded API server and a real one the same at random (SEQUENCES=N, FUZZ_ARGS='--seed N --kind K')
	$(PYTHON) -m tests.differential --sequences $(SEQUENCES) $(FUZZ_ARGS)

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
messages: setup ## generate docs/reference/messages.md alone
	$(PYTHON) -m kargo_py.cli.messages docs/reference/messages.md

.PHONY: reference
reference: setup ## generate docs/reference/ from models, commands, metrics and declarations, messages.md included
	$(PYTHON) -m tools.reference docs/reference

.PHONY: check-reference
check-reference: setup ## fail when docs/reference/ is not what the code says
	$(PYTHON) -m tools.reference --check docs/reference

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
	rm -rf $(VENV) $(RUN_VENV) site build dist bench-runs .coverage .hypothesis .import_linter_cache
	rm -rf .mypy_cache .pytest_cache .ruff_cache
	find kargo_py tests -name __pycache__ -prune -exec rm -rf {} +
