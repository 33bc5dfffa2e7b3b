# Every target does its own set-up; a set-up that is still valid costs a tenth of a second.
PYTHON ?= python3
BIN := .venv/bin
RUN := PYTHONPATH=.:platform $(BIN)/python
PYTEST := $(BIN)/python -m pytest

.PHONY: up test lint bench e2e crash mutants code-server set-up set-up-dev set-up-browser requirements migrations messages

up: set-up
	@$(RUN) -m mlportal up

test: set-up-dev
	@$(PYTEST) -n 2 --dist loadgroup $(ARGS)

lint: set-up-dev
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy
	@PYTHONPATH=.:platform $(BIN)/lint-imports
	@$(RUN) -m mlportal check

bench: set-up-dev
	@$(RUN) -m tests.benchmarks $(ARGS)

e2e: set-up-dev
	@$(PYTEST) tests/journeys $(ARGS)

# Kills at every named point, in three orders; `make test` has one. Any other seed: make crash SEEDS=117
SEEDS ?= 1 2 3
crash: set-up-dev
	@set -e; for seed in $(SEEDS); do MLPORTAL_CRASH_SEED=$$seed $(PYTEST) tests/crash $(ARGS); done

# Takes each protection against a known failure away, one line at a time; a test must notice. Some: ARGS="F7 F12"
mutants: set-up-dev
	@$(RUN) -m tests.faults.mutants $(ARGS)

# VS Code in the browser for the embedded cluster: minutes of compiling, once per machine. Also needs g++ and libkrb5-dev.
code-server: set-up
	@$(RUN) -m localkube code-server --home "$${PORTAL_HOME:-.portal}/localkube" --images docker/images.toml

# What `up` needs: packages from PyPI and npm, translations, and three programs of the distribution.
set-up:
	@$(PYTHON) -I platform/mlportal/setup.py runtime

# The same, and what tests and checks need.
set-up-dev:
	@$(PYTHON) -I platform/mlportal/setup.py dev

# After a change of requirements*.in: pin everything again.
requirements: set-up
	@$(BIN)/uv pip compile -q requirements.in -o requirements.txt --universal --python-version 3.11 --no-header --no-emit-index-url --no-emit-find-links
	@$(BIN)/uv pip compile -q requirements-dev.in -o requirements-dev.txt --universal --python-version 3.11 --no-header --no-emit-index-url --no-emit-find-links

# After a change of models: ARGS=<app> for one app alone.
migrations: set-up-dev
	@$(RUN) -m mlportal migrations $(ARGS)
	@$(BIN)/ruff check -q --fix apps
	@$(BIN)/ruff format -q apps

# After a change of words: collect them for translation.
messages: set-up-dev
	@$(RUN) -m mlportal words
