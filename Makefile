# The two commands: `make package` and `make test`. Each sets up what it needs in .venv/ and the user cache.
# Variables: JOBS=N (parallel work), SECONDS=N (of each fuzzer), MIRROR=URL (Debian mirror, when the host is not Debian), ARGS=... (passed on).

PYTHON ?= python3
SECONDS ?= 30
RECIPE ?= recipes/gfx1151-bf16.yaml
PY := .venv/bin/python
AIMA := $(PY) -m aimabuild
FETCH := $(if $(MIRROR),--mirror $(MIRROR))
BUILD_ARGS := $(FETCH) $(if $(JOBS),-j $(JOBS)) $(ARGS)

.DEFAULT_GOAL := help
.PHONY: help setup setup-dev package test lint format sanitize fuzz clean

help:
	@echo "make package   build the release recipe into dist/ and prove the archive (first run: about 12 minutes on 2 cores, 0.6 GB fetched)"
	@echo "make test      run all tests"
	@echo "make lint      ruff, mypy, clang-format, clang-tidy (minutes the first time: ARGS=--no-tidy leaves it out)"
	@echo "make format    rewrite sources in the house format"
	@echo "make sanitize  the engine's tests under ASan, UBSan and TSan (needs clang-19; ARGS=--address or --thread)"
	@echo "make fuzz      the engine's parsers on hostile input, SECONDS=30 each (needs clang-19; ARGS: some by name)"
	@echo "make clean     remove build/ and dist/ (the user cache and .venv/ stay)"

setup:
	@$(PYTHON) scripts/bootstrap.py

setup-dev:
	@$(PYTHON) scripts/bootstrap.py --dev

package: setup
	@$(AIMA) package $(RECIPE) $(BUILD_ARGS)

test: setup-dev
	@$(AIMA) toolchain sync $(FETCH)
	@$(AIMA) build $(RECIPE) tests $(FETCH) $(if $(JOBS),-j $(JOBS))
	@$(PY) -m pytest $(ARGS)

lint: setup-dev
	@$(PY) scripts/lint.py $(ARGS)

format: setup-dev
	@$(PY) scripts/lint.py --fix

sanitize: setup-dev
	@$(PY) scripts/sanitize.py $(ARGS)

fuzz: setup-dev
	@$(PY) scripts/fuzz.py --seconds $(SECONDS) --jobs $(or $(JOBS),1) $(ARGS)

clean:
	rm -rf build dist
