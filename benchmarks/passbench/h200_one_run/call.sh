#!/bin/bash
# One call of the table on two GPUs of one host, half of the samples and of the cores each; the page beside it says what it is.
#   bash benchmarks/passbench/h200_one_run/call.sh OUT SECONDS NOW WRITE TUNE
# NOW samples of each half in this call, WRITE seconds for passes and baselines, TUNE for max-autotune.
# A later call on the same machine goes on; on another one, unpack rows_0.tgz and rows_1.tgz into WORK/0 and WORK/1 first.
set -u
OUT=$1; ALL=$2; NOW=$3; WRITE=$4; TUNE=$5
HERE=$(dirname "$0"); E=benchmarks/extraction; W=${WORK:-/dev/shm/one_run}; D=${DEVICE:-cuda:0}
V="$E/corpus_2245/version $E/corpus_984/version $E/corpus_578/version $E/corpus_350/version $E/corpus_328/version"
NAMES=${NAMES:-benchmarks/passbench/h100_max_autotune/names.txt}
mkdir -p "$OUT"
half() { # GPU CORES
  local w=$W/$1
  mkdir -p "$w"
  CUDA_VISIBLE_DEVICES=$1 taskset -c "$2" timeout -k 5 $((ALL - 22)) python3 -m benchmarks.passbench.baselines_table $V --names "$NAMES" \
    --passes "$HERE/variants.parquet" --out "$w" --device "$D" --part "$1/2" --now "$NOW" --write "$WRITE" --tune "$TUNE" --dearest-first \
    --search 6 --authors "${AUTHORS:-8}" --processes "${PROCESSES:-8}" --full 0 --budget $((ALL - 32)) >> "$OUT/sitting_$1.log" 2>&1
  echo "ended with $?" >> "$OUT/sitting_$1.log"
  timeout 20 python3 -m benchmarks.passbench.baselines_table $V --names "$NAMES" --out "$w" --only-table > "$OUT/table_$1.log" 2>&1
  mkdir -p "$w/logs"
  cp "$w"/written/*.log "$w/logs/" 2> /dev/null
  tar czf "$OUT/rows_$1.tgz" -C "$w" --exclude=./authors --exclude='*.new' .
}
n=$(nproc)
half 0 0-$((n / 2 - 1)) & half 1 $((n / 2))-$((n - 1)) & wait
for g in 0 1; do
  grep -E "^ *[0-9]+\.[0-9]|^ended|Error" "$OUT/sitting_$g.log" | grep -v ": eager ok" | cut -c 1-150 | tail -n 18
  grep -A5 "^| category | samples | left to eager" "$OUT/table_$g.log"
done
uptime
