#!/bin/bash
# run_on_standin.sh BUILD cuda12|cuda13 PROGRAM...: the program on a stand-in device of 1 GiB, without `liveset dryrun`.
set -eu
folder=$1/lib/liveset/standin
export LD_LIBRARY_PATH=$folder/driver:$folder/$2
export LIVESET_STANDIN="gpu=test
name=Test GPU
capability=90
multiprocessors=8
memory_bytes=1073741824
context_bytes=16777216
devices=2
backing=all
folder=$folder"
shift 2
exec "$@"
