# Each target sets up what it needs. `make demo`, `make test`; the others are in README.
PYTHON ?= python3
KAFKA  ?= 4.3.1
N      ?= 10
SEEDS  ?= 1000
SCRIPTS ?= 2000
PROTOCOL ?= classic
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

.PHONY: demo test bench drill audit wire sim differential exactly-once house clients clean
.DEFAULT_GOAL := test

$(READY): pyproject.toml setup.py sidecar/native/_columns.c sidecar/native/_kernel.c sidecar/native/_wire.c
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or later is needed: make PYTHON=python3.12 ..."; exit 1; }
	@echo "setting up $(VENV): once, about a minute"
	@$(PYTHON) -m venv $(VENV)
	@PYTHONWARNINGS=ignore $(BIN)/pip install -q --disable-pip-version-check -e '.[audit,dev]'
	@touch $@

demo: $(READY)
	@$(BIN)/python -m sidecar.drill.demo --kafka $(KAFKA)

test: $(READY)
	$(BIN)/ruff check .
	$(BIN)/lint-imports --no-logo
	$(BIN)/python -m tools.house --check
	$(BIN)/mypy
	$(BIN)/python -m sidecar.drill.artifacts $(KAFKA)
	$(BIN)/pytest $(ARGS)

bench: $(READY)
	@$(BIN)/python -m benchmarks.$(subst -,_,$(NAME)) $(ARGS)

drill: $(READY)
	@$(BIN)/python -m sidecar.drill.drills $(NAME) --n $(N) --kafka $(KAFKA) $(ARGS)

audit: $(READY)
	@$(BIN)/sidecar audit $(ARGS)

exactly-once: $(READY)
	@$(BIN)/python -m tests.clients.exactly_once --rounds $(N) --protocol $(PROTOCOL)

differential: $(READY)
	@$(BIN)/python -m tests.differential.run --scripts $(SCRIPTS)

# Whole processes against simulated brokers, then the core alone: docs/simulation.md. 1,000 seeds take about five minutes on two cores.
sim: $(READY)
	@nice $(BIN)/python -m tests.whole.run --seeds $(SEEDS); whole=$$?; nice $(BIN)/python -m tests.sim.run --seeds $(SEEDS) && exit $$whole

# All rows need Go, Node.js with npm, a JDK and Maven; a row whose tool is missing is "not run", and the target fails.
clients: $(READY)
	@$(BIN)/python -m sidecar.drill.artifacts $(KAFKA)
	@$(BIN)/python -m tests.matrix.run --kafka $(KAFKA) --doc docs/clients.md $(ARGS)

wire: $(READY)
	@$(BIN)/python -m tools.generate_wire --jar $$($(BIN)/python -c 'from sidecar.drill.artifacts import *; print(kafka_libs() / f"kafka-clients-{KAFKA}.jar")')

house: $(READY)
	@$(BIN)/python -m tools.house $(ARGS)

clean:
	rm -rf out build dist *.egg-info $(VENV)
