# Everything runs in .venv, which is made on first use; only Python 3.11+ and make are needed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CIFAR10_GIST ?= $(wildcard ../shared/data/cifar10_gist512_u8.npz)

.PHONY: demo test experiments bench lint types docs clean

$(VENV)/.plot: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[plot]'
	@touch $@

$(VENV)/.dev: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@ $(VENV)/.plot

$(VENV)/.bench: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[bench]'
	@touch $@ $(VENV)/.plot

demo: $(VENV)/.plot  ## train, search and evaluate on embedded data; writes hashgrove-demo.png
	$(BIN)/hashgrove demo

test: $(VENV)/.dev  ## all tests
	$(BIN)/python -m pytest

experiments: $(VENV)/.dev  ## the paper's experiments in small, on embedded data; two minutes
	$(BIN)/hashgrove bench run all --quick

bench: $(VENV)/.bench  ## every kernel beside its peers: docs/results/speed.md; goes on where it was stopped
	$(BIN)/python benchmarks/contest.py $(if $(CIFAR10_GIST),--data $(CIFAR10_GIST))

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev
	$(BIN)/mypy

$(VENV)/.docs: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[docs]'
	@touch $@

docs: $(VENV)/.docs  ## build the documentation site in site/; any warning is an error
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --fresh-env --quiet docs site
	@echo "Wrote site/index.html"

clean:
	rm -rf $(VENV) dist .pytest_cache .mypy_cache .ruff_cache
