#!/bin/sh
# run.sh [BUILD_DIR] [options of compare.py]: samples on a real GPU under `liveset run`, and the same dry-run on a stand-in that is described
# by that GPU's own properties; prints how far apart they are. At most 8 minutes. Needs what was built (BUILD_DIR, default build/release)
# and a Python with torch: $LIVESET_PYTHON, or build/venv of the source tree.
# Exit status 77: there is no GPU (or no such Python), and that is said; 1: something failed, or allocated bytes differ by more than 1 %.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
build=$here/../../build/release
case "${1:-}" in
  '' | -*) ;;
  *) build=$1; shift ;;
esac
python=${LIVESET_PYTHON:-$here/../../build/venv/bin/python}
if ! "$python" -c 'import importlib.util, sys; sys.exit(importlib.util.find_spec("torch") is None)' 2>/dev/null; then
  echo "SKIPPED: $python is no Python with torch (scripts/setup makes one, or set LIVESET_PYTHON)"
  exit 77
fi
PYTHONDONTWRITEBYTECODE=1 exec "$python" "$here/compare.py" --build "$build" "$@"
