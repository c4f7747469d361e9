# Two commands do everything on a machine that has Python 3.11 or newer and make:
#   make demo    install into .venv and publish a synthetic survey
#   make test    install what the tests need and run them all (make test-fast: the inner loop)
# make docs builds the documentation site, make dist the files of a release, make release-check tries them.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
TEST_STAMP := $(VENV)/.installed-test
TESTING := PYTHONDONTWRITEBYTECODE= OPENBLAS_NUM_THREADS=1

.PHONY: demo test test-fast lint types bench soak docs pictures man dist release-check offline-check clean

demo: $(STAMP)
	$(BIN)/flowveil demo --out demo-release

# A file runs in one process, so that what its tests share is made once. In the order of folders: the long files, of the
# browser and from end to end, come first, and no process is left alone with one of them. Compiled files are kept even
# where the environment says otherwise: the tests start hundreds of processes that import the same sources. Linear algebra
# has one thread: on tables this small, threads of several processes only wait for each other.
test: $(TEST_STAMP)
	$(TESTING) $(BIN)/python -m pytest -n auto --dist loadfile --no-loadscope-reorder

# The inner loop: unit and contract tests without browser, Spark and documents, and without those marked slow.
test-fast: $(TEST_STAMP)
	$(TESTING) $(BIN)/python -m pytest -q -n auto --dist loadfile tests/unit tests/contract -m "not real and not slow" -k "not spark and not browser"

lint: $(TEST_STAMP)
	$(BIN)/ruff check src tests benchmarks
	$(BIN)/ruff format --check src tests benchmarks
	tools/pages/check.sh

types: $(TEST_STAMP)
	$(BIN)/mypy

bench: $(TEST_STAMP)
	$(BIN)/python -m benchmarks

# Sessions of the workbench, killed runs, fuzzed inputs and folders: about an hour on two cores.
soak: $(TEST_STAMP)
	$(BIN)/python -m benchmarks.soak

# The documentation site, into build/site: open index.html there. Nothing is fetched, and a broken link is an error.
docs: $(TEST_STAMP)
	$(BIN)/mkdocs build --quiet

# All pictures of the documents, from the program as it is. Those of public data need the folder: make pictures DATA=FOLDER.
pictures: $(TEST_STAMP)
	$(BIN)/python tools/docs_pictures.py $(DATA)
	$(BIN)/python tools/make_pictures.py
	$(BIN)/python -m benchmarks.choosing_pictures docs/methods/pictures
	$(BIN)/python -m benchmarks.paircut_pictures docs/methods/pictures

man: $(TEST_STAMP)
	$(BIN)/python tools/manual.py build/man

dist: $(TEST_STAMP)
	rm -rf dist
	$(BIN)/python -m pip install --quiet --disable-pip-version-check build
	$(BIN)/python -m build --outdir dist

# The wheel in empty environments: the oldest and the newest Python here, and the lowest versions of what it needs.
release-check: dist man
	$(BIN)/python tools/release_check.py dist

# The wheel in one empty environment, installed without an index: the part of release-check that every change passes.
offline-check: dist
	$(BIN)/python tools/release_check.py dist --offline

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "flowveil needs Python 3.11 or newer; set PYTHON=...")'
	$(PYTHON) -m venv $(VENV)

$(STAMP): $(BIN)/python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	touch $@

# pycanon, an oracle of the tests, declares versions of numpy and pandas older than those it works with: hence --no-deps.
$(TEST_STAMP): $(BIN)/python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[test,docs]'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps 'pycanon>=1.3,<2'
	touch $@ $(STAMP)

clean:
	rm -rf $(VENV) build dist demo-release .pytest_cache .mypy_cache .ruff_cache .hypothesis
