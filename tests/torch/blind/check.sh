#!/bin/sh
# check.sh LIVESET OPEN_JOB BLIND_JOB NUMBERED_JOB UNNUMBERED_JOB: a libc10 that can be interposed is recorded, and one that cannot is named,
# once; numbers of nodes are recorded, and a libtorch_cpu that has none is named in the trace.
set -u
folder=$(mktemp -d) && trap 'rm -rf "$folder"' EXIT
fail() { echo "FAILED: $*"; exit 1; }

"$1" run -q -o "$folder/open.liveset" -- "$2" 2>"$folder/open.err" || fail "the open job ended with $?"
[ -s "$folder/open.err" ] && fail "the open job's stderr: $(cat "$folder/open.err")"
"$1" summary --format json "$folder/open.liveset" | tr -d ' \n' | grep -q '"allocations":1,' || fail "its one allocation is not in the trace"

"$1" run -q -o "$folder/blind.liveset" -- "$3" 2>"$folder/blind.err" || fail "the blind job ended with $?"
[ "$(grep -c 'this torch cannot be interposed' "$folder/blind.err")" = 1 ] || fail "the blind job's stderr: $(cat "$folder/blind.err")"

"$3" 2>"$folder/alone.err" || fail "the blind job without liveset ended with $?"
[ -s "$folder/alone.err" ] && fail "something was said although nothing records"

unnumbered='which node of autograd a block is of (this torch has no at::sequence_number::peek)'
for job in "$2" "$4" "$5"; do
  "$1" run -q -o "$folder/job.liveset" -- "$job" 2>"$folder/job.err" || fail "$job ended with $?"
  [ -s "$folder/job.err" ] && fail "the stderr of $job: $(cat "$folder/job.err")"
  said=$("$1" summary --format json "$folder/job.liveset" | grep -cF "$unnumbered")
  numbers=$("$1" dump --format json "$folder/job.liveset" | tr -d ' \n' | grep -o '"kind":"sequence"[^}]*"number":[0-9]*' | grep -o '[0-9]*$')
  case $job in
    "$4") [ "$said/$numbers" = 0/4711 ] || fail "numbers: $said/$numbers" ;;
    "$5") [ "$said/$numbers" = 1/ ] || fail "no numbers: $said/$numbers" ;;
    *) [ "$said/$numbers" = 0/ ] || fail "without libtorch_cpu: $said/$numbers" ;;
  esac
done
exit 0
