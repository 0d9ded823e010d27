# The two commands of the README, and the parts they are made of.
# Each works on a fresh clone with nothing but Python 3.11, pip and make.

PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: quickstart test format lint types tests reference benchmark clean

quickstart: .venv/.installed
	$(BIN)/assay quickstart

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
.venv/.installed: pyproject.toml constraints.txt | .venv/bin/python
	$(PIP) -e .
	@touch $@

.venv/.installed-dev: pyproject.toml constraints.txt | .venv/bin/python
	$(PIP) -e '.[dev]'
	@touch $@ .venv/.installed
