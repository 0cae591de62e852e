# make train: the main job, on embedded data. make test: everything that CI runs. make test-slow: what takes longer.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

# BLAS and framework threads would fight over the cores with the two lanes of the tests
ONE_THREAD := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1
PYTEST     := $(ONE_THREAD) $(BIN)/python -m pytest --quiet --durations=5

.PHONY: train test test-slow lint lanes test-numpy-torch test-jax-tensorflow clean

train: $(VENV)/train.done
	$(BIN)/matgrad train

test: lint
	$(MAKE) --no-print-directory --jobs=2 --output-sync=target lanes

lint: $(VENV)/test.done
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

lanes: test-numpy-torch test-jax-tensorflow

# one framework a process: LLVM does not like them together
test-numpy-torch: $(VENV)/test.done
	$(PYTEST)

test-jax-tensorflow: $(VENV)/test.done
	$(PYTEST) --backend jax
	$(PYTEST) --backend tensorflow

test-slow: $(VENV)/test.done
	$(PYTEST) -m slow

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/train.done: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) --editable .
	touch $@

$(VENV)/test.done: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) --editable '.[dev]'
	touch $@ $(VENV)/train.done

clean:
	rm -rf $(VENV) build dist
