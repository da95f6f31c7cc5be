#!/bin/sh
# check.sh LIVESET OPEN_JOB BLIND_JOB: a libc10 that can be interposed is recorded, and one that cannot is named, once.
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
exit 0
