#!/usr/bin/env bash
# Writes the Python stubs of proto/ beside their sources. Run with the dev environment's
# Python as $1. `make stubs-current` fails when what is committed differs.
set -euo pipefail
python=${1:?usage: generate_stubs.sh PYTHON [OUT]}
cd "$(dirname "$0")/.."
out=${2:-proto}
"$python" -m grpc_tools.protoc -I proto \
  --python_out="$out" --pyi_out="$out" --grpc_python_out="$out" \
  proto/tokenwitness/v1/*.proto
