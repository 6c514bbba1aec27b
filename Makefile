# Kohort for its developers. `make help` lists the targets; each sets up what it needs by itself.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
FUZZ := build/atheris
COMPILED := $(CURDIR)/build/compiled
COMPILER := $(shell command -v cc 2>/dev/null)
WITH_COMPILED := $(if $(COMPILER),$(COMPILED)/.ready)
TEST_BUILD := $(CURDIR)/build/compiled-test
WITH_TEST_BUILD := $(if $(COMPILER),$(TEST_BUILD)/.ready)
TESTS ?= tests
# Tests that import the compiled modules: they run twice in CI, on the plain and on the compiled build.
IN_PROCESS := tests/test_compiled.py tests/machine tests/runtime tests/group tests/transaction tests/wire tests/server tests/broker \
  tests/storage/test_contract.py tests/storage/test_list_model.py
# Files of these rooms that do not: the message classes and their schemas are plain on both builds.
PLAIN := tests/wire/test_messages.py
# Tests that talk to a served process: they run once in CI, on the compiled build if there is a C compiler.
PROCESSES := tests/clients tests/crash $(wildcard tests/conformance/test_recorded_*.py)
TESTS_COMPILED ?= $(IN_PROCESS) $(PROCESSES)
SIMULATIONS := $(wildcard tests/testing/test_*simulation.py tests/broker/shares/test_*simulation.py) tests/examples/test_locks.py
WORKERS ?= auto
# Python keeps the byte code of a module when it is first imported. That of all packages takes half the time of the installation.
NO_BYTE_CODE := $(if $(CI),--no-compile)
SPARK ?= 3.5.9 4.0.5 4.1.4 4.2.1 4.3.0
# The pipeline does not run on these, and reads the checkpoints of their queries.
SPARK_OLD ?= 3.3.4 3.4.4
PYTEST = $(BIN)/python -m pytest --numprocesses $(WORKERS) --dist loadfile
unexport PYTHONDONTWRITEBYTECODE
# Runs of pytest leave the names of failed tests in this file (tests/plugins/failures.py), and a recipe ends with them. `.ci/run`
# prints them itself, after make's own last line.
FAILED := $(or $(KOHORT_FAILED),$(CURDIR)/build/failed-tests)
BEGIN := mkdir -p build; rm -f $(FAILED); status=0;
END := $(if $(KOHORT_FAILED),,if [ $$status != 0 ] && [ -s $(FAILED) ]; then echo "Failed:"; cat $(FAILED); fi;) exit $$status

.DEFAULT_GOAL := help
.PHONY: help setup demo cluster rewritten test test-ci test-long spark-versions test-plain test-compiled durations largest-requests mutants crash torture torture-shares torture-nodes history decisions simulate fuzz fuzz-decoders lint compiled format configuration serve bench bench-java bench-secured bench-shares bench-compare instructions growth tail charts profile conformance conformance-record lock clean wheel

help: ## show this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{printf "%-18s %s\n", $$1, $$2}'

setup: $(READY) ## create .venv with the locked versions of everything

$(READY): requirements/dev.lock pyproject.toml lab/pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "Kohort needs Python 3.11 or newer; '$(PYTHON)' is $$($(PYTHON) --version 2>&1 || echo missing)." >&2; \
	  echo "Install one (Debian: apt-get install python3 python3-venv; macOS: brew install python), or name it: make PYTHON=python3.12" >&2; \
	  exit 2; }
	@$(PYTHON) -m venv $(VENV) || { \
	  echo "Python cannot make virtual environments here. Debian: apt-get install python3-venv" >&2; exit 2; }
	@echo "Installing the locked dependencies into $(VENV) (some minutes the first time: PySpark is 450 MB) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes $(NO_BYTE_CODE) -r requirements/dev.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable . --editable ./lab
	@touch $(READY)

java-note:
	@command -v java >/dev/null 2>&1 || echo "Note: no Java found. The pipeline needs a Java 17+ runtime (Debian: apt-get install openjdk-17-jre-headless); \
	the broker, the clients and all else work without it, and what needs Spark is skipped." >&2

demo: $(READY) java-note ## start a broker, run real clients against it, kill it, and explain its logs with Spark
	@$(BIN)/python examples/demo.py

cluster: $(READY) ## start a database and three nodes on it, kill one under real clients, and restart all one by one
	@$(BIN)/python -m kohort_lab.served_nodes.show $(CLUSTER)

ifeq ($(CI),)
test: $(READY) java-note ## every test on plain Python (long tests in their short version)
	@$(BEGIN) KOHORT_FAILED=$(FAILED) $(PYTEST) $(TESTS) || status=$$?; $(END)
else
test: test-ci
endif

