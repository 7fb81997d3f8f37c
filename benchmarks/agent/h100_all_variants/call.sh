#!/bin/bash
# All variants of 40 samples, then shapes that passes have no plan for; the page beside this file says what it decides.
#   SECONDS_LEFT=150 bash benchmarks/agent/h100_all_variants/call.sh OUT TABLE_RESULTS
# TABLE_RESULTS: results.parquet of a table, whose passes of `distill` get other shapes. On two GPUs both side by side.
set -u
OUT=$1; TABLE=$2; ALL=${SECONDS_LEFT:-150}; DEVICE=${DEVICE:-cuda:0}; W=${WORK:-/dev/shm/all_variants}
HERE=$(dirname "$0"); V=benchmarks/extraction/corpus_350/version; P=${PROCESSES:-14}
mkdir -p "$OUT" "$W"
rm -f "$W"/*/rows.parquet "$W"/*/summary.txt # an earlier call's
python3 - "$TABLE" "$W/passes.parquet" <<'P' || exit 1
import sys
from pathlib import Path
from storage.parquet import read_rows, write_rows
from storage.schema import RESULTS
rows = read_rows(Path(sys.argv[1]), RESULTS)
write_rows(Path(sys.argv[2]), [row for row in rows if row["author"] == "distill" and row["pass_files"]], RESULTS)
P
all() {
  timeout -k 5 "$1" python3 -m benchmarks.agent.all_variants $V --names "$HERE/names.txt" --processes "$P" --search 4 \
    --budget $(($1 - 25)) --device "$DEVICE" --out "$W/all" "${@:2}" >> "$OUT/all.log" 2>&1
}
others() {
  timeout -k 5 "$1" python3 -m benchmarks.agent.all_variants $V --results "$W/passes.parquet" --samples "${SAMPLES:-90}" --others "${OTHERS:-6}" \
    --processes "$P" --budget $(($1 - 25)) --device "$DEVICE" --out "$W/others" "${@:2}" >> "$OUT/others.log" 2>&1
}
if [ "$(nvidia-smi -L 2> /dev/null | wc -l)" -gt 1 ]; then
  CUDA_VISIBLE_DEVICES=0 all $((ALL - 35)) &
  CUDA_VISIBLE_DEVICES=1 others $((ALL - 35)) &
  wait
else
  all $((ALL * 2 / 3))
  others $((ALL / 3 - 35))
fi
for one in all others; do
  [ -s "$W/$one/summary.txt" ] || $one 30 --only-summary # of what was measured before it was killed
  cp "$W/$one/rows.parquet" "$OUT/$one.parquet"
  cp "$W/$one/summary.txt" "$OUT/$one.txt"
done
cat "$W"/all/written/*.log > "$OUT/authors.log" 2> /dev/null
head -40 "$OUT/all.txt" "$OUT/others.txt"
