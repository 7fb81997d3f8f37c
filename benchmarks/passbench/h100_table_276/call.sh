#!/bin/bash
# One call of the table on one GPU with 16 cores; the page beside this file says what it is.
#   SECONDS_LEFT=575 bash benchmarks/passbench/h100_table_276/call.sh OUT                    # the first call
#   SECONDS_LEFT=575 bash benchmarks/passbench/h100_table_276/call.sh OUT                    # goes on, on the same machine
#   SECONDS_LEFT=575 bash benchmarks/passbench/h100_table_276/call.sh OUT EARLIER/table.tgz  # goes on, on another one
#   TESTS="tests/agent/distill/test_ordered.py ..."   # GPU tests of these files run while passes are written
set -u
HERE=$(dirname "$0"); E=benchmarks/extraction; OUT=$1
export VERSIONS="$E/corpus_2245/version $E/corpus_984/version $E/corpus_578/version $E/corpus_350/version $E/corpus_328/version"
export NAMES=${NAMES:-$HERE/names.txt} NO_GPU_TEST=1 TUNE=${TUNE:-0} FULL=${FULL:-0} FIRST=${FIRST:-276} NOW=${NOW:-105}
export SEARCH=${SEARCH:-6} AUTHORS=${AUTHORS:-7} PROCESSES=${PROCESSES:-8} WRITE_SHARE=${WRITE_SHARE:-42}
mkdir -p "$OUT"
{ nvidia-smi --query-gpu=name,driver_version --format=csv; nproc; uptime; } > "$OUT/host.txt" 2>&1
if [ -n "${TESTS:-}" ]; then
  timeout -k 3 "${TEST_SECONDS:-170}" nice -n 5 python3 -m pytest -v -rfE --durations 5 -p no:cacheprovider -m gpu $TESTS \
    > "$OUT/gpu_tests.log" 2>&1 &
fi
bash benchmarks/passbench/h200_table/call.sh "$@" > "$OUT/call.log" 2>&1
mkdir -p /dev/shm/table/record/logs
cp /dev/shm/table/record/written/*.log /dev/shm/table/record/logs/ 2> /dev/null
uptime >> "$OUT/host.txt"
if [ -n "${TESTS:-}" ]; then
  grep -cE "PASSED" "$OUT/gpu_tests.log"
  grep -E "FAILED|ERROR|^E  |passed|failed" "$OUT/gpu_tests.log" | cut -c 1-200 | tail -n 30
fi
tail -c 9000 "$OUT/call.log"
