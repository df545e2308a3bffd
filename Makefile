# `make help` lists the targets. PYTHON=... chooses the interpreter (3.11 or later).

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
MODULE := django_localqueue/_native.abi3.so
RUST_SOURCES := $(shell find native_engine -name '*.rs' -o -name '*.sql' -o -name Cargo.toml) Cargo.toml

# The first interpreter found that is new enough; a pyenv shim may exist and not run.
find_python = $(shell for name in python3 python3.13 python3.12 python3.11 python3.14; do \
	"$$name" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& { command -v "$$name"; break; }; done)
ifndef PYTHON
PYTHON := $(find_python)
endif

# rustup installs to here, and not every shell has it on PATH.
export PATH := $(PATH):$(HOME)/.cargo/bin

# pyo3 is built for one interpreter: always the same one, so that nothing is built twice.
export PYO3_PYTHON := $(abspath $(BIN)/python)
export CARGO_TARGET_DIR := $(abspath target)
export PIP_DISABLE_PIP_VERSION_CHECK := 1

DIR ?=
SERVE ?= 1
STORE ?= sqlite
SECONDS ?= 600
KILLS ?= 2000
SEED ?=

.PHONY: help setup build fmt lint stubs test test-rust test-python test-full demo bench chaos crash clean
.DEFAULT_GOAL := help

help: ## List the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 14

setup: $(STAMP) ## Make the virtual environment with everything that development needs

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "make: no Python 3.11 or later was found (with venv and pip)."; \
		echo "Install one, or name it: make PYTHON=/path/to/python3.13 ..."; exit 1; }
	@"$(PYTHON)" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' || { \
		echo "make: $(PYTHON) is not Python 3.11 or later with venv and pip."; \
		echo "Install one, or name it: make PYTHON=/path/to/python3.13 ..."; exit 1; }
	"$(PYTHON)" -m venv $(VENV)

$(STAMP): pyproject.toml | $(BIN)/python
	$(BIN)/python tests/matrix/requirements.py dev > $(VENV)/requirements.txt
	$(BIN)/python -m pip install --quiet -r $(VENV)/requirements.txt
	@touch $@

build: $(MODULE) ## Build the engine and install the package in the virtual environment

$(MODULE): $(STAMP) $(RUST_SOURCES)
	@command -v cargo >/dev/null || { echo "make: cargo was not found, and the engine is built with it."; \
		echo "Install Rust 1.89 or later (rustup does), then open a new shell."; exit 1; }
	VIRTUAL_ENV="$(abspath $(VENV))" $(BIN)/maturin develop --release --quiet
	@touch $@

fmt: $(STAMP) ## Format Python and Rust
	$(BIN)/ruff check --fix --select I .
	$(BIN)/ruff format .
	cargo fmt --all

lint: build ## Check style, types and layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	cargo fmt --all --check
	cargo clippy --quiet --workspace --all-targets --all-features -- -D warnings
	cargo check --quiet --package native_engine --no-default-features

stubs: build ## Check that _native.pyi says what the native module has
	$(BIN)/python -m mypy.stubtest django_localqueue._native --mypy-config-file pyproject.toml

test-rust:
	cargo test --quiet --workspace

test-python: build
	$(BIN)/python -m pytest -m "not slow and not outside" --numprocesses 2 --dist loadscope

test: lint stubs test-rust test-python ## Build, lint, types, and all tests on this interpreter

test-full: build ## The matrix of Django and Python versions, the wheel without Rust, the sdist
	$(BIN)/python tests/matrix/run.py

demo: build ## Index the files of DIR=, then serve the site; SERVE=0 ends before, STORE=rqlite: a cluster
	@$(BIN)/python -m testproject.demo $(if $(DIR),--dir "$(DIR)") --serve "$(SERVE)" --store "$(STORE)"

bench: build ## Measure this queue beside its peers
	$(BIN)/python -m benchmarks

chaos: build ## Break a real rqlite cluster under load, then audit; SECONDS=, SEED=
	$(BIN)/python -m tests.chaos --store queue --seconds $(SECONDS) $(if $(SEED),--seed $(SEED))
	$(BIN)/python -m tests.chaos --store transport --seconds $(SECONDS) $(if $(SEED),--seed $(SEED))

crash: build ## Kill the processes of an SQLite store at any moment, then audit; KILLS=, SEED=
	$(BIN)/python -m tests.crash --kills $(KILLS) $(if $(SEED),--seed $(SEED))

clean: ## Remove what was built and installed here
	rm -rf $(VENV) .tox .demo dist target tests/output $(MODULE)
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
