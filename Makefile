# Two commands do everything on a machine that has Python 3.11 or newer, make and a C compiler:
#   make demo    install into .venv and publish a synthetic survey
#   make test    install what the tests need and run them all

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
TEST_STAMP := $(VENV)/.installed-test

.PHONY: demo test lint types bench clean

demo: $(STAMP)
	$(BIN)/flowveil demo --out demo-release

# A file runs in one process, so that what its tests share is made once.
test: $(TEST_STAMP)
	$(BIN)/python -m pytest -n auto --dist loadfile

lint: $(TEST_STAMP)
	$(BIN)/ruff check src tests benchmarks
	$(BIN)/ruff format --check src tests benchmarks

types: $(TEST_STAMP)
	$(BIN)/mypy

bench: $(TEST_STAMP)
	$(BIN)/python -m benchmarks

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "flowveil needs Python 3.11 or newer; set PYTHON=...")'
	$(PYTHON) -m venv $(VENV)

$(STAMP): $(BIN)/python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	touch $@

# pycanon, an oracle of the tests, declares versions of numpy and pandas older than those it works with: hence --no-deps.
$(TEST_STAMP): $(BIN)/python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[test]'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps 'pycanon>=1.3,<2'
	touch $@ $(STAMP)

clean:
	rm -rf $(VENV) build dist demo-release .pytest_cache .mypy_cache .ruff_cache .hypothesis
