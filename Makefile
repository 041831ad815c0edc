# TurnGym. `make train` and `make test` are all one needs; `make` lists the rest.
VENV ?= .venv
PY := $(VENV)/bin/python
# Extra arguments, for example: make train ARGS="--output_dir runs/second --seed 1"
ARGS ?=
# Of the tests, for two cores: much of their time is waiting, for time-outs of sandboxes, engines and servers.
WORKERS ?= 3
PACKAGES := envs agents trainers tasks sandboxes

# Nothing here asks a model hub or data hub, and one thread per process beats several on a few cores.
export HF_HUB_OFFLINE ?= 1
export HF_HUB_DISABLE_TELEMETRY ?= 1
export OMP_NUM_THREADS ?= 1
# The installation leaves compiling to the first import, so that import must be allowed to keep what it compiled.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help train test check bench docs format clean

help: ## this list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /  make \1	/'

ifeq ($(shell uname -s),Linux)

train: ## install into .venv, train the quickstart policy in a sandbox, write runs/quickstart
	@echo "turngym: this installs into $(VENV) (once: minutes, most of it torch), then trains and measures a small policy (about 5"
	@echo "turngym: minutes on 2 cores; a bar shows the time left). All of it goes into one run folder, runs/quickstart if ARGS names none"
	@.ci/venv $(VENV) train
	@$(PY) -m trainers.grpo $(ARGS)
	@echo "turngym: next: open the report named above in a browser; the figures are in SUMMARY.md beside it. Then, for your own tasks:"
	@echo "turngym:   source $(VENV)/bin/activate && python -m tasks new my-task --dir my_tasks && python -m tasks check my_tasks"
	@echo "turngym:   python -m trainers.grpo --tasks my_tasks/ --output_dir runs/mine      (README.md: A task of your own)"

test: ## run the tests
	@.ci/venv $(VENV) dev
	@$(PY) -m pytest -n $(WORKERS) --dist loadgroup --no-loadscope-reorder $(ARGS)

else

# The sandboxes need a Linux kernel: elsewhere the two commands run in a container, with the same output folders.
DOCKER_RUN = docker run --rm --init --volume "$(CURDIR)":/turngym --workdir /turngym \
	--volume turngym-venv:/venv --volume turngym-pip:/root/.cache/pip --env VENV=/venv/turngym python:3.11 make

train test:
	@command -v docker >/dev/null 2>&1 || { echo "turngym: the sandboxes need Linux, and docker was not found. Remedy: start Docker Desktop (or use WSL on Windows), then run 'make $@' again" >&2; exit 1; }
	@$(DOCKER_RUN) $@ ARGS='$(ARGS)'

endif

check: ## lint, format, types, and the direction of imports
	@.ci/venv $(VENV) dev
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(PY) -m mypy
	@$(PY) -m pytest -q -p no:cacheprovider tests/test_imports.py

format: ## let ruff sort imports and format
	@.ci/venv $(VENV) dev
	@$(PY) -m ruff check --fix-only --quiet .
	@$(PY) -m ruff format .

bench: ## run the benchmarks
	@.ci/venv $(VENV) train
	@set -e; for file in benchmarks/*.py; do echo "== $$file"; $(PY) -m benchmarks.$$(basename "$$file" .py); done

docs: ## build the manual into site/
	@.ci/venv $(VENV) dev
	@$(PY) -m mkdocs build --strict --site-dir site
	@echo "turngym: the manual is in site/index.html"

clean: ## remove caches and build output, but not .venv and runs/
	@rm -rf build dist site *.egg-info .mypy_cache .ruff_cache .pytest_cache
