# Everything runs in .venv, which is made on first use; only Python 3.11+ and make are needed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
WORKERS ?= auto  # test processes: one per core, at most eight
PYTEST := -m pytest -n $(WORKERS) --maxprocesses 8 --dist worksteal
CIFAR10_GIST ?= $(wildcard ../shared/data/cifar10_gist512_u8.npz)
BASE ?= HEAD~1  # the commit that bench-change compares with
RUNS ?= 1000000  # inputs per reader of `make fuzz`
MINUTES ?= 60
SECONDS ?= 600  # of load in `make soak`
KILLS ?= 200
MUTANTS ?= 10  # per module
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.PHONY: help demo browser test coverage package fuzz soak mutants lock matrix experiments bench bench-change docs lint types clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

$(VENV)/.plot: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) -e '.[plot]'
	@touch $@

$(VENV)/.dev: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) -e '.[dev]'
	@touch $@ $(VENV)/.plot

$(VENV)/.bench: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) -e '.[bench]'
	@touch $@ $(VENV)/.plot

$(VENV)/.docs: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) -e '.[docs]'
	@touch $@

$(VENV)/.fuzz: $(VENV)/.dev
	$(INSTALL) -e '.[dev,fuzz]'
	@touch $@

demo: $(VENV)/.plot  ## train, search and evaluate on embedded data; writes hashgrove-demo.png
	$(BIN)/hashgrove demo

browser:  ## install Debian's Chromium, as root; without it, the tests of the service's page are skipped
	command -v chromium || { apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium; }

test: $(VENV)/.dev  ## run all tests and doctests, one process per core (WORKERS=2 sets their number)
	$(BIN)/python $(MEASURE) $(PYTEST)

coverage: $(VENV)/.dev  ## run all tests, and report the lines of the package that none of them runs
	$(BIN)/python -m coverage erase
	$(MAKE) test MEASURE='-m coverage run'
	$(BIN)/python -m coverage combine --quiet
	$(BIN)/python -m coverage report

package: $(VENV)/.dev  ## build the wheel and the sdist in dist/, and try the wheel in a new environment
	rm -rf dist
	$(BIN)/python -m build --outdir dist .
	$(BIN)/python .ci/check_package.py dist

fuzz: $(VENV)/.fuzz  ## attack the readers of files and requests, guided by coverage (RUNS=1000000 each, at most MINUTES=60)
	$(BIN)/python tests/hostile/guided.py --show
	nice -n 15 $(BIN)/python tests/hostile/guided.py --runs $(RUNS) --minutes $(MINUTES)

soak: $(VENV)/.dev  ## load the service for ten minutes, measure what hostile requests hold up, kill each kind of process 200 times
	$(BIN)/python benchmarks/soak_serve.py --seconds $(SECONDS)
	$(BIN)/python benchmarks/hostile_requests.py
	HASHGROVE_KILLS=$(KILLS) $(BIN)/python -m pytest -q -k kill --timeout 0 tests/unit tests/service/test_web_crash.py

mutants: $(VENV)/.dev  ## change the code at random and see whether the tests of that module notice: at least 97 % must
	$(BIN)/python .ci/mutate.py --per-module $(MUTANTS)

lock: $(VENV)/.dev  ## write the versions that CI installs anew: the newest that pyproject.toml allows, for Python 3.11
	$(BIN)/uv pip compile --quiet --upgrade --python-version 3.11 --extra dev --extra docs --strip-extras --no-annotate --no-header \
		--no-emit-index-url pyproject.toml --output-file .ci/constraints.txt

matrix: package  ## try the wheel on Python 3.11 to 3.13, on older processors and with the lowest versions of its dependencies
	$(BIN)/python .ci/matrix.py dist

experiments: $(VENV)/.dev  ## run the paper's experiments in small, on embedded data; takes two minutes
	$(BIN)/python -m experiments run all --quick

bench: $(VENV)/.bench  ## time every kernel beside its peers and write docs/results/speed.md; continues where it was stopped (BENCH_MINUTES=20 stops it)
	$(BIN)/python benchmarks/contest.py $(if $(CIFAR10_GIST),--data $(CIFAR10_GIST)) $(if $(BENCH_MINUTES),--minutes $(BENCH_MINUTES))

bench-change: $(VENV)/.dev  ## time key kernels of this tree and of an earlier commit in turns (BASE=COMMIT names it)
	$(BIN)/python benchmarks/compare_commits.py --base $(BASE)

docs: $(VENV)/.docs  ## build the documentation in site/; any warning is an error
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --fresh-env --quiet docs site

lint: $(VENV)/.dev  ## check style and formatting with ruff
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev  ## check types with mypy
	$(BIN)/mypy

clean:  ## remove everything that the other targets made, the environment included
	rm -rf $(VENV) dist site .coverage .coverage.* .pytest_cache .mypy_cache .ruff_cache .hypothesis
