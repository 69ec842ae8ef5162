# The daily verbs. Each one first makes sure that .venv is up to date, and redoes nothing that is.

PYTHON ?= python3
BIN := .venv/bin
KERNEL_SOURCES := $(shell find src -name '*.pyx' -o -name '*.pxd' -o -name '*.h')
READY := .venv/.kernels-built

MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help
.PHONY: help setup run test bench lint types compat docs clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(READY)  ## create .venv, install JetLake in it, build the Cython kernels

run: $(READY)  ## take the tour of the storage engine
	@$(BIN)/python examples/store_tour.py

test: lint types  ## lint, types, import rules, then all tests
	@$(BIN)/python -m pytest -q

bench: $(READY)  ## run the benchmarks
	@$(BIN)/python -m benchmarks

lint: $(READY)  ## ruff (rules and formatting) and the import rules
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/lint-imports --no-logo

types: $(READY)  ## mypy --strict
	@$(BIN)/mypy --strict

compat: $(READY)  ## drive the server with real NATS clients
	@if [ -d tests/compat ]; then $(BIN)/python -m pytest -q tests/compat; \
	else echo "tests/compat is not there yet: it comes with the server"; fi

docs: $(READY)  ## build docs/ into site/
	@$(BIN)/mkdocs build --strict --quiet
	@echo "docs are in site/index.html"

clean:  ## remove everything that was built, .venv included
	rm -rf .venv build dist site src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find src \( -name '_*_c*.so' -o -name __pycache__ \) -prune -exec rm -rf {} +

# The kernels have a stamp of their own, so that a changed one is rebuilt without asking pip for anything.
.venv/.installed: pyproject.toml setup.py
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@JETLAKE_NO_KERNELS=1 $(BIN)/python -m pip install --quiet -e '.[dev]'
	@touch $@

$(READY): .venv/.installed $(KERNEL_SOURCES)
	@$(BIN)/python setup.py --quiet build_ext --inplace
	@touch $@
