# Each target sets up what it needs. README shows `make demo` and `make test`, docs the others.
PYTHON ?= python3
# The anchor, and the Kafka before it, as sidecar/drill/artifacts.py names them: tests play against both.
ANCHORS := $(shell sed -n 's/^\(KAFKA\|BEFORE\) = "\(.*\)"/\2/p' sidecar/drill/artifacts.py)
KAFKA  ?= $(firstword $(ANCHORS))
N      ?= 10
SEEDS  ?= 1000
SCRIPTS ?= 2000
PROTOCOL ?= classic
# `make LOCKED=1 ...` sets up the versions of requirements/dev.lock instead of the newest ones that fit.
LOCKED ?=
JOBS   ?= $(shell nproc 2>/dev/null || echo 2)
# Tests with brokers wait now and then: one process more than there are cores keeps these busy.
LANES  ?= $(shell expr $(JOBS) + 1)
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

.PHONY: demo quick test test-all rest nightly night coverage bench drill audit wire sim sanitize mutants differential exactly-once house clients brokers lock vulnerabilities manifests clean
.DEFAULT_GOAL := test

$(READY): pyproject.toml setup.py sidecar/native/_columns.c sidecar/native/_groups.c sidecar/native/_kernel.c sidecar/native/_wire.c
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or later is needed: make PYTHON=python3.12 ..."; exit 1; }
	@echo "setting up $(VENV): once, about a minute"
	@$(PYTHON) -m venv $(VENV)
	@test -z '$(LOCKED)' || $(BIN)/pip install -q --disable-pip-version-check --require-hashes -r requirements/dev.lock
	@PYTHONWARNINGS=ignore $(BIN)/pip install -q --disable-pip-version-check -e '.[audit,dev]'
	@touch $@

demo: $(READY)
	@$(BIN)/python -m sidecar.drill.demo --kafka $(KAFKA)

# Four commands, each a superset of the one before (docs/design/testing.md). ARGS go to pytest.
TESTS  = pytest -n $(JOBS) --dist loadgroup --no-loadscope-reorder
PYTEST = $(BIN)/python -m $(TESTS)

quick: $(READY)
	@$(BIN)/ruff check -q .
	@$(BIN)/lint-imports --no-logo > /dev/null || $(BIN)/lint-imports --no-logo
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal --tier quick $(ARGS)

test: $(READY) kafka
	$(BIN)/ruff check .
	$(BIN)/lint-imports --no-logo
	$(BIN)/python -m tools.house --check
	$(BIN)/mypy
	$(PYTEST) -n $(LANES) --tier test $(ARGS)

test-all: test rest

# What test-all has beside `make test`; it needs Go, Node.js, Chromium, Prometheus and systemd, too.
rest: $(READY) kafka
	$(BIN)/python -m tools.deploy_tools build
	$(PYTEST) -n $(LANES) --only-tier all $(ARGS)

nightly: test-all night

# What nightly has beside test-all: more seeds, older brokers, drills of minutes.
night: $(READY) kafka
	$(PYTEST) --only-tier nightly $(ARGS)

# Branches of each room that the tests of a tier take: `make coverage TIER=quick`.
TIER ?= test
coverage: $(READY) kafka
	@rm -rf out/coverage && mkdir -p out/coverage
	$(BIN)/coverage run -m $(TESTS) --tier $(TIER) $(ARGS)
	@$(BIN)/coverage combine -q
	@$(BIN)/python -m tools.coverage_rooms

.PHONY: kafka
kafka: $(READY)
	@$(BIN)/python -m sidecar.drill.artifacts $(sort $(KAFKA) $(ANCHORS))
	@$(BIN)/python -m sidecar.drill.archive $(KAFKA)
	@$(BIN)/python -m tests.harness.spark_archive

bench: $(READY)
	@$(BIN)/python -m benchmarks.$(subst -,_,$(NAME)) $(ARGS)

drill: $(READY)
	@$(BIN)/sidecar drill $(NAME) --n $(N) --kafka $(KAFKA) $(ARGS)

audit: $(READY)
	@$(BIN)/sidecar audit $(ARGS)

exactly-once: $(READY)
	@$(BIN)/python -m tests.clients.exactly_once --rounds $(N) --protocol $(PROTOCOL)

differential: $(READY)
	@$(BIN)/python -m tests.differential.run --scripts $(SCRIPTS) --kafka $(KAFKA)

# Whole processes against simulated brokers, then the core alone: docs/design/simulation.md. 1,000 seeds take about five minutes on two cores.
sim: $(READY)
	@nice $(BIN)/python -m tests.whole.run --seeds $(SEEDS); whole=$$?; nice $(BIN)/python -m tests.sim.run --seeds $(SEEDS) && exit $$whole

# All rows need Go, Node.js with npm, a JDK and Maven; a row whose tool is missing is "not run", and the target fails.
clients: $(READY)
	@$(BIN)/python -m sidecar.drill.artifacts $(KAFKA)
	@$(BIN)/python -m tests.matrix.run --kafka $(KAFKA) --doc docs/use/clients.md $(ARGS)

# The table of brokers in docs/reference/versions.md: an hour. ARGS="--kafka 2.8.2 --cell tools" runs one cell.
brokers: $(READY)
	@$(BIN)/python -m tests.matrix.brokers --doc docs/reference/versions.md $(ARGS)

wire: $(READY)
	@$(BIN)/python -m tools.generate_wire

# The C extensions on bytes and numbers that nobody should send, under gcc's sanitizers; the same inputs each time.
SANITIZED := requests,responses,layouts,headers,metadata,kernels,columns
sanitize: $(READY)
	@$(BIN)/python -m tests.fuzz.run --asan --only $(SANITIZED) --inputs 60000 $(ARGS)

# Bugs planted one by one in a copy of the tree: which test finds each? `make mutants ARGS='--room lease'`; about an hour.
mutants: $(READY)
	@nice $(BIN)/python -m tests.mutants.run $(ARGS)

house: $(READY)
	@$(BIN)/python -m tools.house $(ARGS)

# Versions and hashes of all dependencies, for the images and for CI; tests/deploy/test_locks.py says when it is time.
LOCK := $(BIN)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header
lock: $(READY)
	@$(LOCK) requirements/build.in -o requirements/build.lock
	@$(LOCK) pyproject.toml -o requirements/sidecar.lock
	@$(LOCK) pyproject.toml --extra audit -o requirements/audit.lock
	@$(LOCK) pyproject.toml --extra audit --extra dev -o requirements/dev.lock

# 0: none known; 1: at least one; 3: no service answered, so nothing has passed.
vulnerabilities: $(READY)
	@$(BIN)/python -m tools.vulnerabilities

# deploy/kubernetes from the chart. It needs Go, which builds helm once.
manifests: $(READY)
	@$(BIN)/python -m tools.deploy_tools manifests

clean:
	rm -rf out build dist *.egg-info $(VENV)
