# Everything runs in .venv, which `make` sets up by itself: needs Python 3.11+ and make.
.DEFAULT_GOAL := help
ARGS ?=
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed-$(shell cat pyproject.toml constraints.txt | cksum | cut -d' ' -f1)

.PHONY: help demo test check bench

help:  ## show this list
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/make \1\t\2/p' Makefile | expand -t 16

demo: $(STAMP)  ## watch a real 2-rank DDP training (options: make demo ARGS="--fault backward-delay:rank=1,ms=40")
	@$(BIN)/ddltop demo $(ARGS)

test: $(STAMP)  ## set up and run the tests
	@sh .ci/system-packages
	$(BIN)/python -m pytest $(ARGS)

check: $(STAMP)  ## what CI runs: lint, types, import contracts, tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	@$(MAKE) --no-print-directory test

bench: $(STAMP)  ## run the benchmarks
	@for script in benchmarks/*.py; do echo "== $$script"; $(BIN)/python $$script || exit 1; done

$(STAMP): pyproject.toml constraints.txt
	@sh .ci/set-up $(VENV)
	@touch $(STAMP)
