# Each target sets up what it needs. `make` without a target lists them.
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

# The first of these that works and is new enough creates the environment.
ifndef PYTHON
PYTHON := $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
          $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
endif
BIN := .venv/bin
NODE_BIN := node_modules/.bin
PINS := requirements/constraints.txt
CORES := $(shell nproc 2>/dev/null || sysctl -n hw.ncpu 2>/dev/null || echo 2)
# uv uses the certificates of the system and the index of pip's configuration.
export UV_SYSTEM_CERTS := true
ifdef PIP_INDEX_URL
export UV_DEFAULT_INDEX ?= $(PIP_INDEX_URL)
endif
# Otherwise, programs that the tests start compile each module again.
unexport PYTHONDONTWRITEBYTECODE

COMMA := ,
SETUP = @$(or $(PYTHON),false) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
        echo "setup: Python 3.11 or later is needed$(if $(PYTHON),$(COMMA) and $(PYTHON) is older or does not run); name one with make PYTHON=/path/to/python" >&2; \
        exit 1; }; \
        $(PYTHON) -m scripts.setup
TESTS := $(BIN)/python -m scripts.run_tests

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-17s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# ---------------------------------------------------------------- use it

.PHONY: demo chat serve
demo: packages ## run the demonstration, then a Spark job; KEEP=1 starts it when a browser opens the page, and keeps serving
	@$(BIN)/python examples/demo --spark $(if $(KEEP),--stay)

chat: packages ## a chat in the browser whose answers a service streams; open it in two tabs
	@$(BIN)/python examples/chat

serve: packages ## a development server on 127.0.0.1, ports 8056 and 8057
	@$(BIN)/hanzo-pubsub serve --dev

# ---------------------------------------------------------------- set up

.PHONY: setup packages programs pins
setup: ## all that the tests need: .venv/, node_modules/, bash, Chromium, Redis, HAProxy, nginx, Java, Kafka
	$(SETUP) python newest npm bash chromium redis balancers java kafka classes bytecode

programs: ## what both the checks and the tests need, and what takes long to fetch
	$(SETUP) python npm docs bash chromium redis balancers java kafka

packages: ## .venv/ and node_modules/ from the pins
	$(SETUP) python npm

pins: ## resolve the newest versions and write them down
	$(SETUP) docs bench
	$(BIN)/uv pip install --python $(BIN)/python --upgrade --requirement requirements/dev.in \
	  --requirement requirements/docs.in --requirement requirements/bench.in --editable . --editable server-mock
	$(BIN)/python scripts/write_pins.py $(PINS)

# ---------------------------------------------------------------- test

.PHONY: test test-fast test-python test-js test-server test-cluster test-spark test-browser test-engines flaky statements durations coverage
test: setup ## every test
	@$(TESTS) all

test-fast: ## what to run after each change: no browser, Spark, Redis, Kafka or packaging; about a minute
	$(SETUP) python npm bash
	@$(TESTS) fast

test-python: ## the Python SDK, the command line, the documentation, both SDKs through the same scenarios
	$(SETUP) python npm bash
	@$(TESTS) python

test-js: packages ## the TypeScript SDK, and its package in Node, Vite and workerd
	@$(TESTS) js

test-server: ## the server on its own, on the Python of .venv/ and on the newest one of this machine
	$(SETUP) python newest npm redis
	@$(TESTS) server

test-cluster: ## nodes on Redis, workers, balancers, Kafka
	$(SETUP) python npm redis balancers kafka
	@$(TESTS) cluster

test-spark: ## the source and the sink, on one machine and on a cluster
	$(SETUP) python npm java classes
	@$(TESTS) spark

test-browser: ## both SDKs, the console and the examples in Chromium
	$(SETUP) python npm chromium
	@$(TESTS) browser

test-engines: ## the client in Firefox and WebKitGTK, the engine of Safari; two minutes, not part of `test`
	$(SETUP) python npm engines
	@node tests/browser/engines/run.mjs

flaky: setup ## run tests N times under load and count failures; ONLY='PATH -k WORD' or GROUPS=cluster chooses
	@$(TESTS) $(GROUPS) --repeat $(or $(N),10) --only '$(ONLY)'

statements: ## break each statement of HIP-56 in a copy and see its tests fail; ONLY='H-042 presence' chooses
	$(SETUP) python npm redis balancers kafka
	@$(BIN)/python -m tests.interop.prove $(ONLY)
	@node tests/js/prove.mjs $(ONLY)

durations: setup ## run every test and write down which are slow: these start first, and test-fast leaves them out
	@$(TESTS) all --write-durations

coverage: setup ## how much of both languages the tests reach; the least covered modules
	$(SETUP) npm coverage
	@$(BIN)/python -m scripts.coverage

# ---------------------------------------------------------------- check

CHECKS := check-words check-format check-mypy check-pyright check-js check-spec check-wheels check-package check-sizes docs
BIOME := js tests/js tests/types tests/browser tests/package tests/conformance tests/bench/node server-mock/console \
         examples/demo/browser examples/chat/page examples/react scripts/dashboard
TSC := js tests/js tests/types tests/browser tests/package server-mock/console examples/demo/browser examples/chat/page

