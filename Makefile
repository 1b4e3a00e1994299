# The commands of a working day. Everything is built under build/.
.PHONY: help demo test test-long test-cuda bench bench-cuda setup-ascend format clean

help:
	@echo "make demo       install what is missing, build, run the main job on a recorded trace (3 minutes at most)"
	@echo "make test       everything that must hold (about 45 minutes on 2 cores)"
	@echo "make test-long  the long tests, and aarch64 under qemu"
	@echo "make bench      measure; ARGS=\"--model mixtral-8x7b\" narrows, NAME=... names bench/results/NAME.json"
	@echo "make test-cuda  the cuda backend on a GPU here; runs build/cuda/bin if it is there, else builds it"
	@echo "make bench-cuda measure it beside torch; ARGS=\"--filter decode\" narrows"
	@echo "make setup-ascend  install what the checks of the Triton-Ascend kernels need (.venv-ascend, 1.7 GB)"
	@echo "make format     format the sources, then check every file"
	@echo "make clean      delete build/"

demo:
	@scripts/setup.sh demo
	@cmake --preset release
	@cmake --build --preset release
	@build/release/bin/binmoe demo

test:
	@scripts/setup.sh all
	@scripts/test.sh

test-long:
	@scripts/setup.sh all
	@scripts/stage.sh long
	@scripts/stage.sh aarch64

bench:
	@scripts/setup.sh all
	@BENCH_NAME="$(NAME)" scripts/bench.sh $(ARGS)

test-cuda:
	@scripts/cuda.sh test $(ARGS)

bench-cuda:
	@scripts/cuda.sh bench $(ARGS)

setup-ascend:
	@scripts/setup.sh ascend

format:
	@scripts/check_format.sh --fix

clean:
	rm -rf build
