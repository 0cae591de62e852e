# make train: the main job, on embedded data. make test: what CI runs, in minutes. make test-smoke: a choice of it that
# takes seconds. make test-all: every test there is; make test-rest-jax and the like run a part of what make test leaves out.
# make bench-paper, bench-native, bench-sparse …: the benchmarks, with ROUNDS=3 THREADS=2 DATA=dir OUTPUT=dir.
# make test-gpu: from the source tree, on a machine with a GPU. make docs: the documentation as a site, in build/site.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

# BLAS and framework threads would fight over the cores with the two lanes of the tests
ONE_THREAD := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1
PYTEST     := $(ONE_THREAD) $(BIN)/python -m pytest --quiet --durations=5

# what an editable install is made from: it has the core built, and remembers which modules are folders
CORE     := native/CMakeLists.txt native/generate.py $(shell find native/include native/src native/python -type f) \
            $(addprefix src/matgrad/program/,operations.py scalars.py)
PACKAGES := $(sort $(shell find src -name __init__.py))

# Triton, whose interpreter runs the kernels for GPUs, is made for Linux. It has a folder of its own: where it and TensorFlow
# are installed, PyTorch imports both, and LLVM ends the process
KERNELS := $(if $(filter Linux,$(shell uname)),kernels)
KERNEL_TESTS := $(addprefix tests/engines/test_cuda_,fused.py sparse.py step.py) tests/writers/test_triton.py

# two at a time, the longest first; one framework per process
LANES := package core jax tensorflow symbolic pages $(KERNELS)
TESTS := $(addprefix test-,$(LANES))
REST  := $(addprefix test-rest-,$(LANES))

.PHONY: train test test-all test-smoke test-gpu lint docs lanes rest $(TESTS) $(REST) always clean

train: $(VENV)/train.done
	$(BIN)/matgrad train --output digits --overwrite

test: lint $(VENV)/browser.done
	$(MAKE) --no-print-directory --jobs=2 --output-sync=target lanes

lint: $(VENV)/test.done
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/clang-format --dry-run --Werror $(wildcard $(addprefix native/,*/*.h */*.cpp */*/*.h */*/*.cpp))
	$(BIN)/mypy
	MYPYPATH=src:benchmarks $(BIN)/mypy --explicit-package-bases benchmarks

lanes: $(TESTS)

# what is marked slow: all mutants, random pairs, notebooks, the site, kills, sanitizers, the release
test-all: test $(VENV)/coq.done
	$(MAKE) --no-print-directory --jobs=2 --output-sync=target rest

rest: $(REST)

$(REST): SLOW := -m slow
test-rest-jax test-rest-tensorflow: SLOW := -m 'slow or not slow'  # XLA optimizes there, as for users

# the core is built by its tests and by those of the benchmarks: never at once
CORE_TESTS     := $(addprefix tests/,bench engines hostile program)
SYMBOLIC_TESTS := $(addprefix tests/,judges index_notation derivation certificates)
PAGES_TESTS    := tests/explanation $(addprefix tests/test_,docs.py figures.py readme.py site.py)

test-package test-rest-package: $(VENV)/test.done
	$(PYTEST) $(SLOW) $(addprefix --ignore=,$(CORE_TESTS) $(PAGES_TESTS) $(SYMBOLIC_TESTS))

test-core test-rest-core: $(VENV)/test.done
	$(PYTEST) $(SLOW) $(CORE_TESTS)

test-symbolic test-rest-symbolic: $(VENV)/test.done
	$(PYTEST) $(SLOW) $(SYMBOLIC_TESTS)

test-pages test-rest-pages: $(VENV)/test.done
	$(PYTEST) $(SLOW) $(PAGES_TESTS)

test-kernels test-rest-kernels: $(VENV)/triton.done
	PYTHONPATH=$(VENV)/triton $(PYTEST) $(SLOW) $(KERNEL_TESTS)

# XLA does not optimize what runs for milliseconds
test-jax test-tensorflow: export XLA_FLAGS := --xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true
test-jax test-rest-jax: $(VENV)/test.done
	$(PYTEST) $(SLOW) --backend jax

test-tensorflow test-rest-tensorflow: $(VENV)/test.done
	$(PYTEST) $(SLOW) --backend tensorflow

test-smoke: $(VENV)/test.done
	@echo "ruff; the table on NumPy and PyTorch; training, dense and sparse, on NumPy, PyTorch and the C++ core;"
	@echo "saving and loading; a recorded program; gradients against differences and SymPy; the command line"
	$(BIN)/ruff check .
	$(PYTEST) tests/test_matrix_operations.py tests/cli/test_smoke.py

# nothing is installed: it needs PyTorch, Triton, JAX and NumPy alone, and skips itself where there is no GPU
test-gpu:
	$(PYTHON) tests/gpu/run.py

# make bench-paper ROUNDS=3 THREADS=2 DATA=dir OUTPUT=dir OPTIONS="--dtype float64", and the like for every other script
BENCH = $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(THREADS),--threads $(THREADS)) $(if $(DATA),--data "$(DATA)") \
        $(if $(OUTPUT),--output "$(OUTPUT)") $(OPTIONS)
bench-%: $(VENV)/test.done
	$(BIN)/python benchmarks/$(subst -,_,$*).py $(BENCH)

docs: $(VENV)/test.done
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

$(VENV)/bin/python:
	@echo "installing into $(VENV), with the C++ core: this takes some minutes"
	$(PYTHON) -m venv $(VENV)

$(VENV)/packages.txt: always | $(VENV)/bin/python
	@echo $(PACKAGES) | cmp -s - $@ || echo $(PACKAGES) > $@

$(VENV)/train.done: pyproject.toml constraints.txt $(CORE) $(VENV)/packages.txt
	$(PIP) --editable '.[symbolic,plot]'
	touch $@

$(VENV)/test.done: pyproject.toml constraints.txt $(CORE) $(VENV)/packages.txt
	$(PIP) --editable '.[dev]'
	touch $@ $(VENV)/train.done

$(VENV)/triton.done: constraints.txt $(VENV)/test.done
	$(PIP) --no-deps --upgrade --target $(VENV)/triton triton
	touch $@

# the page of `matgrad explain` is tested in Chromium, which root can install on Debian
BROWSER := which chromium chromium-browser google-chrome 2>/dev/null | grep -q .
$(VENV)/browser.done: | $(VENV)/bin/python
	@if ! ($(BROWSER)) && [ "$$(id -u)" = 0 ] && which apt-get >/dev/null; then \
	    apt-get -qq update && apt-get -qq install -y --no-install-recommends chromium; \
	fi; \
	if $(BROWSER); then touch $@; else \
	    echo "no browser: the tests of the page are skipped; install one, such as with apt-get install chromium"; \
	fi

# certificates are checked by Coq, which root can install on Debian
COQ := which coqc coqchk >/dev/null
$(VENV)/coq.done: | $(VENV)/bin/python
	@if ! $(COQ) && [ "$$(id -u)" = 0 ] && which apt-get >/dev/null; then \
	    apt-get -qq update && apt-get -qq install -y --no-install-recommends coq libcoq-coquelicot; \
	fi; \
	if $(COQ); then touch $@; else \
	    echo "no Coq: certificates are not checked; install it, such as with apt-get install coq libcoq-coquelicot"; \
	fi

clean:
	rm -rf $(VENV) build dist
