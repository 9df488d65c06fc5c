# Every way in to build, try and check Weir. `make` alone lists them.

CARGO ?= cargo
BINARIES := $(or $(CARGO_TARGET_DIR),target)/release
DEPLOYED := $(or $(CARGO_TARGET_DIR),target)/profiled

# Folders of recorded data that some tests read when these are set; those tests run in their crate's folder, so the
# paths are absolute. make hands its environment and its command line on to the programs it starts.
DATA_FOLDERS := WEIR_TRACES WEIR_VECTORS WEIR_CALIBRATION

.DEFAULT_GOAL := help
.PHONY: help native build profiled demo lab guard instructions test vllm lint bench bench-peers clean-native need-cargo need-absolute-data-folders need-valgrind

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

native: ## download and verify the native libraries into .native/ (needs python3 with pip)
	@deploy/native/fetch.sh

build: need-cargo ## build the release binaries into target/release/
	$(CARGO) build --release --locked --bins

profiled: need-cargo native ## build weir as it is deployed, arranged by a run under load, into target/profiled/
	$(CARGO) build --release --locked --package weir-bench --bins
	CARGO="$(CARGO)" deploy/profiled.sh $(BINARIES)/weir-bench

demo: need-cargo native ## run the demo; KEEP=1 leaves it running, POLICY=<name> chooses the policy, POOL=mixed two GPU types
	$(CARGO) build --release --locked --package weir --package weir-bench --bins
	$(BINARIES)/weir-bench demo $(if $(KEEP),--keep) $(if $(POLICY),--policy $(POLICY)) $(if $(POOL),--pool $(POOL))

lab: need-cargo native ## run the lab (under 40 minutes on two cores): target/lab/summary.json and report.html; replays the traces in WEIR_TRACES if set
	$(CARGO) build --release --locked --package weir-bench --bins
	$(BINARIES)/weir-bench lab $(LAB)

guard: need-cargo ## fail when Weir's goodput against its best rival has fallen (under five minutes); GUARD=--renew stores it
	$(CARGO) build --release --locked --package weir-bench --bins
	$(BINARIES)/weir-bench guard $(GUARD)

instructions: need-cargo need-valgrind ## fail when a decision, a request or a token takes more instructions than are stored (under five minutes); INSTRUCTIONS=--renew stores them
	$(CARGO) build --release --locked --package weir --package weir-bench --bins
	$(BINARIES)/weir-bench instructions $(INSTRUCTIONS)

test: need-cargo need-absolute-data-folders native ## run every test; reads the folders WEIR_TRACES, WEIR_VECTORS, WEIR_CALIBRATION if set
	$(CARGO) test --workspace --locked

vllm: need-cargo ## install a real vLLM for CPUs into .vllm/ (some 7 GB) and run the scenarios that need one
	tests/vllm/install.sh
	WEIR_VLLM="$(CURDIR)/.vllm" $(CARGO) test --locked --package weir-tests --test real_vllm --test real_vllm_pods -- --test-threads 1 --nocapture

lint: need-cargo ## formatting, clippy, rustdoc, and cargo-deny where it is installed
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --locked
	@if $(CARGO) deny --version >/dev/null 2>&1; then $(CARGO) deny --locked check; \
	else echo "lint: skipped cargo-deny, which is not installed: cargo install --locked cargo-deny"; fi

bench: need-cargo native ## run the workspace's benches
	$(CARGO) bench --workspace --locked

bench-peers: profiled ## measure the hop beside nginx, haproxy, envoy and the routers (under 15 minutes after the build; installs them); PEERS=--rounds\ 3
	$(BINARIES)/weir-bench peers --weir $(DEPLOYED)/weir $(PEERS)

clean-native: ## remove .native/
	rm -rf .native

need-cargo:
	@command -v $(CARGO) >/dev/null 2>&1 || \
	{ echo "make: $(CARGO) not found: install Rust, version as in Cargo.toml or newer" >&2; exit 1; }

need-absolute-data-folders:
	$(foreach name,$(DATA_FOLDERS),$(if $($(name)),$(if $(filter /%,$($(name))),,\
	$(error $(name) must be an absolute path, not $($(name))))))

# Tried where it can be installed without asking anybody; without it the guard says that it counted nothing.
need-valgrind:
	@command -v valgrind >/dev/null 2>&1 || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1 \
	&& apt-get install -y -qq --no-install-recommends valgrind >/dev/null 2>&1; } || true
