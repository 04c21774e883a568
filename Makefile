# Every target sets up what it needs; `make` alone lists them.
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup packages chromium redis balancers kafka pins demo serve test check check-python check-js check-spec check-wheels check-package check-sizes \
        generate format docs dashboard build bench soak clean

# The first of these that runs and is new enough makes the environment.
PYTHON ?= $(firstword $(foreach p,python3 python3.11 python3.12 python3.13 python3.14,$(shell \
          $(p) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $(p))))
VENV := .venv
BIN := $(VENV)/bin
NODE_BIN := node_modules/.bin
PINS := requirements/constraints.txt
# uv trusts what the system trusts, and asks the index that pip is told to ask.
export UV_SYSTEM_CERTS := true
ifdef PIP_INDEX_URL
export UV_DEFAULT_INDEX ?= $(PIP_INDEX_URL)
endif
INSTALL := $(BIN)/uv pip install --quiet --python $(BIN)/python --constraint $(PINS)

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: packages chromium redis balancers kafka ## .venv/ and node_modules/ from the pins; Chromium, Redis, HAProxy, nginx, Kafka where there are none
	@:

packages: $(VENV)/.ready node_modules/.ready
	@:

chromium:
	@scripts/install_chromium.sh

redis:
	@scripts/install_redis.sh

balancers:
	@scripts/install_balancers.sh

kafka:
	@scripts/install_kafka.sh

$(VENV)/.ready: $(PINS) requirements/dev.in pyproject.toml server-mock/pyproject.toml
	@test -n "$(PYTHON)" || { echo "Python 3.11 or later is needed (make PYTHON=/path/to/python)" >&2; exit 1; }
	@echo "setup: Python packages into $(VENV)/"
	@test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV)
	@test -x $(BIN)/uv || $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint $(PINS) uv
	@$(INSTALL) --requirement requirements/dev.in
	@$(INSTALL) --no-build-isolation --editable . --editable server-mock
	@touch $@

node_modules/.ready: package.json package-lock.json .npmrc
	@echo "setup: npm packages into node_modules/"
	@command -v npm >/dev/null || { echo "Node 20 or later with npm is needed" >&2; exit 1; }
	@npm ci --loglevel error
	@touch $@

pins: $(VENV)/.ready ## resolve the newest versions anew and write them down
	$(BIN)/uv pip install --python $(BIN)/python --upgrade --requirement requirements/dev.in \
	  --editable . --editable server-mock
	$(BIN)/python scripts/write_pins.py $(PINS)

demo: packages ## the main job, on the terminal and in a browser, then Spark; KEEP=1 waits for the browser and stays
	@$(BIN)/python examples/demo --spark $(if $(KEEP),--stay)

serve: packages ## a development server on 127.0.0.1, ports 8056 and 8057
	@$(BIN)/hanzo-pubsub serve --dev

test: setup ## every test
	node tests/js/run.mjs
	node tests/browser/run.mjs
	node tests/package/run.mjs
	$(BIN)/python -m pytest

check: check-python check-js check-spec check-wheels check-package check-sizes docs ## format, lint, types, imports, generated code, packages, site

check-python: packages ## format, lint, types and imports of the Python code
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	PYRIGHT_PYTHON_IGNORE_WARNINGS=1 $(BIN)/pyright --warnings
	$(BIN)/lint-imports --no-logo