test-ci: $(READY) $(WITH_TEST_BUILD) ## the tests of .ci/run: plain and compiled, each served process once
	@$(BEGIN) export KOHORT_FAILED=$(FAILED); \
	  $(MAKE) --no-print-directory test-plain || status=$$?; \
	  $(MAKE) --no-print-directory test-compiled || status=$$?; $(END)

# Workers that collect at the same time would all rewrite the assertions of all test files. pytest keeps what it has rewritten.
rewritten: $(READY)
	@$(BIN)/python -m pytest --collect-only $(TESTS) >/dev/null || echo "The tests cannot be collected: their run tells why." >&2

# Many tests wait for processes and timers: one worker more than processors keeps them busy, and two where most tests do so.
test-plain: WORKERS := $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)
test-plain: $(READY) java-note
	@$(PYTEST) $(TESTS) $(if $(COMPILER),$(PROCESSES:%=--ignore=%))

test-long: $(READY) ## the nightly tier, some hours: long versions, all scenarios on a live Apache Kafka, mutants
	@KOHORT_LONG=1 $(PYTEST) $(TESTS)
	@$(BIN)/python -m kohort_lab.conformance oracle
	@$(MAKE) --no-print-directory mutants

spark-versions: $(READY) ## the pipeline on a standalone cluster without Kohort, and checkpoints, with each PySpark from the package index (SPARK="4.0.5 3.5.9" SPARK_OLD= for some)
	@KOHORT_LONG=1 KOHORT_SPARK_VERSIONS="$(SPARK)" $(PYTEST) -n 0 tests/pipeline/test_spark_versions.py
	@KOHORT_LONG=1 KOHORT_SPARK_VERSIONS="$(SPARK_OLD) $(SPARK)" $(PYTEST) -n 0 tests/pipeline/checkpoints/test_real_queries.py

durations: $(READY) ## measure the seconds of each test file on a quiet machine, into tests/durations.json
	@KOHORT_DURATIONS=tests/durations.json $(PYTEST) $(TESTS)

largest-requests: $(READY) ## send the worst requests of every API; print the time on the event loop and the memory beside their bounds
	@$(BIN)/python -m tests.server.requests.measured_requests $(ONLY)

mutants: $(READY) ## apply each defect of tools/mutants/*.toml to a copy; its tests have to fail (ONLY=name for one)
	@$(BIN)/python tools/mutants.py $(ONLY)

compiled: $(COMPILED)/.ready ## the compiled build, in build/compiled (needs a C compiler)

# Optimization triples the time of compilation and saves the tests nothing.
$(TEST_BUILD)/.ready: OPT_LEVEL := 0
$(COMPILED)/.ready: OPT_LEVEL := 3

