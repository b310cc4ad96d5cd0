# The commands of the project; `make help` lists them.

BIN := .venv/bin
# Most of the time the tests wait for an SDK or a clock: more workers than cores, each with a RabbitMQ
# of its own, a file at a time. WORKERS=0 runs them one by one in one process.
WORKERS ?= 6
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# What tests are compiled to is kept: each worker and each run would take 15 s for it otherwise.
unexport PYTHONDONTWRITEBYTECODE

# What Python needs to run the compiled bridge, in every process that is started.
COMPILED := PYTHONSAFEPATH=1 PYTHONPATH="$(CURDIR)/build/compiled:$(CURDIR)"
PYTEST := $(COMPILED) $(BIN)/python -m pytest --compiled
# Go is where docker/setup/go puts it, on PATH, or where its own installer puts it.
WITH_GO := PATH="$(CURDIR)/.busbridge/go/bin:$$PATH:/usr/local/go/bin"

.DEFAULT_GOAL := help
.PHONY: help setup compiled run quick test lint format check-tests bench soak explore test-long test-plain test-kills parity test-matrix test-sdks clean

help: ## This list
	@sed -nE 's/^([a-z-]+):.*## (.*)/\1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{ printf "make %-12s %s\n", $$1, $$2 }'

setup: ## All that is missing for `make test`: .venv, RabbitMQ, Node and its SDK (again: returns at once)
	@docker/setup/python dev
	@docker/setup/rabbitmq
	@docker/setup/node

compiled: ## The bridge with its hot paths as machine code, in build/compiled: receiving is up to a fifth faster (some minutes, once)
	@docker/setup/python run
	@docker/setup/compiled

run: ## Set up what is missing, then `busbridge serve` (flags in ARGS="...", or as BUSBRIDGE_... variables)
	@docker/setup/python run
	@docker/setup/rabbitmq
	@exec docker/serve $(ARGS)

quick: ## Lint and the unit tests of what differs from main, in less than a minute; needs no RabbitMQ (another branch: ARGS=BRANCH)
	@docker/setup/python dev
	@$(BIN)/python -m tests.quick $(ARGS)

test: setup ## Set up what is missing, then format, lint, types, floors and all tests but those below
	@$(MAKE) --no-print-directory -j 2 lint compiled # each has one core
	@$(MAKE) --no-print-directory check-tests

# The tests of the compiled bridge.
check-tests: compiled
	@[ -d tests/unit/__pycache__ ] || $(PYTEST) --collect-only -qq >/dev/null 2>&1 || true # else six workers compile them, each for itself
	@$(PYTEST) --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder --durations 15 $(ARGS)

lint: ## Format check, lint, types, imports by floors
	@docker/setup/python dev
	$(BIN)/ruff format --check --quiet . || $(BIN)/ruff format --check .
	$(BIN)/ruff check --quiet .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

format: ## Put the code into the project's format
	@docker/setup/python dev
	$(BIN)/ruff check --quiet --fix-only .
	$(BIN)/ruff format .

bench: setup compiled ## Every figure beside its peer; fails below a floor (about 4 cores to itself)
	@$(COMPILED) $(BIN)/python -m tests.bench $(ARGS)

# Where the tests of a marker are: a worker would take seconds to read the thousands of unit tests that are not.
marked = $(filter-out tests/unit/,$(sort $(dir $(wildcard tests/*/test_*.py)))) $(shell grep -rl --include='test_*.py' 'mark\.$(1)' tests/unit)

test-long: setup compiled ## What takes whole nodes of RabbitMQ, their alarms, restarts and times, logins that end, what is slow by itself, and the unit tests as plain Python
	@$(if $(ARGS),,$(MAKE) --no-print-directory test-plain)
	@$(PYTEST) --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder -m 'long and not (kills or soak or sdks)' --durations 10 \
	  $(or $(ARGS),$(call marked,long))

# What is compiled (wire, machine) as plain Python, and what counts Python's calls.
PLAIN = tests/unit/machine tests/unit/wire tests/unit/test_cost_of_entities.py $(shell grep -lE 'bridge\.(wire|machine)' tests/unit/test_*.py)
test-plain: setup
	@$(BIN)/python -m pytest --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder $(PLAIN)

test-kills: setup compiled ## Bridges, sidecars and RabbitMQs that are killed under load; nothing is lost
	@$(PYTEST) --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder -m 'kills and not soak' --timeout 900 --durations 10 $(ARGS)

soak: setup compiled ## The long kill runs, all SDKs beside each other, a million mutated frames, and a million of hostile structure; new examples (needs what test-sdks needs)
	@docker/setup/sdks
	@$(WITH_GO) $(PYTEST) -m soak --timeout 1200 $(ARGS)
	@$(if $(ARGS),,$(MAKE) --no-print-directory explore)

explore: setup compiled ## The property tests with examples that nobody has tried (`make test` tries the same ones each time)
	@$(PYTEST) --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder -m 'hypothesis and not (bench or kills or soak or sdks or windows)' --hypothesis-profile explore $(ARGS)

parity: setup compiled ## Azure's own tests of its Python and Go SDKs, scored in docs/parity.md (needs Go 1.23 or newer, PyPI and a Go proxy)
	@docker/setup/go
	@$(WITH_GO) $(COMPILED) $(BIN)/python -m tests.parity --workers 14 $(ARGS)

test-matrix: setup compiled ## The tests that need a RabbitMQ, against 4.0 and 4.3; the library on Python 3.13 and 3.14, the unit tests on 3.13 (no root, no Docker)
	@$(COMPILED) WORKERS=$(WORKERS) tests/brokers/matrix $(ARGS)

test-sdks: setup compiled ## The Java, Go and .NET SDKs (needs JDK 17, Maven, Go 1.23, .NET 10), an older Python client, previews of Python and JavaScript
	@docker/setup/sdks
	@$(WITH_GO) $(PYTEST) -m sdks --numprocesses 3 --dist loadscope --no-loadscope-reorder --durations 15 \
	  $(or $(ARGS),$(call marked,sdks))

clean: ## Remove what was set up and built (never --data-dir)
	rm -rf .venv .venv-* node_modules tests/acceptance/*/node_modules tests/acceptance/*/target
	find bridge policies tests docker -name __pycache__ -prune -exec rm -rf {} +
	rm -rf .mypy_cache .ruff_cache .import_linter_cache .hypothesis build dist
