#!/usr/bin/env bash
# Gradescope runs this once, as root on Ubuntu, while it builds the container.
set -euo pipefail
top=${AUTOGRADER:-/autograder}
export DEBIAN_FRONTEND=noninteractive
apt-get update
apt-get install -y bubblewrap libseccomp2
for python in python3.13 python3.12 python3.11; do      # the course needs 3.11
    if apt-get install -y "$python" "$python-venv"; then break; fi
done
"$python" -m venv "$top/venv"
# torch for the CPU, which spares gigabytes
"$top/venv/bin/python" -m pip install --no-cache-dir --index-url https://download.pytorch.org/whl/cpu \
    "$(grep '^torch==' "$top/source/requirements.txt")"
"$top/venv/bin/python" -m pip install --no-cache-dir -r "$top/source/requirements-class.txt"
