# make report    the main job: predict, train, compare, look inside a real model; writes out/report.html
# make reproduction   the paper's tables, figures and headlines from the committed rows; writes out/reports/paper
# make test      everything that has to hold before a change goes in
# Both make .venv first, from the lock in requirements/ (PYTHON=python3.12 chooses the interpreter).

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
LOCK := $(wildcard requirements/*.txt) requirements/install.sh
WORKERS ?= 2

export PYTHON
export PYTHONDONTWRITEBYTECODE := 1
# Weights and data come from installed packages: nothing here asks a hub.
export HF_HUB_OFFLINE := 1
# Nothing of the caller's shell may shadow the environment.
unexport PYTHONPATH PYTHONHOME

.PHONY: report reproduction test lint format types imports pytest docs benchmarks lock clean
.DEFAULT_GOAL := report

report: $(BIN)/poskernel
	$(BIN)/poskernel report

reproduction: $(BIN)/poskernel
	$(BIN)/poskernel study report paper --results results --out out/reports/paper

test: lint types imports pytest

lint: $(BIN)/poskernel
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(BIN)/poskernel
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(BIN)/poskernel
	$(BIN)/mypy

imports: $(BIN)/poskernel
	$(BIN)/lint-imports

# One torch thread a worker; a file's tests stay together, so that what they share is made once. Files are begun in the
# order that tests/conftest.py gives: the longest first.
pytest: $(BIN)/poskernel lint types imports
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

docs: $(BIN)/poskernel
	$(BIN)/python -m sphinx -W --keep-going -b html docs out/docs
	@echo "out/docs/index.html"

# Each script writes its rows to docs/benchmarks/, where the docs show them.
benchmarks: $(BIN)/poskernel
	set -e; for script in $(filter-out %/record.py %/transformerlens.py,$(wildcard benchmarks/*.py)); do $(BIN)/python $$script; done

lock:
	@command -v uv >/dev/null || { echo "make lock needs uv on the PATH: pip install uv" >&2; exit 2; }
	$(PYTHON) requirements/lock.py

clean:
	rm -rf $(VENV) out .pytest_cache .mypy_cache .ruff_cache .import_linter_cache

$(VENV)/.lock-digest: $(LOCK)
	requirements/install.sh $(VENV)

# The package itself, editable: again when its metadata changes, or when the environment was made anew.
$(BIN)/poskernel: $(VENV)/.lock-digest pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@