.PHONY: check check-python check-packages $(CHECKS)
check-packages:
	$(SETUP) python npm docs

check: check-packages ## format, lint, types, imports, generated code, packages, site
	@+$(MAKE) --no-print-directory --jobs $(CORES) --output-sync=target $(CHECKS)

check-python: check-format check-mypy check-pyright ## format, lint, types and imports of the Python code

check-words: packages ## find the phrases that scripts/words.yaml bans
	$(BIN)/python scripts/check_words.py

check-format: packages
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports --no-logo
	$(BIN)/lint-imports --no-logo --config server-mock/imports.toml
	$(BIN)/lint-imports --no-logo --config python/imports.toml

check-mypy: check-packages
	$(BIN)/mypy

check-pyright: check-packages
	PYRIGHT_PYTHON_IGNORE_WARNINGS=1 $(BIN)/pyright --warnings

check-js: packages ## format, lint, types and imports of the TypeScript code
	for folder in $(TSC); do $(NODE_BIN)/tsc --noEmit --project $$folder/tsconfig.json || exit 1; done
	node js/imports.mjs
	for folder in $(BIOME); do (cd $$folder && "$(CURDIR)/$(NODE_BIN)/biome" check --error-on-warnings) || exit 1; done
	node server-mock/console/build.mjs --check

check-spec: packages ## generated files are current, both descriptions are valid
	$(BIN)/python spec/generate.py --check
	$(BIN)/openapi-spec-validator spec/openapi.yaml
	node scripts/check_asyncapi.mjs spec/asyncapi.yaml

check-wheels: build ## the wheels install in empty environments, and beside PyPI's hanzoai
	$(BIN)/python scripts/check_wheels.py dist

check-docs-wheels: build ## the code blocks of README and docs/ run with the wheels in an empty environment; ONLY='chat spark' selects pages by name; not part of `make check`
	$(BIN)/python scripts/check_docs_wheels.py dist $(ONLY)

check-package: build ## the npm package: its entries, conditions and types, for modules and CommonJS
	$(NODE_BIN)/publint run dist/hanzoai-pubsub-*.tgz --strict
	$(NODE_BIN)/attw dist/hanzoai-pubsub-*.tgz --profile node16 --format table-flipped

check-sizes: build ## what an import of the npm package costs is within its limits
	node js/sizes.mjs --check

check-lowest: ## the tests of what dependencies do, with the lowest versions that the packages admit
	$(SETUP) python npm redis
	@scripts/check_versions.sh lowest

check-newest: ## the same tests with the newest versions, pre-releases too, on the newest Python of this machine
	$(SETUP) python newest npm redis
	@scripts/check_versions.sh newest

docs: check-packages ## the site, into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# ---------------------------------------------------------------- make

.PHONY: generate format build dashboard check-image chart check-chart release-check check-newest
generate: packages ## write what comes from spec/, the console page, and the tables of docs/
	$(BIN)/python spec/generate.py
	node server-mock/console/build.mjs
	$(BIN)/python scripts/write_tables.py

format: packages ## put the code in order
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format .
	for folder in $(BIOME); do (cd $$folder && "$(CURDIR)/$(NODE_BIN)/biome" check --write) || exit 1; done

build: packages ## wheels, source archives and the npm package, into dist/
	@rm -rf dist
	$(BIN)/uv build --quiet --no-build-isolation --python $(BIN)/python --out-dir dist .
	$(BIN)/uv build --quiet --no-build-isolation --python $(BIN)/python --out-dir dist server-mock
	@node js/build.mjs --pack dist

check-image: build ## carry out the Dockerfile without a container engine, and run the server read-only as its user; needs root
	$(BIN)/python scripts/check_image.py dist

chart: packages ## render the plain manifests from the Helm chart; needs helm
	$(BIN)/python scripts/check_chart.py --write

check-chart: packages ## lint the chart, and check what it renders against Kubernetes' schemas; needs helm
	$(BIN)/python scripts/check_chart.py

release-check: packages ## build, check and install all that a release publishes, from the committed state; TAG=v1.2.3
	scripts/release_check.sh $(TAG)

dashboard: ## the picture of the dashboard in docs/; installs 450 packages of Grafana's, needs Prometheus
	$(SETUP) python npm dashboard chromium
	$(NODE_BIN)/tsc --noEmit --project scripts/dashboard/tsconfig.json
	$(BIN)/python scripts/dashboard/live.py docs/assets/dashboard.webp

# ---------------------------------------------------------------- measure

.PHONY: bench soak clean
bench: ## measure beside the named peers, which it installs; prints the tables of docs/performance.md
	$(SETUP) python npm bench
	$(BIN)/python -m tests.bench

soak: setup ## the tests again with the large numbers; hours
	HANZO_PUBSUB_SOAK=1 $(BIN)/python -m pytest --timeout 0

clean: ## remove all that was made here
	rm -rf .venv .setup .cache node_modules scripts/dashboard/node_modules scripts/diagrams/node_modules \
	  scripts/v8_coverage/node_modules tests/bench/node/node_modules dist js/dist site \
	  .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache .coverage coverage
