#!/bin/sh
# run.sh BUILD_DIR MODULE: one test module with a Python that has torch: $LIVESET_PYTHON, or build/venv of the source tree.
# Exit status 77: there is none, or the module skipped all its tests, and that is said.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
python=${LIVESET_PYTHON:-$here/../../build/venv/bin/python}
if ! "$python" -c 'import importlib.util, sys; sys.exit(importlib.util.find_spec("torch") is None)' 2>/dev/null; then
  echo "SKIPPED: $python is no Python with torch (scripts/setup makes one, or set LIVESET_PYTHON)"
  exit 77
fi
cd "$here"
PYTHONDONTWRITEBYTECODE=1 LIVESET_BUILD_DIR=$1 exec "$python" run_module.py "$2"
