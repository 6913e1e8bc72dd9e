# Everything runs in .venv, which is made on first use; only Python 3.11+ and make are needed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test lint types clean

$(VENV)/.plot: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[plot]'
	@touch $@

$(VENV)/.dev: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@ $(VENV)/.plot

demo: $(VENV)/.plot  ## train, search and evaluate on embedded data; writes hashgrove-demo.png
	$(BIN)/hashgrove demo

test: $(VENV)/.dev  ## all tests
	$(BIN)/python -m pytest

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev
	$(BIN)/mypy

clean:
	rm -rf $(VENV) dist .pytest_cache .mypy_cache .ruff_cache
