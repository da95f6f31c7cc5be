# What every script here needs. Sourced, with `root` and the working directory set to the repository.
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
cd "$root"
logs="$root/build/logs"
jobs="$(nproc 2>/dev/null || echo 2)"

say() { printf '%s\n' "$*"; }
note() { printf '  %s\n' "$*"; }
warn() { printf 'warning: %s\n' "$*" >&2; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }
usage_error() { printf 'error: %s (see --help)\n' "$*" >&2; exit 2; }

# help_from_header FILE: prints the comment that opens FILE.
help_from_header() { awk 'NR > 1 { if (!/^#/) exit; sub(/^# ?/, ""); print }' "$1"; }

# logged NAME COMMAND...: runs COMMAND with its output in build/logs/NAME.log, and shows the end of it only when it fails.
logged() {
  local log="$logs/$1.log"
  shift
  mkdir -p "$logs"
  if "$@" >"$log" 2>&1; then return 0; fi
  tail -n 40 "$log" >&2
  warn "failed: $*; the whole output is in ${log#"$root"/}"
  return 1
}

# build_preset PRESET [TARGET...]: configures and builds; ccache is used where it is installed.
build_preset() {
  local preset="$1"
  shift
  if [ -z "${CMAKE_CXX_COMPILER_LAUNCHER:-}" ] && command -v ccache >/dev/null; then
    # Paths below the repository become relative, so that a second clone finds what the first one compiled.
    export CMAKE_C_COMPILER_LAUNCHER=ccache CMAKE_CXX_COMPILER_LAUNCHER=ccache CCACHE_BASEDIR="$root"
    export CCACHE_NOHASHDIR=1
  fi
  logged "configure-$preset" cmake --preset "$preset" &&
    logged "build-$preset" cmake --build --preset "$preset" -j "$jobs" ${1:+--target "$@"}
}
