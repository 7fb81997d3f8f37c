#!/bin/bash
# One sitting of the table; the page beside this file says what it measures. On one GPU with 16 cores.
#   SECONDS_LEFT=585 bash benchmarks/passbench/h200_table/call.sh OUT               # the first sitting
#   SECONDS_LEFT=445 bash benchmarks/passbench/h200_table/call.sh OUT EARLIER.tgz   # a later one goes on where it ended
#   PASSES="ROWS.parquet ..." TUNE=60 SECONDS_LEFT=575 bash .../call.sh OUT EARLIER.tgz   # measures recorded passes, and max-autotune
#   BASELINES="inductor-direct inductor-strict-direct" ...   # these alone
#   CUDA_VISIBLE_DEVICES=1 PART=1/2 WORK=/dev/shm/1 taskset -c 16-31 bash .../call.sh OUT/1    # the second of two GPUs
# OUT gets table.tgz (rows of each sample, passes, tables), table.md and sitting.log. What decides is printed last.
# A call that is killed leaves the table.tgz of the last two minutes. A file above 15 MB is left in parts, table.tgz.00 and so on; EARLIER names it without these endings.
set -u
OUT=$1; EARLIER=${2:-}; ALL=${SECONDS_LEFT:-585}
HERE=$(dirname "$0"); NAMES=${NAMES:-$HERE/names.txt}; E=benchmarks/extraction; W=${WORK:-/dev/shm/table}; DEVICE=${DEVICE:-cuda:0}
VERSIONS=${VERSIONS:-"$E/corpus_578/version $E/corpus_350/version $E/corpus_328/version"}
first=${FIRST:-180}; most=${NOW:-110}
began=$SECONDS
mkdir -p "$W/record/rows" "$OUT"
pack() { # replaces at once what an earlier one has left
  local new=$W/pack-$BASHPID.tgz
  tar czf "$new" --exclude=./authors --exclude='*.new' -C "$W/record" . 2> /dev/null
  if [ "$(stat -c %s "$new")" -gt $((${PART_MB:-15} << 20)) ]; then
    split -b $((${PART_MB:-15} << 20)) -d "$new" "$OUT/table.tgz."
    rm -f "$new" "$OUT/table.tgz"
  else
    mv "$new" "$OUT/.table" && mv "$OUT/.table" "$OUT/table.tgz"
    rm -f "$OUT"/table.tgz.[0-9][0-9]
  fi
}
( # so that a call that is killed has lost little
  trap 'kill $pause; exit' TERM
  while :; do
    sleep "${PACK_EVERY:-120}" & pause=$!
    wait $pause && pack
  done
) > /dev/null 2>&1 &
packing=$!
trap 'kill $packing 2> /dev/null' EXIT
if [ -n "$EARLIER" ]; then
  if [ -f "$EARLIER" ]; then tar xzf "$EARLIER" -C "$W/record"; else cat "$EARLIER".[0-9][0-9] | tar xz -C "$W/record"; fi || exit 1
elif [ -z "${NO_GPU_TEST:-}" ]; then
  timeout 60 python3 -m pytest -q -p no:cacheprovider tests/passbench/test_shared_bench.py -m gpu > "$OUT/gpu_test.log" 2>&1
  echo "the GPU test of the shared rounds ended with $? after $((SECONDS - began)) s"
fi
sit() { # SECONDS OPTIONS
  local started=$SECONDS
  timeout -k 5 "$1" python3 -m benchmarks.passbench.baselines_table $VERSIONS --names "$NAMES" --out "$W/record" \
    --device "$DEVICE" --part "${PART:-0/1}" --first "$first" --authors "${AUTHORS:-6}" --processes "${PROCESSES:-9}" \
    ${PASSES:+--passes $PASSES} ${BASELINES:+--baselines $BASELINES} "${@:2}" >> "$OUT/sitting.log" 2>&1
  ended=$?
  took=$((SECONDS - started))
  echo "ended with $ended at $((SECONDS - began)) s" >> "$OUT/sitting.log"
}
lacked() { grep -c "no memory beside what others keep" "$OUT/sitting.log"; }
# Again if it breaks off, but not at once, and if all that it has begun with is measured and there is time for some more.
# Half as many samples at a time once some have found no memory beside what is kept of the others.
ended=1
touch "$OUT/sitting.log"
while left=$((ALL - 18 - (SECONDS - began))); here=$(ls "$W/record/rows" | wc -l)
      [ $left -gt 100 ] && { [ $ended -ne 0 ] || [ "$here" -lt "$first" ]; }; do
  now=$(((left - 45) / 4)); [ $now -lt $most ] || now=$most
  without=$(lacked)
  sit $left --now $now --write $((left * ${WRITE_SHARE:-30} / 100)) --tune ${TUNE:-$((left / 24))} \
    --search "${SEARCH:-4}" --budget $((left - 12)) --full "${FULL:-2}"
  [ "$(lacked)" -eq "$without" ] || [ $most -lt 10 ] || most=$((most / 2))
  [ "$(ls "$W/record/rows" | wc -l)" -gt "$here" ] || { [ $ended -ne 0 ] && [ $took -gt 20 ]; } || break
done
kill $packing 2> /dev/null
wait $packing 2> /dev/null
if [ -n "$(ls "$W/record/rows")" ]; then
  timeout 25 python3 -m benchmarks.passbench.baselines_table $VERSIONS --names "$NAMES" --out "$W/record" \
    --only-table > "$W/table.log" 2>&1 || cat "$W/table.log" >> "$OUT/sitting.log"
fi
pack
cp "$W/record/table.md" "$OUT/" 2> /dev/null
[ -f "$OUT/gpu_test.log" ] && grep -E "^E  |passed|failed|skipped" "$OUT/gpu_test.log" | tail -n 8
if [ -f "$OUT/table.md" ]; then
  sed -n '/^## Variants that all authors but/,/^## /p' "$OUT/table.md" | grep "^|" | cut -c 1-150
  sed -n '/^## distill$/,$p' "$OUT/table.md"
  sed -n '/^## Samples/,/^## V/p' "$OUT/table.md"
fi
grep -E "^ *[0-9]+\.[0-9]|^of |^ended|Error" "$OUT/sitting.log" | grep -v ": eager ok" | cut -c 1-170 | tail -n 60
