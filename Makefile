# Everything is made from the lock files and is incremental: a stamp is older than what it depends on, or the step runs.

PYTHON ?= python3
FUZZ_SECONDS ?= 60
CARGO_FUZZ_VERSION := 0.13.2
UV_VERSION := 0.13.7

PY := .venv/bin/python
DEV := .venv/.stamp-dev
NATIVE := .venv/.stamp-native
TORCH := .venv/.stamp-torch
BENCH := .venv-bench/.stamp-bench
BENCH_WHEEL := .venv-bench/.stamp-wheel
SPARK3 := .venv-spark3/.stamp-spark3
SPARK35 := .venv-spark35/.stamp-spark35
PY35 := .venv-spark35/bin/python
DOCS := .venv-docs/.stamp-docs
DEMO := .venv-demo/.stamp-demo
WHEEL := target/dist/.stamp-wheel
CARGO_FUZZ := target/tools/bin/cargo-fuzz
UV := target/uv/bin/uv
UV_INSTALL = $(UV) pip install --quiet --no-deps --compile-bytecode
# As pip does: the certificates of the machine hold those of a company's proxy, uv's own do not.
export UV_SYSTEM_CERTS := true
# Tests wait for processes and deadlines more than they compute: files of them run beside each other.
TEST_PROCESSES ?= 2
# For all benchmarks together, on a machine where nothing else runs; what is left of it limits each.
SMOKE_SECONDS ?= 240
# Every script of bench/ that is run by itself, as it is found, so that none is forgotten.
BENCHES ?= $(shell grep -l __main__ bench/*.py)

# All files under crates/, not only *.rs: pages and texts are compiled in.
RUST_SOURCES := $(shell find crates -type f) Cargo.toml $(wildcard Cargo.lock) pyproject.toml
PYTHON_SOURCES := $(shell find python -name '*.py' -o -name '*.pyi' -o -name py.typed)
PYTHON_FOLDERS := $(wildcard python tests examples bench scripts docs crates/grampus-chaos/drivers)

.DELETE_ON_ERROR:
.PHONY: help demo test test-full test-rust test-python test-spark test-spark35 test-spark35-quick test-ray prepare test-needs check fuzz chaos docs lock clean
.PHONY: bench bench-collective bench-ddp bench-train bench-goodput bench-data bench-instructions bench-native bench-rust bench-build bench-spark bench-ray bench-smoke

help: ## show this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 28

demo: $(DEMO) ## train on two workers, with an optimised build; .venv-demo runs the other examples, too
	.venv-demo/bin/python examples/fashion_mnist.py --batch-size 32 --lr 0.008 --epochs 3

test: test-rust test-python test-spark35-quick ## run all tests but those that take minutes

test-full: test-rust $(NATIVE) $(TORCH) test-spark35 ## run all tests, and those that take minutes
	$(PY) -m pytest tests -m "" -n $(TEST_PROCESSES)

test-rust: test-needs ## run the Rust tests and the examples in the Rust documentation
	cargo test --workspace

test-python: $(NATIVE) $(TORCH) test-needs ## run the Python tests, those on Spark and Ray among them
	$(PY) -m pytest tests -n $(TEST_PROCESSES)

test-spark: $(NATIVE) $(TORCH) test-needs ## run the tests on a real Spark
	$(PY) -m pytest tests/on_spark -n $(TEST_PROCESSES)

test-spark35: $(NATIVE) $(SPARK35) test-needs ## run the same tests on Spark 3.5
	$(PY35) -m pytest tests/on_spark -m ""

# Those that are marked so: what differs between the versions, and a run that loses an executor.
test-spark35-quick: $(NATIVE) $(SPARK35) test-needs
	$(PY35) -m pytest tests/on_spark -m "spark35 and not slow"

test-ray: $(NATIVE) $(TORCH) test-needs ## run the tests on a real Ray
	$(PY) -m pytest tests/on_ray

test-needs: # or the tests that need them are skipped, with the reason
	@scripts/install_test_needs.sh

prepare: $(TORCH) ## compile what the tests need, while their packages are installed (make -j2 prepare)
prepare: rust-tests
.PHONY: rust-tests
rust-tests:
	cargo test --workspace --no-run --quiet

check: $(NATIVE) ## format, lints, layering, sizes and types, cheapest first
	cargo metadata --locked --format-version 1 > target/metadata.json
	cargo fmt --all --check
	.venv/bin/ruff format --check $(PYTHON_FOLDERS)
	.venv/bin/ruff check $(PYTHON_FOLDERS)
	$(PY) scripts/check_layering.py
	$(PY) scripts/check_sizes.py
	cargo clippy --workspace --all-targets -- -D warnings
	.venv/bin/mypy
	$(PY) -m mypy.stubtest --mypy-config-file pyproject.toml grampus._native

fuzz: $(CARGO_FUZZ) ## run every fuzz target for FUZZ_SECONDS (60)
	@command -v c++ > /dev/null || { echo "the fuzzer needs a C++ compiler: install g++ or clang" >&2; exit 1; }
	@set -e; for target in $$($(CARGO_FUZZ) fuzz list --fuzz-dir fuzz); do \
		echo "fuzzing $$target for $(FUZZ_SECONDS) s"; \
		mkdir -p fuzz/corpus/$$target; \
		seeds=; if [ -d fuzz/seeds/$$target ]; then seeds=fuzz/seeds/$$target; fi; \
		$(CARGO_FUZZ) fuzz run --fuzz-dir fuzz --sanitizer none $$target fuzz/corpus/$$target $$seeds \
			-- -max_total_time=$(FUZZ_SECONDS) -print_final_stats=1; \
	done

chaos: $(NATIVE) $(TORCH) ## disturb real runs and print what that cost (CHAOS_ARGS="--hosts 2x2 --faults 300 --seed 1")
	cargo build --workspace --bin grampus-chaos
	target/debug/grampus-chaos --python $(PY) $(CHAOS_ARGS)

bench: $(BENCH_WHEEL) ## time start-up against torchrun, Ray and multiprocessing (BENCH_ARGS="--only …")
	.venv-bench/bin/python bench/startup.py $(BENCH_ARGS)

bench-collective: $(BENCH_WHEEL) ## time all-reduce against Gloo and OpenMPI (BENCH_ARGS="--procs 4")
	.venv-bench/bin/python bench/collective.py $(BENCH_ARGS)

bench-ddp: $(BENCH_WHEEL) ## time DDP on LeNet-5 with Gloo, with Grampus and without any
	.venv-bench/bin/python bench/ddp_lenet.py $(BENCH_ARGS)

bench-train: $(BENCH_WHEEL) ## time training against torchrun, Lightning, Ray Train and TorchDistributor
	.venv-bench/bin/python bench/train.py $(BENCH_ARGS)

bench-goodput: $(BENCH_WHEEL) ## count what gets trained while workers are killed, beside torchrun
	.venv-bench/bin/python bench/goodput.py $(BENCH_ARGS)

bench-data: $(BENCH_WHEEL) ## time reading against pandas, polars, Ray Data and torch loaders (BENCH_ARGS="--images DIR" for your own)
	.venv-bench/bin/python bench/data.py $(BENCH_ARGS)

bench-spark: $(BENCH_WHEEL) $(SPARK3) ## time training and predictions on Spark against TorchDistributor, Petastorm and Orca
	.venv-bench/bin/python bench/spark.py $(BENCH_ARGS)

bench-ray: $(BENCH_WHEEL) ## time start and predictions on Ray against Ray Train and Ray Data
	.venv-bench/bin/python bench/ray.py $(BENCH_ARGS)

bench-native: $(BENCH_WHEEL) ## time native models against PyTorch, on one thread
	.venv-bench/bin/python bench/native.py $(BENCH_ARGS)

bench-rust: $(BENCH) ## time a program in Rust against PyTorch DDP, and against itself without sync
	.venv-bench/bin/python bench/rust.py $(BENCH_ARGS)

bench-smoke: $(NATIVE) $(TORCH) rust-tests ## run every benchmark once, at its smallest, to see that it works
	@failed=; times=; began=$$(date +%s); \
	for script in $(BENCHES); do \
		echo "==> $$script --smoke"; now=$$(date +%s); status=0; left=$$((began + $(SMOKE_SECONDS) - now)); \
		if [ $$left -gt 0 ]; then timeout --kill-after=10 $$left $(PY) $$script --smoke || status=$$?; else status=124; fi; \
		test $$status = 0 || failed="$$failed $$script"; \
		times="$$times$$(($$(date +%s) - now)) s, status $$status: $$script\n"; \
	done; \
	printf "$$times$$(($$(date +%s) - began)) s of $(SMOKE_SECONDS) s (SMOKE_SECONDS) for all; status 124: no time was left\n"; \
	test -z "$$failed" || { echo "failed:$$failed" >&2; exit 1; }

bench-build: ## time a first build of a program in Rust, and weigh its binary
	$(PYTHON) bench/build.py

bench-instructions: ## hold the instructions of the hot loops against bench/instructions.json (needs valgrind)
	$(PYTHON) bench/instructions.py $(BENCH_ARGS)

docs: $(DOCS) $(NATIVE) ## build the documentation into target/docs and target/doc
	.venv-docs/bin/sphinx-build -W --keep-going -q -d target/doctrees docs target/docs
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps
	@echo "target/docs/index.html and target/doc/"

LOCK = $(UV) pip compile --quiet --universal --python-version 3.10 --generate-hashes \
	--no-emit-find-links --custom-compile-command "make lock" requirements/$(1).in -o requirements/$(1).lock

lock: $(UV) ## write requirements/*.lock anew from requirements/*.in
	$(call LOCK,torch) --excludes requirements/torch.exclude
	$(call LOCK,dev) --excludes requirements/gpu.exclude --no-emit-package torch
	$(call LOCK,bench) --excludes requirements/gpu.exclude --no-emit-package torch
	$(call LOCK,docs)
	$(call LOCK,demo) --excludes requirements/gpu.exclude --no-emit-package torch -c requirements/dev.lock
	$(call LOCK,spark3) --no-deps
	$(call LOCK,spark35) --excludes requirements/gpu.exclude --no-emit-package torch

clean: ## remove all that was built
	rm -rf target fuzz/target .venv .venv-bench .venv-demo .venv-docs .venv-spark3 .venv-spark35
	find python tests examples bench scripts docs -name __pycache__ -prune -exec rm -rf {} + 2> /dev/null || true
	rm -f python/grampus/*.so

# $(call venv,FOLDER,LOCK): a fresh environment that holds what the lock file names and nothing else.
define venv
	@$(PYTHON) -c 'import sys; sys.exit("Grampus needs Python 3.10 or newer: call make PYTHON=/path/to/python3" if sys.version_info < (3, 10) else 0)'
	@echo "making $(1) from $(2)"
	@$(PYTHON) -m venv --clear $(1) || { echo "no virtual environment: install the venv module (python3-venv)" >&2; exit 1; }
	@$(UV_INSTALL) --python $(1) --require-hashes -r $(2)
endef

# $(call torch,FOLDER): torch, as small as it can be had. Its own index has builds for CPUs, which only their version pins;
# where it cannot be reached, it is PyPI's build with those CUDA libraries that `import torch` loads (4 GB).
define torch
	@echo "adding torch to $(1)"
	@UV_HTTP_RETRIES=0 UV_HTTP_CONNECT_TIMEOUT=5 $(UV_INSTALL) --python $(1) \
		--index-url https://download.pytorch.org/whl/cpu -r requirements/torch.in 2> /dev/null \
	|| $(UV_INSTALL) --python $(1) --require-hashes -r requirements/torch.lock
endef

$(DEV): requirements/dev.lock | $(UV)
	$(call venv,.venv,$<)
	@touch $@

$(TORCH): requirements/torch.lock $(DEV) | $(UV)
	$(call torch,.venv)
	@touch $@

$(BENCH): requirements/bench.lock requirements/torch.lock | $(UV)
	$(call venv,.venv-bench,$<)
	$(call torch,.venv-bench)
	@touch $@

$(SPARK3): requirements/spark3.lock requirements/torch.lock | $(UV)
	$(call venv,.venv-spark3,$<)
	$(call torch,.venv-spark3)
	@touch $@

$(SPARK35): requirements/spark35.lock requirements/torch.lock | $(UV)
	$(call venv,.venv-spark35,$<)
	$(call torch,.venv-spark35)
	@echo $(CURDIR)/python > $$(.venv-spark35/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/grampus.pth
	@touch $@

$(DOCS): requirements/docs.lock | $(UV)
	$(call venv,.venv-docs,$<)
	@touch $@

# With the profile of the tests, which share what it takes minutes to compile; a wheel is a release.
$(NATIVE): $(DEV) $(RUST_SOURCES)
	VIRTUAL_ENV=$(CURDIR)/.venv .venv/bin/maturin develop --quiet
	@touch $@

# What users install: optimised, which a build for tests is not.
$(WHEEL): $(RUST_SOURCES) $(PYTHON_SOURCES) | $(UV)
	@echo "compiling an optimised build; the first takes some minutes"
	rm -rf target/dist
	$(UV) build --wheel --python $(PYTHON) --out-dir target/dist
	@touch $@

$(BENCH_WHEEL): $(BENCH) $(WHEEL)
	$(UV_INSTALL) --python .venv-bench --reinstall target/dist/*.whl
	@touch $@

$(DEMO): requirements/demo.lock $(WHEEL) | $(UV)
	$(call venv,.venv-demo,$<)
	$(call torch,.venv-demo)
	$(UV_INSTALL) --python .venv-demo target/dist/*.whl
	@touch $@

$(CARGO_FUZZ):
	cargo install --locked --root target/tools cargo-fuzz@$(CARGO_FUZZ_VERSION)

$(UV):
	@$(PYTHON) -m venv target/uv || { echo "no virtual environment: install the venv module (python3-venv)" >&2; exit 1; }
	@target/uv/bin/python -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)
