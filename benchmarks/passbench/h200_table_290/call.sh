#!/bin/bash
# One call of the table in two halves, one a GPU, each with half of the cores; the page beside this file says what it is.
#   SECONDS_LEFT=575 bash benchmarks/passbench/h200_table_290/call.sh OUT               # the first call
#   SECONDS_LEFT=400 bash benchmarks/passbench/h200_table_290/call.sh OUT EARLIER.tgz   # goes on where it ended
# OUT gets both.tgz (all that EARLIER.tgz needs), table.md, host.txt and a log of each half. What decides is printed last.
set -u
OUT=$1; EARLIER=${2:-}; ALL=${SECONDS_LEFT:-575}; DEVICE=${DEVICE:-cuda:0}; W=${WORK:-/dev/shm/table_290}
HERE=$(dirname "$0"); E=benchmarks/extraction
export VERSIONS="$E/corpus_984/version $E/corpus_578/version $E/corpus_350/version $E/corpus_328/version"
export NAMES=${NAMES:-$HERE/names.txt} DEVICE NO_GPU_TEST=1 FULL=0 TUNE=0 FIRST=${FIRST:-290} NOW=${NOW:-100}
export SEARCH=${SEARCH:-4} AUTHORS=${AUTHORS:-7} PROCESSES=${PROCESSES:-8} WRITE_SHARE=${WRITE_SHARE:-36}
mkdir -p "$OUT" "$W/both"
{ nvidia-smi --query-gpu=name,driver_version --format=csv; nproc; lscpu -e=CPU,CORE,SOCKET; git log -1 --format=%h; } > "$OUT/host.txt" 2>&1
# Threads of one core belong to one half.
mapfile -t cores < <(lscpu -p=CPU,CORE,SOCKET | grep -v '^#' | sort -t, -k3,3n -k2,2n -k1,1n | cut -d, -f1)
half=$((${#cores[@]} / 2))
for n in 0 1; do
  mine=$(IFS=,; echo "${cores[*]:$((n * half)):$half}")
  CUDA_VISIBLE_DEVICES=$n PART=$n/2 WORK=$W/$n SECONDS_LEFT=$((ALL - 20)) \
    taskset -c "$mine" bash benchmarks/passbench/h200_table/call.sh "$W/out_$n" $EARLIER > "$OUT/half_$n.log" 2>&1 &
done
wait
for n in 0 1; do
  cp -r "$W/$n/record/." "$W/both/"
  mkdir -p "$W/both/logs/$n"
  cp "$W/$n/record/written/"*.log "$W/both/logs/$n/"
  cp "$W/out_$n/sitting.log" "$OUT/sitting_$n.log"
done
rm -rf "$W/both/authors" "$W/both/written/"*.log
timeout 20 python3 -m benchmarks.passbench.baselines_table $VERSIONS --names "$NAMES" --out "$W/both" --only-table > "$OUT/table.log" 2>&1
tar czf "$OUT/both.tgz" -C "$W/both" .
cp "$W/both/table.md" "$OUT/"
sed -n '/^## Variants that all authors have/,/^## /p' "$OUT/table.md" | grep "^|" | cut -c 1-150
sed -n '/^## distill$/,/^## Shared/p' "$OUT/table.md" | cut -c 1-200
for n in 0 1; do grep -E "compiled|answered|have rows|measured|^ended" "$OUT/sitting_$n.log" | cut -c 1-150; done
