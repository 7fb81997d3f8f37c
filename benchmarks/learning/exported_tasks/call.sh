#!/bin/bash
# More demonstrations whose kernels have eager's bits, and what known passes earn on a GPU. On a host alone, 260 s:
#
#     MAKE=50 ORACLE=140 benchmarks/learning/exported_tasks/call.sh OUT          # 16 cores
#     CORES=0-5 WORKERS=6 MAKE=50 ORACLE=140 benchmarks/learning/exported_tasks/call.sh OUT
#
# 1. Rows that are doubtful and that PassBench has not found right are left out (10 s).
# 2. Passes of `written/third` with eager's bits are checked for MAKE seconds and become rows, the shortest first.
# 3. Rows that no call has judged are judged by SIDE processes side by side, for ORACLE seconds; ALONE of them first
#    by one process, twice, for a third of that.
# Leaves OUT/learning.tgz.
set -u
cores="taskset -c ${CORES:-0-15}" learning=benchmarks/learning make=${MAKE:-50} seconds=${ORACLE:-140}
out=$1/learning judged=$learning/oracle_h200.json held=
mkdir -p "$out"
for version in dedup/held_out_1 extraction/corpus_350 extraction/corpus_328 extraction/corpus_578; do
    held="$held --held-out benchmarks/$version/version"
done
$cores timeout 60 python3 -m benchmarks.learning.checking.recheck --demonstrations $learning/demonstrations.parquet \
    --written $learning/written/second --without $judged --seconds 0 \
    --sure-only --out "$out/sure.parquet" --record "$out/recheck.json"
$cores timeout $((make + 45)) python3 -m benchmarks.learning.make_demonstrations --written $learning/written/third --exact \
    $held --journal "$out/journal" --check gpu --variants 1 --of-a-family 4 --workers "${WORKERS:-16}" \
    --seconds "$make" --keep "$out/sure.parquet" --out "$out/demonstrations.parquet"
[ -f "$out/demonstrations.parquet" ] || cp "$out/sure.parquet" "$out/demonstrations.parquet"
$cores timeout $((seconds + 30)) python3 -m benchmarks.learning.exported_tasks.oracle_rewards --tasks 260 --seed 9 \
    --written $learning/written/second --written $learning/written/third --demonstrations "$out/demonstrations.parquet" \
    --without $judged --alone "${ALONE:-0}" --again --alone-seconds $((seconds / 3)) --side-by-side "${SIDE:-4}" \
    --seconds "$seconds" --out "$out/oracle.json"
tar czf "$1/learning.tgz" -C "$1" learning && rm -r "$out"
