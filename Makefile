# `make help` lists the targets. Each makes the virtual environment it needs.

VENV ?= .venv
# Arguments of pytest, such as PYTEST_ARGS="-x tests/engine"; one process for each core by default.
PYTEST_ARGS ?= -n auto
# "-e" installs the sources in place; empty installs a built wheel.
EDITABLE ?= -e
ORDERS ?=
EVERSTEP_PG_PORT ?= 5432
COMPOSE_URL = postgresql://everstep:everstep@127.0.0.1:$(EVERSTEP_PG_PORT)/everstep

# A DATABASE_URL that happens to be exported belongs to another application: only one given on make's
# command line counts.
ifeq ($(origin DATABASE_URL),environment)
override DATABASE_URL :=
endif

# The first interpreter that is new enough and can make virtual environments.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python3.14; do \
	"$$p" -c 'import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 \
	&& { command -v "$$p"; break; }; done)

BIN = $(VENV)/bin
PIP = $(BIN)/python -m pip --disable-pip-version-check --quiet

.DEFAULT_GOAL := help
.PHONY: help install demo test test-peer lint format type check bench bench-peer differential up down migrate \
	test-all-pythons clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-17s %s\n", $$1, $$2 }' Makefile

$(BIN)/python:
	@test -n "$(PYTHON)" || { \
	echo "Everstep needs Python 3.11 or newer with venv (on Debian: apt install python3-venv)." \
	"Name one with: make PYTHON=/path/to/python3" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

# The stamps let a second `make` skip the installation until the dependencies change.
$(VENV)/.demo: pyproject.toml | $(BIN)/python
	$(PIP) install $(EDITABLE) '.[demo]'
	@touch $@

$(VENV)/.dev: pyproject.toml | $(BIN)/python
	$(PIP) install $(EDITABLE) '.[dev]'
	@touch $@ $(VENV)/.demo

install: $(VENV)/.dev ## make .venv with everything that developing needs

demo: $(VENV)/.demo ## run the order workflow, killed and resumed [DATABASE_URL=postgresql://...] [ORDERS=n]
	$(BIN)/python -m examples.orders.demo $(if $(DATABASE_URL),--database-url '$(DATABASE_URL)') \
		$(if $(ORDERS),--orders $(ORDERS))

test: $(VENV)/.dev ## run the tests on memory, SQLite and PostgreSQL [PYTEST_ARGS=...]
	$(BIN)/python -m pytest $(PYTEST_ARGS)

$(VENV)-peer/.peer: pyproject.toml
	@test -n "$(PYTHON)" || { echo "Everstep needs Python 3.11 or newer with venv." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)-peer
	$(VENV)-peer/bin/python -m pip --disable-pip-version-check --quiet install $(EDITABLE) '.[dev,peer]'
	@touch $@

test-peer: $(VENV)-peer/.peer ## run the tests beside LangGraph, in an environment of its own [PYTEST_ARGS=...]
	$(VENV)-peer/bin/python -m pytest tests/peer $(PYTEST_ARGS)

lint: $(VENV)/.dev ## check style and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(VENV)/.dev ## repair style and formatting where a tool can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

type: $(VENV)/.dev ## check types
	$(BIN)/mypy

check: lint type test ## lint, types and tests

bench: $(VENV)/.dev ## measure our own kernels [BENCH_ARGS=...]
	$(BIN)/python -m benchmarks $(BENCH_ARGS)

bench-peer: $(VENV)/.dev ## measure against LangGraph, in an environment of its own [BENCH_ARGS=...]
	$(BIN)/python -m benchmarks --peer $(BENCH_ARGS)

differential: $(VENV)/.dev ## compare random graphs with LangGraph [EVERSTEP_PEER_PYTHON=...] [DIFFERENTIAL_ARGS="--programs 5000"]
	$(BIN)/python -m tests.differential $(DIFFERENTIAL_ARGS)

up: ## start PostgreSQL in Docker and wait until it answers
	EVERSTEP_PG_PORT=$(EVERSTEP_PG_PORT) docker compose up --detach --wait

down: ## stop that PostgreSQL and remove its data
	docker compose down --volumes

migrate: $(VENV)/.demo ## bring a database to the newest schema [DATABASE_URL=..., else that PostgreSQL]
	$(BIN)/everstep db upgrade --url '$(or $(DATABASE_URL),$(COMPOSE_URL))'

test-all-pythons: ## run the tests on every Python 3.11 to 3.14 there is, pyenv's included
	bash .ci/test-all-pythons

clean: ## remove environments and caches
	rm -rf .venv .venv-peer .venv-3.* .bench .demo build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
