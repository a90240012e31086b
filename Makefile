# Two commands: `make demo` and `make test`. Both set up what they need; `make help` lists the rest.

PYTHON ?= python3
VENV ?= .venv
# The cargo profile of the installed library. Tests use `dev`, so that one set of dependencies is
# compiled.
PROFILE ?= release
# How long `make soak` takes.
SOAK_MINUTES ?= 60
# How long `make fuzz` takes for each target.
FUZZ_SECONDS ?= 600
# What `make versions` tests; what `make test` does besides the newest release: the oldest and the
# candidate; and what runs at night.
VERSIONS ?= 2.16.2 2.17.1 2.18.1 2.19.1 2.20.0 2.21.0 2.22.0rc0
TEST_VERSIONS := 2.16.2 2.22.0rc0
NIGHTLY_VERSIONS := 2.19.1
SOURCES := $(shell find src shaders python -type f -not -name '*.pyc') \
	$(wildcard build.rs proto/*) \
	Cargo.toml Cargo.lock pyproject.toml hatch_build.py README.md \
	THIRD-PARTY-LICENSES.txt tensorflow-wgpu.cdx.json
BIN := $(VENV)/bin
SITE := $(VENV)/lib/python3*/site-packages
HOST = $(shell rustc -vV | sed -n 's/^host: //p')
# The longest tests come last in some files: a process that is done takes tests of the other one.
PYTEST = $(BIN)/python -m pytest --numprocesses 2 --dist worksteal
INSTALLED := $(VENV)/.installed-$(PROFILE)

.DEFAULT_GOAL := help

.PHONY: help
help: ## List the targets.
	@awk -F ':.*## ' '/^[a-z0-9.-]+:.*## / { printf "  make %-22s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: demo
demo: $(INSTALLED) ## Train a CNN on handwritten digits on WGPU and on the CPU, and compare.
	$(BIN)/python demo/demo.py

.PHONY: test
test: ## Every check: format, lints, Rust and Python tests, smoke test on other TensorFlows.
	$(MAKE) setup
	@# Downloads while cargo compiles; its errors come again below.
	$(PYTHON) tools/smoke $(TEST_VERSIONS) --install >$(VENV)/versions.log 2>&1 &
	$(MAKE) lint
	$(MAKE) test-rust
	$(MAKE) suites
	$(MAKE) models
	$(MAKE) test-python PROFILE=dev
	$(MAKE) versions PROFILE=dev VERSIONS="$(TEST_VERSIONS)"

.PHONY: lint
lint: $(VENV)/.setup ## Formats, line widths, imports, lints; the quick ones first. Part of `test`.
	cargo fmt --all --check
	cargo fmt --all --check --manifest-path tests/house/Cargo.toml
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(MAKE) house
	cargo clippy --locked --all-targets -- -D warnings

.PHONY: house
house: ## The project's own rules, such as line widths and layers of imports. Part of `lint`.
	cargo test --locked --quiet --manifest-path tests/house/Cargo.toml --target-dir target/house

.PHONY: test-rust
test-rust: setup ## The Rust tests, without those of `suites`. Part of `test`.
	TENSORFLOW_INCLUDE_DIR="$$(echo $(abspath $(SITE))/tensorflow/include)" cargo test --locked

# SHARD=2/3 takes the second of three parts of the suites and of the Python tests.
SHARD ?= 1/1
SHARD_OF = awk -v shard=$(SHARD) 'BEGIN { split(shard, s, "/") } NR % s[2] == s[1] % s[2]'
# One executable: to link the library into one for each suite takes minutes.
SUITES = $(shell sed -n 's/^mod \(.*\);/\1/p' tests/kit/main.rs | $(SHARD_OF))
# Files of the other parts are ignored: pytest takes a named file even where conftest.py does not.
PYTHON_TESTS = $(shell find tests/python -name 'test_*.py' ! -name test_sweep.py | sort)
OTHER_TESTS = $(filter-out $(shell printf '%s\n' $(PYTHON_TESTS) | $(SHARD_OF)),$(PYTHON_TESTS))
# The sweep is a file of its own; of several parts the last one has it.
SWEEP = $(shell echo tests/python/test_sweep.py | awk -v shard=$(SHARD) \
	'BEGIN { split(shard, s, "/") } s[1] == s[2]')

.PHONY: suites
suites: ## The Rust suites that need an adapter, each in a process of its own. Part of `test`.
	cargo test --locked --no-run --test kit
	for suite in $(SUITES); do \
		echo "== suite $$suite"; \
		cargo test --locked --quiet --test kit -- "$$suite::" || exit 1; \
	done

# Kernels of all kinds whose workgroups work together; tests that count dispatches are left out.
COUNTING := --skip dispatches --skip results_are_the_same_each_time
PARTS_SUITES := scan sort reduce softmax linalg fft random matmul conv rnn fused_attention \
	fused_reduce

.PHONY: suites-in-parts
suites-in-parts: ## Suites with every dispatch cut into three, as long ones are. Nightly in CI.
	cargo test --locked --no-run --test kit
	for suite in $(PARTS_SUITES); do \
		echo "== suite $$suite in parts"; \
		TF_WGPU_PARTS=3 cargo test --locked --quiet --test kit -- "$$suite::" $(COUNTING) || \
			exit 1; \
	done

.PHONY: models
models: ## The device's threads in every order that a scheduler finds. Part of `test`.
	cargo run --locked --quiet --manifest-path tests/concurrency/Cargo.toml \
		--target-dir target/concurrency

# The tests that run a second time without regions: on each change, and at night.
WITHOUT_REGIONS = $(addprefix tests/python/test_,$(addsuffix .py,\
	graph_optimizer optimizer_update recurrent_cells))
NIGHTLY_WITHOUT_REGIONS = $(addprefix tests/python/test_,$(addsuffix .py,\
	beam_search errors generation keras loops lora models random rounding variables workflows))
# The tests that run once more without staging buffers, at night.
NIGHTLY_WITHOUT_STAGING = $(addprefix tests/python/test_,$(addsuffix .py,\
	distribute errors generation keras prefetch process regions variables))

.PHONY: test-python
test-python: install ## The Python tests on TensorFlow 2.21; the sweep first. Part of `test`.
	$(if $(SWEEP),$(PYTEST) -m "not nightly" $(SWEEP))
	$(PYTEST) -m "not nightly" --durations 40 \
		--ignore tests/python/test_sweep.py $(addprefix --ignore=,$(OTHER_TESTS))
	$(if $(SWEEP),TF_WGPU_CAPTURE=off $(PYTEST) -m "not nightly" $(WITHOUT_REGIONS))

.PHONY: test-nightly
test-nightly: install ## The Python tests that `test` leaves out: faults, clusters, pairs.
	$(PYTEST) -m nightly
	TF_WGPU_CAPTURE=off $(PYTEST) $(NIGHTLY_WITHOUT_REGIONS)
	TF_WGPU_STAGING=off $(PYTEST) -m "not nightly" $(NIGHTLY_WITHOUT_STAGING)
	$(MAKE) versions VERSIONS="$(NIGHTLY_VERSIONS)"

.PHONY: sweep
sweep: install ## The longer sweep: every kernel in large shapes too, all of Keras's applications.
	TF_WGPU_SWEEP=long $(PYTEST) \
		tests/python/test_sweep.py tests/python/test_models.py

.PHONY: soak
soak: install ## Train in two processes for SOAK_MINUTES (60); what they hold must not grow.
	$(BIN)/python tests/soak --minutes $(SOAK_MINUTES)

.PHONY: versions
versions: wheel ## The smoke test on every supported TensorFlow, or VERSIONS="2.19.1 2.22.0rc0".
	$(PYTHON) tools/smoke $(VERSIONS) --wheel dist/$(PROFILE)/*.whl

.PHONY: profiles
profiles: install wheel ## Profiles of ResNet50 and a transformer on VERSIONS through TensorBoard.
	$(BIN)/python tools/profiles $(VERSIONS) --wheel dist/$(PROFILE)/*.whl

.PHONY: keras-tests
keras-tests: install ## Keras's own tests: none may fail on WGPU alone. Hours; can be resumed.
	$(BIN)/python -m pip install --quiet jax grain # Ten files import them.
	$(BIN)/python tools/keras-tests

.PHONY: packages
packages: install ## Tests of others' packages, and programs: none may fail on WGPU alone. Hours.
	$(BIN)/python tools/packages --ledger tools/packages/ledger.json --write docs/PACKAGES.md

.PHONY: packages-sample
packages-sample: install ## A fixed sample of the same, of about ten minutes. Nightly in CI.
	$(BIN)/python tools/packages --sample --fresh --minutes 6 --process 240

.PHONY: drivers-suites
drivers-suites: ## The Rust suite on other Vulkan drivers and under every preset. Hours.
	$(PYTHON) tools/drivers/suites.py

.PHONY: drivers-suites-sample
drivers-suites-sample: ## A few suites of drivers-suites. Nightly in CI; Debian 12 on x86-64.
	$(PYTHON) tools/drivers/suites.py --sample

.PHONY: faults
faults: install ## The walk over Vulkan faults: failed calls, crashes, refused shaders, late fences.
	TF_WGPU_FAULTS=all cargo test --locked --test faults
	TF_WGPU_FAULTS=all $(PYTEST) $(addprefix tests/python/test_, \
		faults.py left_out.py refusals.py each_refusal.py)

# Failing allocations are tested, and resident memory.
ASAN := ASAN_OPTIONS=allocator_may_return_null=1:quarantine_size_mb=8 \
	LSAN_OPTIONS=suppressions=$(CURDIR)/tests/lsan.txt \
	RUSTFLAGS="-Zsanitizer=address -Clink-arg=-rdynamic"

.PHONY: drivers
drivers: ## Every shader through the compilers of 17 GPUs and of DX12; writes docs/DRIVERS.md.
	cargo build --locked --example compile
	$(PYTHON) tools/drivers --write docs/DRIVERS.md

.PHONY: drivers-sample
drivers-sample: ## A fixed sample of the same, without Intel. Nightly in CI; Debian 12 on x86-64.
	cargo build --locked --example compile
	$(PYTHON) tools/drivers --sample

LIMITS_TABLE := tools/limits/table.jsonl

.PHONY: limits
limits: ## What compilers of GPUs make of the rows of benches/kernels; writes docs/LIMITS.md.
	cargo build --locked --example kernels
	$(PYTHON) tools/limits --json $(LIMITS_TABLE) --write docs/LIMITS.md

.PHONY: limits-sample
limits-sample: ## A fixed sample of the same: no loop may be worse than stored. Nightly in CI.
	cargo build --locked --example kernels
	$(PYTHON) tools/limits --sample --compare

.PHONY: tuning
tuning: ## Candidates of tiles through compilers of GPUs; writes the table of tuned choices.
	cargo build --locked --example kernels
	$(PYTHON) tools/tuning bounds
	$(PYTHON) tools/tuning merge

.PHONY: asan
asan: ## The tests of the C boundary under the address and leak sanitizers. Nightly in CI; Linux.
	@# The stable compiler has the sanitizers behind a switch. They forbid RTLD_DEEPBIND.
	RUSTC_BOOTSTRAP=1 $(ASAN) cargo test --locked --profile asan \
		--target $(HOST) --target-dir target/asan --lib --test stream_executor \
		-- --skip vulkan_driver::shield

# The oldest Rust that Cargo.toml promises.
MSRV = $(shell sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)

.PHONY: msrv
msrv: ## Compile the library with the oldest supported Rust. Needs rustup. Nightly in CI.
	rustup toolchain install --profile minimal $(MSRV)
	cargo +$(MSRV) check --locked --lib --target-dir target/msrv

.PHONY: fuzz
fuzz: install ## Fuzz the optimizer, FUZZ_SECONDS (600) a target. Needs nightly and cargo-fuzz.
	test -d fuzz/corpus || $(BIN)/python fuzz/corpus.py
	for target in graph_def graph_text; do \
		cargo +nightly fuzz run --sanitizer none $$target -- \
			-max_total_time=$(FUZZ_SECONDS) -max_len=200000 -timeout=20 -print_final_stats=1 || exit 1; \
	done

.PHONY: gpu-kit
gpu-kit: ## One archive for a machine that has a GPU's driver and nothing else: docs/GPU-KIT.md.
	$(PYTHON) tools/gpu-kit/build --profile $(PROFILE)

.PHONY: gpu-kit-check
gpu-kit-check: ## The short form of that archive, from an empty directory. Part of CI.
	$(PYTHON) tools/gpu-kit/build --profile dev --output dist/gpu-kit-dev.tar.gz
	$(PYTHON) tools/gpu-kit/check dist/gpu-kit-dev.tar.gz

# Which of tools/wheels's systems get a wheel; all without it.
SYSTEMS ?=

.PHONY: wheels
wheels: ## The wheels for Linux, Windows and macOS, built and checked here: docs/PLATFORMS.md.
	$(PYTHON) tools/wheels $(SYSTEMS) --profile $(PROFILE)

.PHONY: wine
wine: ## Load the wheel for Windows by Wine and run kernels on its adapters. After `wheels`.
	$(PYTHON) tools/wheels/wine.py

.PHONY: roots
roots: setup ## The Python tests with the wheel in fresh Debian 12 and Ubuntu 24.04. Root.
	tools/roots debian-12 ubuntu-24.04

.PHONY: windows
windows: setup ## The crate's tests, and TensorFlow for Windows with the wheel, under Wine. Root.
	$(BIN)/python tools/windows rust
	$(BIN)/python tools/windows python

.PHONY: arm
arm: ## A sample of the crate's tests for Linux on aarch64, under QEMU. Root.
	tools/arm

.PHONY: platforms
platforms: ## What TensorFlow's wheels export on each system; writes docs/PLATFORMS.md. 13 GB.
	$(PYTHON) tools/wheels --platforms

.PHONY: doctor
doctor: install ## What works on this machine, and what to do about the rest.
	$(BIN)/python -m tensorflow_wgpu

.PHONY: wheel
wheel: dist/$(PROFILE)/.built ## Build the wheel into dist/release; with PROFILE=dev into dist/dev.

.PHONY: install
install: setup $(INSTALLED) ## Build the wheel and install it into .venv.

.PHONY: setup
setup: $(VENV)/.setup vulkan ## Make .venv with TensorFlow and the tools; check for a Vulkan driver.

.PHONY: vulkan
vulkan:
	@tools/system-packages vulkan

.PHONY: fmt
fmt: setup ## Format Rust and Python.
	cargo fmt --all
	cargo fmt --all --manifest-path tests/house/Cargo.toml
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

.PHONY: docs
docs: ## Write docs/OPS.md from the registry, and docs/API.md from the package.
	$(PYTHON) docs/make_api_page.py
	cargo run --locked --quiet --example ops_table > docs/OPS.md.new
	mv docs/OPS.md.new docs/OPS.md

.PHONY: licenses
licenses: ## THIRD-PARTY-LICENSES.txt and the SBOM, anew from Cargo.lock. Compiles its tools once.
	$(PYTHON) tools/licenses

.PHONY: site
site: setup ## The documentation as a site with search, into target/site.
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --config-file tools/site/mkdocs.yml

# What the demo needs. The tests need more tools.
$(VENV)/.setup-demo: requirements-demo.txt
	@tools/system-packages python "$(PYTHON)"
	$(PYTHON) -m venv $(VENV)
	@echo "Installing TensorFlow into $(VENV): downloads 700 MB, takes one to three minutes."
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --requirement requirements-demo.txt
	@touch $@

$(VENV)/.setup: requirements-dev.txt $(VENV)/.setup-demo
	@echo "Installing the tools of the tests into $(VENV): takes one to two minutes."
	$(BIN)/python -m pip install --quiet --requirement requirements-dev.txt
	@touch $@

dist/$(PROFILE)/.built: $(SOURCES) | $(VENV)/.setup-demo vulkan
	rm -rf dist/$(PROFILE)
	@echo "Compiling the plug-in. The first time takes five to ten minutes on two cores, without a"
	@echo "word of the compiler: pip says 'Preparing metadata' meanwhile."
	TF_WGPU_CARGO_PROFILE=$(PROFILE) $(BIN)/python -m pip wheel --no-deps --wheel-dir dist/$(PROFILE) .
	@touch $@

$(INSTALLED): dist/$(PROFILE)/.built
	rm -f $(VENV)/.installed-*
	$(BIN)/python -m pip install --quiet --no-deps --force-reinstall dist/$(PROFILE)/*.whl
	@touch $@