check-js: packages ## format, lint, types and imports of the TypeScript code
	$(NODE_BIN)/tsc --noEmit --project js/tsconfig.json
	$(NODE_BIN)/tsc --noEmit --project tests/js/tsconfig.json
	$(NODE_BIN)/tsc --noEmit --project tests/browser/tsconfig.json
	$(NODE_BIN)/tsc --noEmit --project server-mock/console/tsconfig.json
	$(NODE_BIN)/tsc --noEmit --project examples/demo/browser/tsconfig.json
	$(NODE_BIN)/tsc --noEmit --project tests/package/tsconfig.json
	node js/imports.mjs
	cd js && ../$(NODE_BIN)/biome check --error-on-warnings
	cd tests/js && ../../$(NODE_BIN)/biome check --error-on-warnings
	cd tests/browser && ../../$(NODE_BIN)/biome check --error-on-warnings
	cd server-mock/console && ../../$(NODE_BIN)/biome check --error-on-warnings
	node server-mock/console/build.mjs --check
	cd examples/demo/browser && ../../../$(NODE_BIN)/biome check --error-on-warnings
	cd examples/react && ../../$(NODE_BIN)/biome check --error-on-warnings
	cd tests/package && ../../$(NODE_BIN)/biome check --error-on-warnings
	cd tests/conformance && ../../$(NODE_BIN)/biome check --error-on-warnings
	cd tests/bench/node && ../../../$(NODE_BIN)/biome check --error-on-warnings
	cd scripts/dashboard && ../../$(NODE_BIN)/biome check --error-on-warnings

check-spec: packages ## generated files are current, both descriptions are valid
	$(BIN)/python spec/generate.py --check
	$(BIN)/openapi-spec-validator spec/openapi.yaml
	node scripts/check_asyncapi.mjs spec/asyncapi.yaml

check-wheels: build ## the wheels install in empty environments, and beside PyPI's hanzoai
	$(BIN)/python scripts/check_wheels.py dist

check-package: build ## the npm package: its entries, conditions and types, for modules and CommonJS
	$(NODE_BIN)/publint run dist/hanzoai-pubsub-*.tgz --strict
	$(NODE_BIN)/attw dist/hanzoai-pubsub-*.tgz --profile node16 --format table-flipped

check-sizes: build ## what an import of the npm package costs is within its limits
	node js/sizes.mjs --check

generate: packages ## write what comes from spec/, the console page, and the tables of docs/
	$(BIN)/python spec/generate.py
	node server-mock/console/build.mjs
	$(BIN)/python scripts/write_tables.py

format: packages ## put the code in order
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format .
	cd js && ../$(NODE_BIN)/biome check --write
	cd tests/js && ../../$(NODE_BIN)/biome check --write
	cd tests/browser && ../../$(NODE_BIN)/biome check --write
	cd server-mock/console && ../../$(NODE_BIN)/biome check --write
	cd examples/demo/browser && ../../../$(NODE_BIN)/biome check --write
	cd examples/react && ../../$(NODE_BIN)/biome check --write
	cd tests/package && ../../$(NODE_BIN)/biome check --write
	cd tests/conformance && ../../$(NODE_BIN)/biome check --write
	cd tests/bench/node && ../../../$(NODE_BIN)/biome check --write
	cd scripts/dashboard && ../../$(NODE_BIN)/biome check --write

docs: packages ## the site, into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

dashboard: packages chromium ## the picture of the dashboard in docs/; installs 450 packages of Grafana's, needs Prometheus
	cd scripts/dashboard && npm install --loglevel error
	$(NODE_BIN)/tsc --noEmit --project scripts/dashboard/tsconfig.json
	$(BIN)/python scripts/dashboard/live.py docs/assets/dashboard.webp

build: packages ## wheels, source archives and the npm package, into dist/
	@rm -rf dist
	$(BIN)/uv build --quiet --no-build-isolation --python $(BIN)/python --out-dir dist .
	$(BIN)/uv build --quiet --no-build-isolation --python $(BIN)/python --out-dir dist server-mock
	@node js/build.mjs --pack dist

bench: packages ## measure beside the named peers; prints the tables of docs/performance.md
	$(BIN)/python -m tests.bench

soak: packages ## the tests again with the large numbers; hours
	HANZO_PUBSUB_SOAK=1 $(BIN)/python -m pytest --timeout 0

clean: ## remove all that was made here
	rm -rf $(VENV) node_modules scripts/dashboard/node_modules dist js/dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
