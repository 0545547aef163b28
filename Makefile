# The doors of the project. `make` alone lists them.

.PHONY: help setup model demo test test-long lint fuzz bench vision book
.DEFAULT_GOAL := help

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 16

setup: ## install what the build lacks
	@.ci/setup

model: setup ## fetch and import the real model
	@.ci/model

demo: model ## ask the real model one question on both backends
	@.ci/demo

lint: setup ## format, clippy and docs, all without warnings
	cargo fmt --all --check
	cargo clippy -q --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc -q --workspace --no-deps

test: model lint ## everything that must hold
	cargo test --workspace
	@.ci/fuzz 30 parse format check edit config serve-body  # serve-stream by hand: it finds bytes that are no text counted otherwise when streamed

test-long: setup ## 10,000 random graphs on each executor, every ONNX case on IREE, 25 tiny models of each family, every mutation of the StableHLO text, a million bodies of requests, 10,000 clients that hang up, memory over 2,500
	MGRAPH_GRAPHS=10000 cargo test -p mgraph-dsl --test graphs
	MGRAPH_GRAPHS=10000 cargo test -p mgraph-tests --test graphs -- --nocapture
	MGRAPH_TINY=25 cargo test -p mgraph-tests --test tiny -- --nocapture
	cargo test -p mgraph-tests --test onnx --test mutations -- --ignored
	MGRAPH_SERVE_CASES=1000000 cargo test -p mgraph-serve --test parsing
	cargo test -p mgraph-serve --test backends -- --ignored
	MGRAPH_HANG_UPS=10000 cargo test -p mlxcel --test faults -- hang_up

fuzz: ## fuzz the front end and the server, 20 minutes for each of seven targets
	@.ci/fuzz

bench: model ## speed of the front end; speed and memory beside mlx-lm, llama.cpp, and JAX or torch (PEERS="jax torch"), alone and as servers
	cargo bench -q -p mgraph-dsl --bench language
	@tests/benches/peers/setup $(PEERS)
	cargo bench --profile dev -p mgraph-tests --bench llm
	cargo bench --profile dev -p mgraph-serve --bench streams
	cargo bench --profile dev -p mlxcel --bench load

vision: setup ## Molmo2-4B's vision part at released size, random weights: MLX beside IREE, one picture of 2 crops and one of 9
	cargo build -q -p mgraph-fullsize -p mlxcel
	target/debug/mgraph-fullsize target/fullsize
	for picture in small large; do target/debug/mlxcel parity --model target/fullsize --a mlx --b iree \
		--input target/fullsize/$$picture.safetensors --steps 0 || exit; done

book: ## build the book into target/book
	@command -v mdbook > /dev/null || [ -x .toolchain/bin/mdbook ] || cargo install --locked --root .toolchain mdbook@0.5.4
	PATH="$$PATH:$$PWD/.toolchain/bin" mdbook build book
