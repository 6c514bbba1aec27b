# Kohort for its developers. `make help` lists the targets; each sets up what it needs by itself.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
COMPILED := $(CURDIR)/build/compiled
COMPILER := $(shell command -v cc 2>/dev/null)
WITH_COMPILED := $(if $(COMPILER),$(COMPILED)/.ready)
TESTS ?= tests
TESTS_COMPILED ?= tests/test_compiled.py tests/machine tests/runtime tests/group tests/wire tests/server tests/broker tests/clients \
  tests/storage/test_contract.py tests/storage/test_list_model.py tests/conformance/test_recorded_written_groups.py
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-long test-compiled crash lint compiled format serve bench bench-java bench-compare profile conformance conformance-record lock clean wheel

help: ## show this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{printf "%-18s %s\n", $$1, $$2}'

setup: $(READY) ## create .venv with the locked versions of everything

$(READY): requirements/dev.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "Kohort needs Python 3.11 or newer; '$(PYTHON)' is $$($(PYTHON) --version 2>&1 || echo missing)." >&2; \
	  echo "Install one (Debian: apt-get install python3 python3-venv; macOS: brew install python), or name it: make PYTHON=python3.12" >&2; \
	  exit 2; }
	@$(PYTHON) -m venv $(VENV) || { \
	  echo "Python cannot make virtual environments here. Debian: apt-get install python3-venv" >&2; exit 2; }
	@echo "Installing the locked dependencies into $(VENV) (some minutes the first time: PySpark is 450 MB) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $(READY)

java-note:
	@command -v java >/dev/null 2>&1 || echo "Note: no Java found. The pipeline needs a Java 17+ runtime (Debian: apt-get install openjdk-17-jre-headless); \
	the broker, the clients and all else work without it, and what needs Spark is skipped." >&2

demo: $(READY) java-note ## start a broker, run real clients against it, kill it, and explain its logs with Spark
	@$(BIN)/python examples/demo.py

test: $(READY) java-note ## run every test (long ones in their short version)
	@$(BIN)/python -m pytest --numprocesses auto --dist loadfile $(TESTS)

test-long: $(READY) ## run the long versions too: crash rounds, fuzzing, simulation
	@KOHORT_LONG=1 $(BIN)/python -m pytest $(TESTS)

compiled: $(COMPILED)/.ready ## the compiled build, in build/compiled (needs a C compiler)

$(COMPILED)/.ready: $(READY) pyproject.toml hatch_build.py $(shell find src/kohort -name '*.py')
	@test -n "$(COMPILER)" || { echo "There is no C compiler (cc). Debian: apt-get install gcc. Kohort runs as well without, slower." >&2; exit 2; }
	@echo "Compiling into $(COMPILED) (some two minutes) ..."
	@rm -rf $(COMPILED) build/wheels
	@KOHORT_BUILD=compiled $(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation \
	  --wheel-dir build/wheels .
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --target $(COMPILED) build/wheels/*.whl
	@touch $@
	@echo "Done: PYTHONPATH=$(COMPILED) $(BIN)/kohort serve"

test-compiled: $(WITH_COMPILED) ## the tests of what is compiled, with it
	@if [ -z "$(COMPILER)" ]; then echo "Note: no C compiler found: the compiled build is not tested." >&2; else \
	  PYTHONPATH=$(COMPILED) $(BIN)/python -m pytest --numprocesses auto --dist loadfile $(TESTS_COMPILED); fi

crash: $(READY) ## kill a busy broker again and again: make crash ROUNDS=1000
	@KOHORT_CRASH_ROUNDS=$(or $(ROUNDS),1000) $(BIN)/python -m pytest --numprocesses $(or $(JOBS),2) tests/crash/test_rounds.py

lint: $(READY) ## ruff, strict types, import rules
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache

format: $(READY) ## format the code and mend what ruff can mend
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

serve: $(READY) ## a broker on 127.0.0.1:9092 with its data in ./kohort-data
	@$(BIN)/kohort serve --host 127.0.0.1 --port 9092 --data-dir kohort-data

bench: $(READY) $(WITH_COMPILED) ## Kohort (compiled where there is a C compiler), Apache Kafka and kfake side by side, some 20 minutes (BENCH="--only commit" for less)
	@PYTHONPATH=$(if $(WITH_COMPILED),$(COMPILED)) $(BIN)/python -m bench --out bench/results $(BENCH)

bench-compare: $(READY) ## two runs, measure by measure: make bench-compare A=one.json B=other.json
	@test -n "$(A)" && test -n "$(B)" || { echo "Name two files: make bench-compare A=bench/results/one.json B=bench/results/other.json" >&2; exit 2; }
	@$(BIN)/python -m bench --compare $(A) $(B)

bench-java: $(READY) $(WITH_COMPILED) ## what Apache Kafka's own Java clients make of each server (JAVA="--rounds 1" for less; needs Java and Maven)
	@PYTHONPATH=$(if $(WITH_COMPILED),$(COMPILED)) $(BIN)/python -m bench.java_tools $(JAVA)

profile: $(READY) ## where the server's time goes: make profile MEASURE=commit (FLAME=flame.svg draws it, if py-spy is there)
	@$(BIN)/python -m bench --profile --flush $(or $(FLUSH),os) --only "$(or $(MEASURE),heartbeat)" --connections $(or $(CONNECTIONS),64) \
	  --seconds $(or $(SECONDS),3) --no-growth $(if $(FLAME),--flame $(FLAME))

conformance: $(READY) ## the same stories told to Kohort and to Apache Kafka, every difference shown
	@$(BIN)/python -m kohort.testing.conformance live

conformance-record: $(READY) ## tell them to Apache Kafka three times and keep what it said (needs Java and Maven)
	@$(BIN)/python -m kohort.testing.conformance record

lock: ## resolve the dependencies anew and pin them (needs uv)
	uv pip compile pyproject.toml --extra dev --extra postgres --universal --generate-hashes --no-header --no-annotate \
	  --python-version 3.11 --quiet --upgrade --output-file requirements/dev.lock

clean: ## remove everything that was made here
	rm -rf $(VENV) build dist kohort-data kohort-demo .mypy_cache .ruff_cache .hypothesis

wheel: $(READY) ## build the plain and the compiled wheel into dist/ and test each in a bare virtual environment
	@rm -rf dist
	@echo "Building the plain wheel, as on a machine without a C compiler ..."
	@CC=/nonexistent/cc $(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist .
	@if [ -n "$(COMPILER)" ]; then echo "Building the compiled wheel (some two minutes) ..."; \
	  $(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist .; \
	  else echo "Note: no C compiler found: the compiled wheel is not built." >&2; fi
	@$(BIN)/python tools/check_wheels.py dist/*.whl
