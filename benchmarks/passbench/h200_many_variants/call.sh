#!/bin/bash
# Runs of the same recorded passes in shared rounds, half of the samples on each of two GPUs; the page beside it says what came of it.
#   bash benchmarks/passbench/h200_many_variants/call.sh OUT FIRST LIMIT [PROCESSES]
# Runs FIRST, FIRST + 1, ... until LIMIT seconds are over, MOST (255) seconds each at most; PROCESSES of a half compile passes before a run is timed.
# A later call on the same machine compares its runs with those of earlier ones, which WORK keeps.
set -u
OUT=$1; K=$2; LIMIT=$3; PROCESSES=${4:-4}; MOST=${MOST:-255}; NOW=${NOW:-99}; W=${WORK:-/dev/shm/many_variants}; T0=$SECONDS; LAST=0
E=benchmarks/extraction
V="$E/corpus_2245/version $E/corpus_984/version $E/corpus_578/version $E/corpus_350/version $E/corpus_328/version"
mkdir -p "$OUT" "$W"
half() { # GPU CORES SECONDS
  local w=$W/run-$K/$1
  mkdir -p "$w"
  CUDA_VISIBLE_DEVICES=$1 taskset -c "$2" timeout -k 5 $(($3 + 12)) python3 -m benchmarks.passbench.baselines_table $V --names benchmarks/passbench/h100_max_autotune/names.txt \
    --passes benchmarks/passbench/h200_one_run/results.parquet --out "$w" --device "${DEVICE:-cuda:0}" --part "$1/2" --now "$NOW" --write 3 --tune 0 \
    --baselines --authors 1 --processes "$PROCESSES" --full 0 --budget "$3" > "$OUT/run_${K}_$1.log" 2>&1
  [ -f "$w/results.parquet" ] || timeout 20 python3 -m benchmarks.passbench.baselines_table $V --names benchmarks/passbench/h100_max_autotune/names.txt --out "$w" --only-table >> "$OUT/run_${K}_$1.log" 2>&1
  cp "$w/results.parquet" "$OUT/run_${K}_$1.parquet"
}
n=$(nproc)
while LEFT=$((LIMIT - (SECONDS - T0) - 18)); [ $LEFT -ge 60 ] && [ $LEFT -gt $LAST ]; do
  B=$((LEFT < MOST ? LEFT : MOST)); S=$SECONDS
  half 0 0-$((n / 2 - 1)) $B & half 1 $((n / 2))-$((n - 1)) $B & wait
  LAST=$((SECONDS - S))
  grep -hE "passes$|have rows" "$OUT"/run_"$K"_*.log
  K=$((K + 1))
done
runs=()
for run in "$W"/run-*; do runs+=(--rows "$run"/*/results.parquet); done
python3 -m benchmarks.passbench.repeat_runs "${runs[@]}"
