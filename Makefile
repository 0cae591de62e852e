# make train: the main job, on embedded data. make test: everything that CI runs. make test-smoke: a choice of it that
# takes seconds. make test-slow: what takes longer. make docs: the documentation as a site, in build/site.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

# BLAS and framework threads would fight over the cores with the two lanes of the tests
ONE_THREAD := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1
PYTEST     := $(ONE_THREAD) $(BIN)/python -m pytest --quiet --durations=5

# what an editable install is made from: it has the core built, and remembers which modules are folders
CORE     := native/CMakeLists.txt $(shell find native/include native/src native/python -type f)
PACKAGES := $(sort $(shell find src -name __init__.py))

.PHONY: train test test-smoke test-slow lint docs lanes test-numpy-torch test-jax-tensorflow test-symbolic always clean

train: $(VENV)/train.done
	$(BIN)/matgrad train --output digits --overwrite

test: lint $(VENV)/browser.done
	$(MAKE) --no-print-directory --jobs=2 --output-sync=target lanes

lint: $(VENV)/test.done
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# two at a time: the verifier follows the shorter of the others
lanes: test-numpy-torch test-jax-tensorflow test-symbolic

# one framework per process: LLVM does not like them together; several processes, for their memory
MNIST := tests/test_experiments.py
test-numpy-torch: $(VENV)/test.done
	$(PYTEST) --ignore $(MNIST) --ignore tests/symbolic
	$(PYTEST) $(MNIST)

test-jax-tensorflow: $(VENV)/test.done
	for backend in jax tensorflow; do \
	    $(PYTEST) --backend $$backend tests/engines && \
	    $(PYTEST) --backend $$backend --ignore tests/engines --ignore $(MNIST) && \
	    $(PYTEST) --backend $$backend $(MNIST) || exit 1; \
	done

test-symbolic: $(VENV)/test.done
	$(PYTEST) tests/symbolic

test-smoke: $(VENV)/test.done
	@echo "ruff; the table on NumPy and PyTorch; training, dense and sparse, on NumPy, PyTorch and the C++ core;"
	@echo "saving and loading; a recorded program; gradients against differences and SymPy; the command line"
	$(BIN)/ruff check .
	$(PYTEST) tests/test_matrix_operations.py tests/cli/test_smoke.py

test-slow: $(VENV)/test.done
	$(PYTEST) -m slow

docs: $(VENV)/test.done
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/packages.txt: always | $(VENV)/bin/python
	@echo $(PACKAGES) | cmp -s - $@ || echo $(PACKAGES) > $@

$(VENV)/train.done: pyproject.toml constraints.txt $(CORE) $(VENV)/packages.txt
	$(PIP) --editable '.[symbolic,plot]'
	touch $@

$(VENV)/test.done: pyproject.toml constraints.txt $(CORE) $(VENV)/packages.txt
	$(PIP) --editable '.[dev]'
	touch $@ $(VENV)/train.done

# the page of `matgrad explain` is tested in Chromium, which root can install on Debian
BROWSER := which chromium chromium-browser google-chrome 2>/dev/null | grep -q .
$(VENV)/browser.done: | $(VENV)/bin/python
	@if ! ($(BROWSER)) && [ "$$(id -u)" = 0 ] && which apt-get >/dev/null; then \
	    apt-get -qq update && apt-get -qq install -y --no-install-recommends chromium; \
	fi; \
	if $(BROWSER); then touch $@; else \
	    echo "no browser: the tests of the page are skipped; install one, such as with apt-get install chromium"; \
	fi

clean:
	rm -rf $(VENV) build dist
