# What a newcomer types. Needs make and Python 3.11 or newer (with venv); the rest goes into .venv.
#   make PYTHON=/path/to/python3 ...      choose the Python
#   make test PYTEST_FLAGS="-k wire -x"   narrow the tests
#   make soak SPHTP_SEED=7 ...            repeat a soak

SHELL := /bin/sh
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

# Empty is off: else each of the many processes that tests start compiles all of it again.
export PYTHONDONTWRITEBYTECODE :=

# Many tests wait for sockets and processes, so that six workers pay on two cores, too.
PYTEST_FLAGS ?= -m "not soak" -n 6 --dist worksteal
# A soak has a seed of its own, which its first lines say.
SPHTP_SEED   := $(or $(SPHTP_SEED),$(shell od -An -N4 -tu4 /dev/urandom | tr -d ' '))
SOAK         := SPHTP_SEED=$(SPHTP_SEED) .venv/bin/python -m pytest -v --durations=20
# For each target; all of them together take more than an hour.
FUZZ_SECONDS ?= 60
FUZZ_RUNS    ?= -1
FUZZ_TARGETS ?=
PIP_INSTALL  := .venv/bin/python -m pip --disable-pip-version-check --no-input install --prefer-binary
CAN_COMPILE  := gcc --version >/dev/null 2>&1 && .venv/bin/python -c 'import os, sys, sysconfig; sys.exit(not os.path.isfile(os.path.join(sysconfig.get_path("include"), "Python.h")))'
LOGGED       := >.venv/pip.log 2>&1 || { cat .venv/pip.log >&2; exit 1; }

# A stamp holds the path of its checkout: programs in .venv/bin know that path, so that
# an environment carried along with a moved checkout has to be made anew.
RUNS     := .venv/.installed-to-run
DEVELOPS := .venv/.installed-to-develop
FUZZES   := .venv/.installed-to-fuzz
WRITES   := .venv/.installed-to-write
MOVED    := $(shell [ ! -e $(RUNS) ] || [ "$$(cat $(RUNS))" = "$$(pwd -P)" ] || echo moved)

# The core as a library: a wheel of this checkout in an environment of its own, never beside the
# sources. Tests come from the checkout, the package from the wheel: so the checkout is last on the
# path, and the current folder is not on it.
COMPILED       := .venv-compiled/.installed-to-test
COMPILED_OF     = hatch_build.py pyproject.toml $(shell find sphtp server client scenarios -type f ! -name '*.pyc')
# Other work goes first.
COMPILE        := SPHTP_COMPILED=1 nice -n 10

.PHONY: help run test compiled test-compiled check check-model chaos soak soak-channel soak-rest soak-fuzz soak-properties fuzz fuzz-keep docs site diagrams pictures photographs format clean remade

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' Makefile

run: $(RUNS) ## Set up, then simulate a gas on two servers and four peers, and verify it
	.venv/bin/sphtp cluster --servers 2 --clients 4 --scenario scenarios/gas.toml --steps 300 --verify
	@echo
	@echo "To see it at work:  .venv/bin/pip install --quiet --editable '.[metrics,top]'"
	@echo "in a browser:       .venv/bin/sphtp cluster --steps 100000 --metrics 9464 --web 9480"
	@echo "in a terminal:      .venv/bin/sphtp top 9464-9469"

test: $(DEVELOPS) ## Set up, then run the quick test suite (under two minutes)
	.venv/bin/python -m pytest $(PYTEST_FLAGS)

compiled: $(COMPILED) ## Install the core compiled with mypyc into .venv-compiled (needs gcc; minutes)

test-compiled: $(COMPILED) ## Run the quick test suite with the core compiled
	SPHTP_COMPILED=1 PYTHONSAFEPATH=1 .venv-compiled/bin/python -m pytest $(PYTEST_FLAGS)

check: $(DEVELOPS) ## Lint, format, types, layers, stale diagrams
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy
	.venv/bin/basedpyright --project pyproject.toml
	.venv/bin/lint-imports
	.venv/bin/python docs/tools/state_machines.py --check

check-model: $(DEVELOPS) ## Explore registration exhaustively: every order of messages and faults in small cases
	.venv/bin/python -m tests.core.control.check_model

soak: soak-channel chaos soak-rest soak-fuzz soak-properties ## Run everything at length, one after the other (hours)

soak-channel: $(DEVELOPS) ## The channel on bad networks: 24 h of loss, wraps, blackouts, stopped readers
	$(SOAK) -m soak tests/soak

chaos: $(DEVELOPS) ## Real processes killed, frozen, cut off, with full disks and wrong clocks
	$(SOAK) -m chaos tests/chaos

soak-rest: $(DEVELOPS) ## Every other test that is long
	$(SOAK) -m soak --ignore=tests/soak --ignore=tests/chaos --ignore=tests/fuzz tests

soak-fuzz: $(DEVELOPS) ## Ten million forged datagrams to each kind of node
	$(SOAK) -m soak tests/fuzz

soak-properties: $(DEVELOPS) ## Every property with 20,000 examples
	HYPOTHESIS_PROFILE=nightly $(SOAK) -m "hypothesis and not soak" --hypothesis-seed=$(SPHTP_SEED) tests

