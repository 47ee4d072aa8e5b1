# Needs Python >= 3.11, make and a Python package index; the tests of real command lines also need npm.
# Each target does its own set-up. `make help` lists them.

SHELL := /bin/sh
VENV ?= .venv
PYTHON ?=
PYTEST_ARGS ?=
# most tests wait for processes, so more of them run at once than there are cores
WORKERS ?= 5
MUTANTS_ARGS ?=
CHAOS_ARGS ?=
WEEKEND_ARGS ?=
BENCH_ARGS ?=
REV ?=
TURNS ?= 3
EXTRAS := cli,opencode,schema,mcp,http,metrics,otel,top
SEARCHES := tests/simulation tests/runtime/test_interrupt_anywhere.py tests/actors/test_schemas.py \
  tests/protocols/opencode/test_run.py $(wildcard tests/protocols/test_anything.py tests/protocols/*/test_anything.py)
MATRIX ?= 3.11 3.12 3.13 3.14

PY := $(VENV)/bin/python
CAN_RUN := import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))
# compiled when they are imported: most modules of the packages never are
PIP = $(PY) -m pip install --quiet --disable-pip-version-check --no-compile --constraint constraints.txt
RUN_READY := $(VENV)/.run-ready
DEV_READY := $(VENV)/.dev-ready
BENCH_READY := $(VENV)/.bench-ready

# pyright otherwise asks the index for a newer version of itself on every run
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1

# each run would compile all of the tests anew
unexport PYTHONDONTWRITEBYTECODE

# the static checks use what the tests leave of the cores while they wait
ifneq (,$(filter test check,$(MAKECMDGOALS)))
MAKEFLAGS += --jobs=2
endif

.DEFAULT_GOAL := help
.PHONY: help run test check lint format mypy pyright imports unit quick durations conformance pages mutants simulate chaos weekend bench-storm harnesses bench bench-compare build matrix \
  coverage pins clean distclean venv

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 14

run: $(RUN_READY) ## the demo: a fleet of scripted agents, no key and no network needed
	$(VENV)/bin/proctor up examples/demo.toml

test: unit check ## everything: unit tests, real command lines, house, static checks

# nice: they may run beside the tests, and no test of a clock is to wait for a type checker
check: lint format mypy pyright imports ## the static checks only

lint: $(DEV_READY) ## ruff's rules
	nice $(PY) -m ruff check .

format: $(DEV_READY) ## ruff's layout, checked
	nice $(PY) -m ruff format --check .

mypy: $(DEV_READY) ## strict types
	nice $(PY) -m mypy

# not over the tests: mypy checks those, and reading them too was 96 s of the 300 that `make test` may take on two cores
pyright: $(DEV_READY) ## strict types of the product, the other opinion
	nice $(PY) -m pyright --pythonpath $(PY)

imports: $(DEV_READY) ## who may import whom
	$(VENV)/bin/lint-imports --no-logo

unit: $(DEV_READY) ## the tests, WORKERS at a time; PYTEST_ARGS goes to pytest
	$(PY) -m pytest --workers $(WORKERS) $(PYTEST_ARGS)

# these never wait, so more workers than there are cores would be of no use
quick: $(DEV_READY) ## an answer within a minute: the tests that take less than 0.1 s each
	$(PY) -m pytest -q --quick --workers 2 $(PYTEST_ARGS)

durations: $(DEV_READY) ## write tests/durations.txt from the report of the last run of .ci/run
	$(PY) -m tests.durations build/ci/report.xml

coverage: $(DEV_READY) ## the tests with branch coverage
	$(PY) -m pytest --cov --cov-report=term $(PYTEST_ARGS)

conformance: $(DEV_READY) ## run the tests that carry a number and write docs/conformance.md and docs/requirements.md
	$(PY) -m tests.conformance --workers $(WORKERS) $(PYTEST_ARGS)

pages: $(DEV_READY) ## write both as a run in which every test passes would, the two generated faces and the reference; the next run of everything judges
	$(PY) -m tests.faces
	$(PY) -m tests.conformance --expected
	$(PY) -m tests.reference

mutants: $(DEV_READY) ## break each decision on purpose: every break must fail a test
	$(PY) -m tests.mutants $(MUTANTS_ARGS)

simulate: $(DEV_READY) ## random programs on random trees against the model, and frames of any shape, at length
	SIMULATE=$${SIMULATE:-200000} $(PY) -m pytest $(SEARCHES) -q -o faulthandler_timeout=0 $(PYTEST_ARGS)

chaos: $(DEV_READY) ## a fleet of scripted agents and a fault every 100 ms for 5 minutes; CHAOS_ARGS goes to it
	$(PY) -m tests.chaos $(CHAOS_ARGS)

weekend: $(DEV_READY) ## a fleet with real command lines, its host killed 20 times, its disk full, its file changed; WEEKEND_ARGS goes to it
	$(PY) -m tests.chaos.weekend $(WEEKEND_ARGS)

bench-storm: $(DEV_READY) ## 100 tasks for real Claude Code processes, whose API refuses and whose usage window closes; STORM_ARGS goes to it
	$(PY) -m tests.chaos.bench_storm $(STORM_ARGS)

# too heavy for every environment: 0.4 GB, and Harbor needs Python 3.12
harnesses: $(DEV_READY) ## agents in Harbor and Inspect, with a real command line; needs Python >= 3.12
	@for python in python3.13 python3.12 $(HOME)/.pyenv/versions/3.1[23]*/bin/python; do \
	  if "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 12))' 2>/dev/null; then found="$$python"; break; fi; \
	done; test -n "$$found" || { echo "the harnesses need Python >= 3.12; none found" >&2; exit 1; }; \
	test -x build/harnesses/venv/bin/python || "$$found" -m venv build/harnesses/venv
	build/harnesses/venv/bin/python -m pip install --quiet --disable-pip-version-check --no-compile \
	  --requirement tests/harnesses/requirements.txt trio attrs cattrs msgspec trio-util
	PROCTOR_HARNESSES="$(CURDIR)/build/harnesses/venv/bin/python" $(PY) -m pytest tests/harnesses $(PYTEST_ARGS)

bench: $(BENCH_READY) ## everything beside its limit and its peers, some minutes; BENCH_ARGS goes to it
	@$(PY) -m bench $(BENCH_ARGS)

bench-compare: $(BENCH_READY) ## this tree and the commit REV in turns, TURNS times; BENCH_ARGS names the script and its options
	@test -n "$(REV)" || { echo "name the commit to compare with: make bench-compare REV=main" >&2; exit 2; }
	@$(PY) -m bench.compare --turns $(TURNS) $(REV) $(BENCH_ARGS)

build: $(DEV_READY) ## sdist and wheel into dist/
	rm -rf dist
	$(PY) -m build --no-isolation --outdir dist

matrix: ## the unit tests on each Python found, by hand
	@tried=; failed=; for version in $(MATRIX); do \
	  for python in python$$version $(HOME)/.pyenv/versions/$$version*/bin/python; do \
	    "$$python" -c '$(CAN_RUN)' 2>/dev/null || continue; \
	    tried="$$tried $$version"; echo "== $$version: $$python"; \
	    $(MAKE) --no-print-directory on-one-python VENV=build/matrix/$$version PYTHON="$$python" \
	      || failed="$$failed $$version"; \
	    break; \
	  done; \
	done; echo "tried:$$tried, failed:$${failed:- none}"; test -n "$$tried" -a -z "$$failed"

.PHONY: on-one-python
on-one-python: $(RUN_READY)
	$(PIP) --no-build-isolation --editable '.[$(EXTRAS),test]'
	$(PY) -m pytest -m 'not real' --ignore=tests/house --ignore=tests/packaging --ignore=tests/gate -p no:cacheprovider $(PYTEST_ARGS)

pins: ## renew constraints.txt from what the index has today
	rm -rf build/pins && mkdir -p build
	@$(MAKE) --no-print-directory build/pins/bin/python VENV=build/pins
	build/pins/bin/python -m pip install --quiet --disable-pip-version-check '.[$(EXTRAS),test,dev,bench]'
	build/pins/bin/python -m pip freeze --exclude proctor > build/pins/constraints.txt
	mv build/pins/constraints.txt constraints.txt

clean: ## remove what was built and cached; keeps the environment
	rm -rf build dist .coverage .coverage.* .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find runtime actors protocols src tests bench -name node_modules -prune -o -name __pycache__ -type d -print \
	  | xargs rm -rf

distclean: clean ## also remove the environment and the installed command lines
	rm -rf $(VENV) tests/clis/node_modules

venv: $(DEV_READY) ## the environment for developers

$(PY):
	@for python in $(PYTHON) python3.13 python3.12 python3.11 python3.14 python3 python; do \
	  if "$$python" -c '$(CAN_RUN)' 2>/dev/null; then found="$$python"; break; fi; \
	done; \
	if test -z "$$found"; then \
	  echo "proctor needs Python >= 3.11 with venv; none found on PATH (name one with PYTHON=...)" >&2; exit 1; \
	fi; \
	echo "creating $(VENV) with $$found"; "$$found" -m venv --clear "$(VENV)"

# The backend is pinned like the rest, so the build is not isolated.
$(RUN_READY): pyproject.toml constraints.txt | $(PY)
	$(PIP) hatchling
	$(PIP) --no-build-isolation --editable '.[cli]'
	@touch $@

$(DEV_READY): pyproject.toml constraints.txt | $(PY)
	$(PIP) hatchling
	$(PIP) --no-build-isolation --editable '.[$(EXTRAS),test,dev]'
	@touch $(RUN_READY) $@

$(BENCH_READY): pyproject.toml constraints.txt | $(DEV_READY)
	$(PIP) --no-build-isolation --editable '.[bench]'
	@touch $@
