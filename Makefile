# The commands of the project; what they do lies in tools/.
PYTHON ?= python3
export PYTHON

.DEFAULT_GOAL := help
.PHONY: help demo test venv lint types stubs stubs-current contract contract-release unit \
	engine-env criu model engines e2e format

help:  ## This list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-17s %s\n", $$1, $$2}' Makefile

demo:  ## Record, dump, restore and judge a real engine; then again with one bit flipped (root)
	tools/system_packages.sh
	tools/dev_env.sh run >/dev/null
	.venv/bin/python -m tools.demo

test:  ## Everything: lint, types, contract, unit, real engine, end to end through CRIU (root)
	tools/test_all.sh

venv:  ## The developers' environment in .venv
	tools/dev_env.sh test

engine-env:  ## The real engine's environment; prints its Python
	@tools/engine_env.sh vllm

criu:  ## A CRIU that is new enough; prints its path
	@tools/build_criu.sh

model:  ## The small model of the demo; prints its folder
	@"$$(tools/engine_env.sh vllm)" tools/make_model.py \
		"$${TOKENWITNESS_CACHE:-$${XDG_CACHE_HOME:-$$HOME/.cache}/tokenwitness}/models/smollm2-135m-bfloat16"

stubs:  ## Writes the Python stubs of the wire contract
	tools/generate_stubs.sh .venv/bin/python

contract-release:  ## Makes the contract of now the one that later changes must not break
	.venv/bin/buf build --exclude-source-info -o proto/buf-image.binpb

format:  ## Formats the Python files
	.venv/bin/ruff format .
	.venv/bin/ruff check --fix .

# One stage of `make test`.
lint types contract unit engines e2e: venv
	tools/test_all.sh $@

stubs-current: venv
	tools/test_all.sh stubs
