#!/bin/bash
# One sitting of the table; the page beside this file says what it measures. 590 s at most, on one GPU with 16 cores.
#   bash benchmarks/passbench/h200_table/call.sh OUT                              # the first sitting
#   SECONDS_LEFT=200 bash benchmarks/passbench/h200_table/call.sh OUT EARLIER.tgz   # a later one goes on where it ended
# OUT gets table.tgz (rows of each sample, passes, tables) and logs; the last lines printed are the table.
set -u
OUT=$1; EARLIER=${2:-}; ALL=${SECONDS_LEFT:-580}
HERE=$(dirname "$0"); E=benchmarks/extraction; W=${WORK:-/dev/shm/table}; DEVICE=${DEVICE:-cuda:0}
VERSIONS="$E/corpus_578/version $E/corpus_350/version $E/corpus_328/version"
began=$SECONDS
mkdir -p "$W/record"
pack() { rm -rf "$W/record/authors"; tar czf "$OUT/table.tgz" -C "$W/record" .; }
if [ -n "$EARLIER" ]; then
  tar xzf "$EARLIER" -C "$W/record"
else
  timeout 100 python3 -m pytest -q -p no:cacheprovider tests/passbench/test_shared_bench.py -m gpu > "$OUT/gpu_test.log" 2>&1
  tail -n 3 "$OUT/gpu_test.log"
  if grep -q "FAILED.*agree" "$OUT/gpu_test.log" || ! grep -qE "[0-9]+ (passed|skipped)" "$OUT/gpu_test.log"; then
    tail -n 60 "$OUT/gpu_test.log"; echo "the GPU test failed: nothing was measured"; exit 1
  fi
fi
first=${FIRST:-110}
ended=1
while left=$((ALL - 15 - (SECONDS - began))); [ $ended -ne 0 ] && [ $left -gt 90 ]; do  # again if it breaks off
  timeout $left python3 -m benchmarks.passbench.baselines_table $VERSIONS --names "$HERE/names.txt" --out "$W/record" \
    --device "$DEVICE" --first $first --write $((left * 31 / 100)) --tune $((left / 18)) --budget $((left - 20)) \
    >> "$OUT/sitting.log" 2>&1
  ended=$?
  echo "ended with $ended" >> "$OUT/sitting.log"
done
pack
if [ $ended -ne 0 ]; then  # it was cut off: the tables of what is there
  timeout 25 python3 -m benchmarks.passbench.baselines_table $VERSIONS --names "$HERE/names.txt" --out "$W/record" \
    --only-table > "$OUT/table.log" 2>&1
  pack
fi
cp "$W/record/table.md" "$OUT/" 2> /dev/null
grep -v ": eager ok" "$OUT/sitting.log" | head -n 60
cat "$OUT/table.md"
