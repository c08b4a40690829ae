# `make demo` and `make test` set up what they need on a fresh machine; `make dist` makes what is published,
# `make docs` the book.
.PHONY: demo demo-service test check fmt lint bench docs recording setup build dist

CARGO ?= cargo
export SCRIPTS := $(CURDIR)/scripts

build:
	$(CARGO) build --release --locked

# An engine and the few programs that are no Rust crates.
setup:
	sh scripts/setup.sh

demo: setup build
	sh scripts/demo.sh

# The example service: built, started, and called over HTTP.
demo-service: setup build
	sh scripts/demo-service.sh

test:
	sh scripts/setup.sh tests
	sh scripts/test.sh

# What is quick and needs neither an engine nor the network: before each commit.
check:
	sh scripts/check.sh

fmt:
	$(CARGO) fmt --all

lint:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked --all-targets -- -D warnings

bench: setup build
	sh benches/run.sh

# Programs, wheels, Debian packages, an SBOM and checksums for publishing, in target/dist.
dist:
	sh scripts/dist.sh

docs: build
	sh scripts/docs.sh

# The picture of README.
recording: build
	sh scripts/recording.sh
