# Every target sets up what it needs on a machine with Python 3.11 to 3.13, git and make.
PYTHON ?= $(or $(shell for python in python3.11 python3.12 python3.13; do \
  $$python --version >/dev/null 2>&1 && echo $$python && break; done),python3)
CORES ?= $(shell nproc 2>/dev/null || echo 2)
BIN := .venv/bin

# `make reproduce TORCH=cu126` takes another build of torch than PyPI's, and .venv/ready says which
# (docs/installing.md). Such a build needs other CUDA packages than those that are locked.
TORCH ?= $(shell cat .venv/ready 2>/dev/null)
LOCK = -c constraints.txt $(if $(TORCH),,-c constraints-cuda.txt)
BUILD = $(if $(TORCH),--extra-index-url https://download.pytorch.org/whl/$(TORCH) \
  $(shell sed -n 's/^torch\(vision\)*==.*/&+$(TORCH)/p' constraints.txt))
ifneq ($(TORCH),$(shell cat .venv/ready 2>/dev/null))
.PHONY: .venv/ready
endif

.PHONY: reproduce check test coverage test-device gpu-check test-slurm lint types bench drills docs lock clean help

help:            ## this list
	@grep -E '^[a-z-]+:.*##' Makefile | sed 's/:.*## */: /'

reproduce: .venv/ready  ## build every table and figure at smoke scale, and the page
	$(BIN)/snakemake --cores $(CORES)
	@echo "the page is at reports/smoke/index.html"

test: lint types  ## lint, types, unit tests and a small DAG
	$(BIN)/pytest -n $(CORES) --dist loadfile $(COVER)  # a file's tests share what they built

check: lint types  ## before each commit: lint, types and the fast tests, in a minute
	$(BIN)/pytest -n $(CORES) --dist loadfile -m "not slow"

test-device: .venv/ready  ## what meets a GPU, on a pretend one: two minutes, with g++
	$(BIN)/python tests/device/run.py -n $(CORES) --dist loadfile

gpu-check: .venv/ready  ## does this machine's GPU do what is asked of it? under ten minutes
	$(BIN)/generalist-bench check

coverage:        ## after `make test COVER="--cov --cov-report="`: the ten least covered files, and the total
	@echo "coverage, a lower bound: jobs in processes of their own do not count"
	@$(BIN)/coverage report | sed -n '1,12p;/^TOTAL/p'

test-slurm: .venv/ready  ## a part of the grid through a real Slurm on this machine; installs it, as root
	$(BIN)/pip install --quiet $(LOCK) -e ".[slurm]"
	$(BIN)/python -u tests/slurm/run.py

lint: .venv/ready  ## style of Python and Snakemake files
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/snakefmt --check Snakefile workflow
	$(BIN)/snakemake --lint
	$(BIN)/lint-imports --no-logo
	$(BIN)/hadolint Dockerfile

types: .venv/ready  ## types of the packages
	$(BIN)/mypy

# Without their dependencies: torchattacks asks for a requests of 2021, which it needs for downloads only.
PEERS = $(shell $(BIN)/python -c 'import tomllib; \
  print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["bench"])')

bench: .venv/ready  ## speed, side by side with plain code and other libraries: benchmarks/README.md
	$(BIN)/pip install --quiet --no-deps $(PEERS)
	$(BIN)/python -m benchmarks

drills: .venv/ready  ## harm done on purpose, 20 times each: the table of docs/reliability.md
	$(BIN)/python -m drills

docs: .venv/ready  ## the files of docs/ as a site, in site/; a broken link is an error
	$(BIN)/pip install --quiet $(LOCK) -e ".[docs]"
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

lock: .venv/ready  ## after a pin changed: which versions all of the pins need together
	$(BIN)/python .ci/lock.py

.venv/ready: pyproject.toml constraints.txt constraints-cuda.txt
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null || { \
	  echo "expected Python 3.11 to 3.13, found $$($(PYTHON) --version 2>&1);" \
	    "run make PYTHON=/path/to/python3.12"; exit 2; }
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet $(LOCK) $(BUILD) -e ".[test]"
	echo $(TORCH) > $@

clean:           ## forget the environment; results stay
	rm -rf .venv