$(COMPILED)/.ready $(TEST_BUILD)/.ready: $(READY) pyproject.toml hatch_build.py $(shell find src/kohort -name '*.py')
	@test -n "$(COMPILER)" || { echo "There is no C compiler (cc). Debian: apt-get install gcc. Kohort works without, slower." >&2; exit 2; }
	@echo "Compiling into $(@D) (one to two minutes) ..."
	@rm -rf $(@D) $(@D)-wheels
	@KOHORT_BUILD=compiled KOHORT_BUILD_OPT_LEVEL=$(OPT_LEVEL) $(BIN)/python -m pip wheel --quiet --disable-pip-version-check \
	  --no-deps --no-build-isolation --wheel-dir $(@D)-wheels .
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --target $(@D) $(@D)-wheels/*.whl
	@touch $@
	@echo "Done: PYTHONPATH=$(@D) $(BIN)/kohort serve"

test-build: $(WITH_TEST_BUILD)

test-compiled: WORKERS := $(shell expr $$(getconf _NPROCESSORS_ONLN) + 2)
test-compiled: $(WITH_TEST_BUILD) ## the tests of compiled modules and of served processes, on the compiled build
	@if [ -n "$(COMPILER)" ]; then PYTHONPATH=$(TEST_BUILD) $(PYTEST) $(TESTS_COMPILED) $(PLAIN:%=--ignore=%); \
	  elif [ -n "$(CI)" ]; then echo "CI needs a C compiler: the compiled build is not tested." >&2; exit 1; \
	  else echo "Note: no C compiler found: the compiled build is not tested." >&2; fi

crash: $(READY) ## rounds of SIGKILL on a broker under load: make crash ROUNDS=1000
	@KOHORT_CRASH_ROUNDS=$(or $(ROUNDS),1000) $(BIN)/python -m pytest --numprocesses $(or $(JOBS),2) tests/crash/test_rounds.py

torture: $(READY) ## exactly-once processing under SIGKILLs of broker and processors: make torture SECONDS=600
	@$(BIN)/python -m kohort_lab.exactly_once --seconds $(or $(SECONDS),60) $(TORTURE)

torture-shares: $(READY) ## a share group under SIGKILLs of broker and workers: make torture-shares SECONDS=600
	@$(BIN)/python -m kohort_lab.work_queue --seconds $(or $(SECONDS),60) $(TORTURE)

torture-nodes: $(READY) ## three nodes on a store under kills, pauses, stops, and faults of the database, which has a standby: make torture-nodes SECONDS=600
	@$(BIN)/python -m kohort_lab.served_nodes --seconds $(or $(SECONDS),60) $(TORTURE)

history: $(READY) ## clients of every library under kills, pauses, restarts and a full disk: make history SECONDS=120 HISTORY="--seed 7"
	@$(BIN)/python -m kohort_lab.history_check --seconds $(or $(SECONDS),60) $(HISTORY)

decisions: $(READY) ## random access rules, asked at Kohort and at a live Apache Kafka: make decisions DECISIONS=200000
	@$(BIN)/python -m kohort_lab.authorization --decisions $(or $(DECISIONS),20000) $(if $(SEED),--seed $(SEED))

simulate: $(READY) ## 10 000 seeds of each simulation, 2 000 of share groups: guarantees, and everything is answered after the last fault (some 20 minutes)
	@KOHORT_LONG=1 $(BIN)/python -m pytest --numprocesses $(or $(JOBS),1) $(SIMULATIONS) -k every_seed

fuzz: $(READY) $(WITH_COMPILED) ## hostile frames to a broker for a minute: make fuzz FRAMES=1000000, SECONDS=600, SEED=7
	@PYTHONPATH=$(if $(WITH_COMPILED),$(COMPILED)) $(BIN)/python -m kohort_lab.fuzz --corpus tests/data/fuzz/corpus.jsonl.gz \
	  $(if $(FRAMES),--frames $(FRAMES)) $(if $(SECONDS),--seconds $(SECONDS)) $(if $(SEED),--seed $(SEED))

fuzz-decoders: $(FUZZ)/.ready ## coverage-guided bytes for a decoder: make fuzz-decoders TARGET=batches SECONDS=60
	@PYTHONPATH=$(FUZZ) $(BIN)/python -m kohort_lab.fuzz_decoders $(or $(TARGET),batches) --seconds $(or $(SECONDS),60)

$(FUZZ)/.ready: requirements/fuzz.lock $(READY)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --target $(FUZZ) -r requirements/fuzz.lock
	@touch $@

lint: $(READY) ## ruff, strict types, import rules, no circles of imports
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache
	@$(BIN)/python tools/import_circles.py src lab

format: $(READY) ## format the code and apply ruff's fixes
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

configuration: $(READY) ## write docs/configuration.md from the table of configurations
	@$(BIN)/python tools/configuration_page.py

metrics: $(READY) ## write docs/metrics.md from the metrics of a node
	@$(BIN)/python tools/metrics_page.py

serve: $(READY) ## a broker on 127.0.0.1:9092 with its data in ./kohort-data
	@$(BIN)/kohort serve --host 127.0.0.1 --port 9092 --data-dir kohort-data

bench: $(READY) $(WITH_COMPILED) ## Kohort (compiled where there is a C compiler), Apache Kafka and kfake side by side, some 20 minutes (BENCH="--only commit" for less)
	@PYTHONPATH=$(if $(WITH_COMPILED),$(COMPILED)) $(BIN)/python -m bench --out bench/results $(BENCH)

instructions: $(READY) $(WITH_COMPILED) ## instructions of the processor for a heartbeat, a commit, a join ... (INSTRUCTIONS="--against FILE"; needs valgrind)
	@PYTHONPATH=$(if $(WITH_COMPILED),$(COMPILED)) $(BIN)/python -m bench.instructions $(INSTRUCTIONS)

growth: $(READY) $(WITH_COMPILED) ## instructions for a request with ever more groups, members, topics, connections ... around it (GROWTH=--times for time; needs valgrind)
	@PYTHONPATH=$(if $(WITH_COMPILED),$(COMPILED)) $(BIN)/python -m bench.growth $(GROWTH)

tail: $(READY) $(WITH_COMPILED) ## latency of heartbeats beside works that take long, some minutes (TAIL="--only compaction" for one, TAIL=--turns on a busy machine)
	@PYTHONPATH=$(if $(WITH_COMPILED),$(COMPILED)) $(BIN)/python -m bench.tail $(TAIL)

charts: $(READY) ## draw the pictures of README and docs/benchmarks.md from the tables there
	@$(BIN)/python -m tools.speed_chart
	@$(BIN)/python -m tools.growth_chart

bench-compare: $(READY) ## compare two runs: make bench-compare A=one.json B=other.json
	@test -n "$(A)" && test -n "$(B)" || { echo "Name two files: make bench-compare A=bench/results/one.json B=bench/results/other.json" >&2; exit 2; }
	@$(BIN)/python -m bench --compare $(A) $(B)

bench-secured: $(READY) $(WITH_COMPILED) ## what SASL, access rules and TLS cost, some three minutes (SECURED="--rounds 1" for less)
	@PYTHONPATH=$(if $(WITH_COMPILED),$(COMPILED)) $(BIN)/python -m bench.secured $(SECURED)

bench-shares: $(READY) $(WITH_COMPILED) ## share fetches beside Apache Kafka and kfake, some two minutes (SHARES="--rounds 1" for less)
	@PYTHONPATH=$(if $(WITH_COMPILED),$(COMPILED)) $(BIN)/python -m bench.shares $(SHARES)

bench-java: $(READY) $(WITH_COMPILED) ## measure each server with Apache Kafka's Java clients (JAVA="--rounds 1" for less; needs Java and Maven)
	@PYTHONPATH=$(if $(WITH_COMPILED),$(COMPILED)) $(BIN)/python -m bench.java_tools $(JAVA)

profile: $(READY) ## profile the server: make profile MEASURE=commit (FLAME=flame.svg draws it, if py-spy is there)
	@$(BIN)/python -m bench --profile --flush $(or $(FLUSH),os) --only "$(or $(MEASURE),heartbeat)" --connections $(or $(CONNECTIONS),64) \
	  --seconds $(or $(SECONDS),3) --no-growth $(if $(FLAME),--flame $(FLAME))

conformance: $(READY) ## run the scenarios on Kohort and on a live Apache Kafka, and print each difference (KAFKA=4.2.1 for a release)
	@$(BIN)/python -m kohort_lab.conformance live $(addprefix --kafka ,$(KAFKA))

conformance-record: $(READY) ## run them on Apache Kafka three times and record its answers (ONLY=name for some, KAFKA=4.4.0 for a release; needs Java and Maven)
	@$(BIN)/python -m kohort_lab.conformance record $(ONLY) $(addprefix --kafka ,$(KAFKA))

lock: ## resolve the dependencies again and pin them (needs uv)
	uv pip compile pyproject.toml --extra dev --universal --generate-hashes --no-header --no-annotate \
	  --python-version 3.11 --quiet --upgrade --output-file requirements/dev.lock

clean: ## remove everything that was built here
	rm -rf $(VENV) build dist kohort-data kohort-demo .mypy_cache .ruff_cache .hypothesis

wheel: $(READY) ## build the plain and the compiled wheel into dist/ and test each in a bare virtual environment
	@rm -rf dist
	@echo "Building the plain wheel, as on a machine without a C compiler ..."
	@CC=/nonexistent/cc $(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist .
	@if [ -n "$(COMPILER)" ]; then echo "Building the compiled wheel (some two minutes) ..."; \
	  $(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist .; \
	  else echo "Note: no C compiler found: the compiled wheel is not built." >&2; fi
	@$(BIN)/python tools/check_wheels.py dist/*.whl

SHIV := build/shiv
.PHONY: archive

archive: $(SHIV)/.ready ## one file with all it needs, for machines that have a Python of the same version and nothing else: dist/kohort.pyz
	@mkdir -p dist
	@KOHORT_BUILD=plain PYTHONPATH=$(SHIV) $(BIN)/python -m shiv --console-script kohort --compressed --python '/usr/bin/env python3' \
	  --output-file dist/kohort.pyz '.[testing]' --quiet --disable-pip-version-check
	@dist/kohort.pyz --version

$(SHIV)/.ready: requirements/archive.lock $(READY)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --target $(SHIV) -r requirements/archive.lock
	@touch $@

.PHONY: standalone

standalone: $(READY) ## Kohort with a Python and all libraries, for machines of this kind that have none: dist/kohort-linux-x86_64.tar.gz
	@$(BIN)/python tools/standalone.py

DOCS := build/docs-venv
.PHONY: docs lock-docs

docs: $(DOCS)/.ready ## build the documentation site in build/site; a broken link fails
	@NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/mkdocs build --quiet
	@echo "Site: build/site/index.html"

$(DOCS)/.ready: requirements/docs.lock
	@$(PYTHON) -m venv $(DOCS)
	@$(DOCS)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/docs.lock
	@touch $@

lock-docs: ## resolve the dependencies of the documentation site anew and pin them (needs uv)
	echo 'mkdocs-material>=9.6' | uv pip compile - --universal --generate-hashes --no-header --no-annotate \
	  --python-version 3.11 --quiet --upgrade --output-file requirements/docs.lock
