# Every target sets up what it needs: a clean clone and `make demo` or `make test` is all there is to it.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

UV_VERSION := $(shell sed -n 's/^uv==\([0-9.]*\).*/\1/p' tools/uv.txt)
UV := .tools/uv-$(UV_VERSION)/bin/uv
RUN := $(UV) run --locked --no-sync
PYTEST := $(RUN) pytest
# More workers than cores, since they often wait; tests/scheduling.py says which tests share one, and in which order.
PARALLEL := -n 3 --dist loadscope --no-loadscope-reorder
export UV_PROJECT_ENVIRONMENT := .venv
NO_UV := uv $(UV_VERSION) could not be installed. It needs python3 with venv (Debian and Ubuntu: apt install python3-venv), \
  and PyPI or a mirror of it (PIP_INDEX_URL).
NO_PYTHON := No Python of version 3.12 or newer is here, and none could be fetched. Install one with the package manager \
  (apt install python3.13, dnf install python3.13, brew install python@3.13) or with pyenv, and run make again.

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  \033[36mmake %-18s\033[0m %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: setup ## Run the main job on a real control plane with simulated GPU machines
	@$(RUN) python -m examples.demo

down: setup ## Stop the local cluster and remove its data
	@$(RUN) kubectl-gpu down

test: lint service-binaries chart-binaries monitoring-binaries release-before ray-image ## Run every check and every test
	@$(PYTEST) $(PARALLEL) tests

test-fast: lint ## Run what needs no cluster (under a minute); fewer interleavings than `make test` tries
	@$(PYTEST) -n 2 --dist worksteal --interleavings 120 --histories 300 --hypothesis-profile quick tests/unit tests/simulation tests/monitoring/test_alerts.py tests/monitoring/test_alert_events.py

test-long: setup service-binaries ray-image ## Run for minutes what `make test` tries a few times, or in a model (an hour)
	@$(PYTEST) -n 2 --dist worksteal --histories 10000 --sandbox-losses 50 tests/unit/agent/step/test_histories.py tests/e2e/agent/test_holds.py
	@$(PYTEST) -s --steps 10000 tests/integration/flow/test_long_history.py
	@$(PYTEST) -s --clients 500 tests/integration/kube/test_herd.py
	@$(PYTEST) -s --reviews 100000 tests/unit/admission/test_fuzzed_reviews.py
	@$(PYTEST) -s --real-ray tests/e2e/ray

test-integration: setup binaries chart-binaries ## Run the tests against a real API server
	@$(PYTEST) $(PARALLEL) tests/integration

test-e2e: setup service-binaries release-before ray-image ## Run the tests with a real kubelet and real containers (needs Linux and root)
	@$(PYTEST) $(PARALLEL) tests/e2e

test-helm: setup binaries chart-binaries ## Render, install and uninstall the Helm chart against a real API server
	@$(PYTEST) $(PARALLEL) tests/helm

test-monitoring: setup binaries chart-binaries monitoring-binaries ## Try alerts and dashboards with a real Prometheus
	@$(PYTEST) $(PARALLEL) tests/monitoring

test-browser: setup binaries system-packages ## Try the console's pages in a real Chromium
	@$(PYTEST) tests/browser

screenshots: setup binaries system-packages ## Take the pictures in docs/images anew
	@$(PYTEST) --screenshots tests/browser/test_pages.py

# On a machine without a network, all comes from the bundle that `make airgapped` packed elsewhere.
ifneq ($(wildcard build/airgapped/bundle.tar.xz),)
test-gpu:
	@tools/test-gpu-airgapped
else
test-gpu: setup node-binaries ## Run the tests on a real NVIDIA card (needs root and the driver)
	@GPU_TEST_REAL=1 $(PYTEST) tests/gpu
endif

airgapped: setup node-binaries ## Pack what test-gpu needs, for a machine without a network
	@$(RUN) python tools/pack_airgapped.py

checksums: setup ## Record the checksums of the local cluster's downloads as their publishers give them (needs a network)
	@$(RUN) python -m gpu_control_plane.local --record-checksums

# Without a container engine; ARCH=arm64 makes it for the other processor.
image: setup ## Build the container image as an OCI archive, and its SBOM (ARCH=amd64 or arm64)
	@$(RUN) python -m images build $(if $(ARCH),--arch $(ARCH))

image-lock: setup ## Record the Debian packages of the image anew, as Debian serves them today (needs apt)
	@$(RUN) python -m images lock

# Where it will be pushed to and downloaded from: REGISTRY=registry.example.com/gpu URL=https://…; FLAGS=--dirty for a trial.
release: setup chart-binaries ## Write every artifact of a release to dist/, and print the commands that push them
	@$(RUN) python -m release build $(if $(REGISTRY),--registry $(REGISTRY)) $(if $(URL),--url $(URL)) $(FLAGS)

# FLAGS="--library deckhouse_lib_helm-….tgz --digest ours=sha256:…": docs/install-deckhouse.md says what for.
deckhouse-module: setup ## Pack the Deckhouse module: build/deckhouse-module, and an archive in dist/
	@$(RUN) python -m release module $(FLAGS)

bump: setup ## Begin a release: VERSION=1.2.3 in every file that has it, and the date in the changelog
	@$(RUN) python -m release bump "$(VERSION)"
	@$(MAKE) generate

bench: setup node-binaries ## Measure the runtime, the flow and the node's agent against their limits (20 minutes)
	@$(RUN) python -m benchmarks runtime card pooling join node stack ray admission webhook commands console

bench-scale: setup binaries ## Pool 500 nodes of eight cards
	@$(RUN) python -m benchmarks pooling --nodes 500

audit: setup ## Look up the locked dependencies in a database of known faults (needs a network)
	@tools/audit $(CURDIR)/$(UV)

lint: setup ## Check style, types, imports and generated files
	@$(RUN) ruff format --check .
	@$(RUN) ruff check .
	@$(RUN) mypy
	@$(RUN) lint-imports
	@$(RUN) python -m gpu_control_plane.api.generate --check
	@$(RUN) python -m gpu_control_plane.agent.kubelet.generate --check
	@$(RUN) python -m monitoring.generate --check
	@$(RUN) python tools/settings_page.py --check
	@$(RUN) python tools/admission_policies.py --check
	@$(RUN) python tools/webhook_configurations.py --check
	@$(RUN) python tools/console_api.py --check
	@$(RUN) python tools/module_settings.py --check
	@$(RUN) python tools/deckhouse_example.py --check

generate: setup ## Write CRDs, references, gRPC messages, policies, rules and dashboards anew from their sources
	@$(RUN) python -m gpu_control_plane.api.generate
	@$(RUN) python -m gpu_control_plane.agent.kubelet.generate
	@$(RUN) python -m monitoring.generate
	@$(RUN) python tools/settings_page.py
	@$(RUN) python tools/admission_policies.py
	@$(RUN) python tools/webhook_configurations.py
	@$(RUN) python tools/console_api.py
	@$(RUN) python tools/module_settings.py
	@$(RUN) python tools/deckhouse_example.py

docs: generate ## Write the generated pages of the documentation anew

clean: ## Remove the environment and build output (the cache of binaries stays)
	rm -rf .venv .tools build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

# The programs of the local cluster: found, downloaded or built once, then kept in the cache folder.
binaries: setup
	@$(RUN) python -m gpu_control_plane.local

# The same and, where a real node can run, what it needs beyond them.
node-binaries: setup system-packages
	@$(RUN) python -m gpu_control_plane.local --node

# Those, and what services on real nodes need.
service-binaries: setup system-packages
	@$(RUN) python -m gpu_control_plane.local --node --services

# What the tests of the chart and the console run: Helm, kubeconform, Node Feature Discovery, Dex, and the schemas of
# Kubernetes' kinds.
chart-binaries: setup
	@$(RUN) python -m gpu_control_plane.local --chart
	@PYTHONPATH=tests $(RUN) python -m helm.schemas

# What the tests of dashboards scrape; Prometheus itself is a package of the system.
monitoring-binaries: setup system-packages
	@$(RUN) python -m gpu_control_plane.local --monitoring

# The chart and the image that tests of an upgrade begin with, from the history.
release-before: setup
	@PYTHONPATH=tests $(RUN) python -m image.release_before

# An image with real Ray, for tests and for trying it on the local cluster; kept in the cache folder.
ray-image: setup
	@PYTHONPATH=tests $(RUN) python -m e2e.ray.image $(if $(filter $@,$(MAKECMDGOALS)),required)

# After another version in tests/e2e/ray/image/recipe.py: its wheels and Debian's packages, as they are served today.
ray-image-lock: setup
	@PYTHONPATH=tests $(RUN) python -m e2e.ray.image lock

system-packages:
	@tools/system-packages

# The environment is made once and again only when the lock file changes.
setup: .venv/.ready ## Make the Python environment that every other target uses

.venv/.ready: uv.lock pyproject.toml $(UV)
	@python=$$(tools/find-python); \
	echo "Setting up the Python environment ($${python:-an interpreter from uv})"; \
	$(UV) sync --locked --quiet --compile-bytecode $${python:+--python "$$python"} || { \
	  [ -n "$$python" ] || echo "$(NO_PYTHON)" >&2; exit 1; }
	@touch $@

$(UV):
	@echo "Fetching uv $(UV_VERSION)"
	@python3 -m venv $(dir $(@D)) && $(dir $@)pip install --quiet --disable-pip-version-check --require-hashes -r tools/uv.txt || { \
	  echo "$(NO_UV)" >&2; rm -rf $(dir $(@D)); exit 1; }

.PHONY: help demo down test test-fast test-long test-integration test-e2e bench bench-scale lint generate docs clean
.PHONY: setup binaries node-binaries service-binaries system-packages test-gpu airgapped image image-lock
.PHONY: test-browser screenshots release deckhouse-module bump
.PHONY: audit ray-image ray-image-lock release-before checksums test-helm chart-binaries test-monitoring monitoring-binaries