fuzz: $(FUZZES) ## Fuzz every decoder and machine for FUZZ_SECONDS each, or only FUZZ_TARGETS
	.venv/bin/python -m tests.fuzz.run --seconds $(FUZZ_SECONDS) --runs $(FUZZ_RUNS) --targets "$(FUZZ_TARGETS)"

fuzz-keep: $(DEVELOPS) ## Add the best inputs that `make fuzz` has found to the corpus
	.venv/bin/python -m tests.fuzz.keep --targets "$(FUZZ_TARGETS)"

diagrams: $(RUNS) ## Generate docs/reference/state-machines from the tables
	.venv/bin/python docs/tools/state_machines.py

docs: diagrams ## Generate all pages that come from the code: diagrams, commands, manual, latency, pictures
	.venv/bin/python docs/tools/cli_reference.py
	.venv/bin/python docs/tools/manual_pages.py
	.venv/bin/python docs/tools/metrics_reference.py
	.venv/bin/python docs/tools/flavours.py
	.venv/bin/sphtp bench latency --markdown docs/reference/latency.md
	.venv/bin/sphtp bench recovery --markdown docs/reference/recovery.md
	.venv/bin/python docs/tools/pictures.py

pictures: $(RUNS) ## Draw docs/pictures from runs with seeds, and from the tables of benchmarks
	.venv/bin/python docs/tools/pictures.py

photographs: $(DEVELOPS) ## Take the pictures of the README from the page in a browser (needs chromium)
	SPHTP_PICTURES=docs/photographs .venv/bin/python -m pytest -m soak tests/web/test_simulation.py -k pictures

site: $(WRITES) ## Build the documentation into build/site, to be read with a browser
	.venv/bin/python docs/tools/build_site.py

format: $(DEVELOPS) ## Format the code as `make check` requires
	.venv/bin/ruff check --fix .
	.venv/bin/ruff format .

clean: ## Remove .venv, builds and caches
	rm -rf .venv .venv-compiled build dist .fuzz .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(RUNS): pyproject.toml $(if $(MOVED),remade) | .venv/bin/python
	@echo "Installing SphTP and what it needs into .venv ..."
	@$(PIP_INSTALL) --upgrade "pip>=25.1" $(LOGGED)
	@$(PIP_INSTALL) --editable '.[sim]' $(LOGGED)
	@pwd -P > $@

$(DEVELOPS): $(RUNS)
	@echo "Installing the tools for tests and checks into .venv ..."
	@$(PIP_INSTALL) --group test --group check $(LOGGED)
	@echo "Compiling the tests ..."
	@# Once: else each worker of the first run compiles all of them for itself, 8 s of CPU each.
	@.venv/bin/python -m pytest --collect-only -qq >/dev/null 2>&1 || true
	@pwd -P > $@

$(COMPILED): $(DEVELOPS) $(COMPILED_OF)
	@$(CAN_COMPILE) || { echo "Compiling needs gcc and the headers of Python (Debian: gcc, python3-dev)." >&2; exit 1; }
	@echo "Compiling the core, which takes minutes ..."
	@rm -rf .venv-compiled build/wheel
	@$(COMPILE) .venv/bin/python -m build --wheel --outdir build/wheel . $(LOGGED)
	@echo "Installing it into .venv-compiled ..."
	@.venv/bin/python -m venv .venv-compiled
	@.venv-compiled/bin/python -m pip install --quiet --upgrade "pip>=25.1" $(LOGGED)
	@$(subst .venv/,.venv-compiled/,$(PIP_INSTALL)) "$$(echo build/wheel/*.whl)[sim]" --group test $(LOGGED)
	@printf "%s\n" "$$(pwd -P)" "$$(pwd -P)/benchmarks" > "$$(.venv-compiled/bin/python -c 'import site; print(site.getsitepackages()[0])')/checkout.pth"
	@pwd -P > $@

$(FUZZES): $(DEVELOPS)
	@echo "Installing the fuzzer into .venv ..."
	@$(PIP_INSTALL) --group fuzz $(LOGGED)
	@pwd -P > $@

$(WRITES): $(RUNS)
	@echo "Installing the generator of the site into .venv ..."
	@$(PIP_INSTALL) --group site $(LOGGED)
	@pwd -P > $@

remade:
	@echo "This checkout has moved; its environment is made anew."
	@rm -rf .venv
	@$(MAKE) --no-print-directory .venv/bin/python

.venv/bin/python:
	@if [ -n "$(PYTHON)" ]; then set -- "$(PYTHON)"; \
	else set -- python3 python3.13 python3.12 python3.11 python3.14; fi; \
	for python in "$$@"; do \
	  if "$$python" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	    echo "Making .venv with $$("$$python" --version) ($$(command -v "$$python")) ..."; \
	    exec "$$python" -m venv --clear .venv; \
	  fi; \
	done; \
	echo "No Python 3.11 or newer with venv found; tried: $$*." >&2; \
	echo "Install one (Debian: python3 and python3-venv), or name it: make PYTHON=/path/to/python3" >&2; \
	exit 1
