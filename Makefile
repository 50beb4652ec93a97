# The two commands of the README: `make demo` and `make test`. Both need only python3 and a package index.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test lint unit bench docs clean

demo: $(VENV)/.demo
	$(BIN)/python examples/flights.py

test: lint unit

lint: $(VENV)/.dev
	$(BIN)/ruff check src tests benchmarks examples docs tools
	$(BIN)/ruff format --check src tests benchmarks examples docs tools
	$(BIN)/mypy
	$(BIN)/lint-imports

unit: $(VENV)/.dev
	$(BIN)/pytest --numprocesses auto --dist worksteal

bench: $(VENV)/.dev
	$(BIN)/python benchmarks/training.py

docs: $(VENV)/.dev
	$(BIN)/python docs/generate.py

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

$(VENV)/.demo: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --editable '.[demo]'
	touch $@

$(VENV)/.dev: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist
