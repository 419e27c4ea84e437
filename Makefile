# Rewind. `make demo` and `make test` prepare everything they need.

# What .venv was made with, else the first that fits; where none does, set-up says so.
PYTHON ?= $(or $(shell for p in .venv/bin/python python3.11 python3.12 python3.13 python3; do \
	$$p -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null && echo $$p && break; done),python3)
BIN := .venv/bin
REWIND := PYTHONPATH=include $(BIN)/python -m rewind
# Else each of the Pythons that are started here compiles its libraries once more: seconds for Airflow, GX.
unexport PYTHONDONTWRITEBYTECODE
HOME_FOLDER := $(or $(REWIND_HOME),.rewind)
WHAT ?=
QUICK ?=
NAME ?= scheduler
WORKERS ?= 2
ARGS ?=
TIERS := tests/stage tests/process tests/steps tests/contract tests/spark tests/dags tests/unit
# Whole files, the longest first (tests/support/tiers.py).
TESTS = $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

.DEFAULT_GOAL := help
.PHONY: help setup up down status logs demo test test-all mutants accept bench audit lint format lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "%-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## prepare Java, .venv, the jars and the start-up archive; at once when nothing is missing
	@command -v $(PYTHON) > /dev/null || { echo "setup: there is no $(PYTHON). Install python3.11 and python3.11-venv, or name a Python from 3.11 to 3.13: make setup PYTHON=/path/to/python" >&2; exit 1; }
	@$(PYTHON) scripts/setup.py

up: setup ## start the local stack (REWIND_KAFKA_PORT, REWIND_AIRFLOW_PORT choose its ports)
	@$(REWIND) stack up

down: ## stop the local stack and its streams; data is kept
	@test ! -x $(BIN)/python || $(REWIND) stack down

status: setup ## show the processes of the stack, and what the pipelines do
	@if $(REWIND) stack status; then $(REWIND) status; fi

logs: setup ## show a process's log: NAME=broker|api-server|scheduler|dag-processor|triggerer, ARGS=-f follows
	@$(REWIND) stack logs $(NAME) $(ARGS)

demo: setup ## rewind a running pipeline from start to collected garbage, under load
	@$(REWIND) demo $(ARGS)

test: lint ## check the code and run the tests that each change needs
	$(TESTS) -m "not full and not acceptance" $(TIERS) $(ARGS)

test-all: test ## run `make test`, then all other tests but the acceptance tests
	$(TESTS) -m "full and not acceptance" $(TIERS) $(ARGS)

mutants: setup ## plant faults one at a time: a test must notice each (ARGS="--only <part of a name>")
	$(BIN)/python -m tests.mutants $(ARGS)

accept: setup ## show what an issue asks for: WHAT=<word>
	$(BIN)/python -m pytest --shows "$(WHAT)" -s $(ARGS)

bench: setup ## measure beside what one would use instead: WHAT=<name>, QUICK=1, ARGS=--record writes docs/performance.md
	PYTHONPATH=include $(BIN)/python -m benchmarks $(if $(WHAT),--what $(WHAT)) $(if $(QUICK),--quick) $(ARGS)

audit: setup ## look the locked packages up among known vulnerabilities; what cannot be looked up fails
	$(BIN)/python -m venv $(HOME_FOLDER)/audit
	$(HOME_FOLDER)/audit/bin/python -m pip install -q --require-hashes -r requirements-audit.txt
	$(HOME_FOLDER)/audit/bin/pip-audit --strict --require-hashes --disable-pip $(foreach lock,$(wildcard requirements*.txt),-r $(lock))

lint: setup ## check style, types and spelling, as CI and pre-commit do
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/codespell

format: setup ## put the code into its style
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lock: ## pin requirements*.txt and jars.sha256 anew
	$(PYTHON) scripts/setup.py --relock

clean: down ## remove what tests and the stack left, but neither .venv nor the jars
	cd $(HOME_FOLDER) && rm -rf airflow data demo kafka logs stack registry.db*
	rm -rf .mypy_cache .pytest_cache .ruff_cache .hypothesis spark-warehouse metastore_db derby.log
	find . -name .venv -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +
