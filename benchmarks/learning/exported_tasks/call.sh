#!/bin/bash
# What known passes earn on a GPU, for a host that other work shares: some 460 s on four cores, 510 s for 200 on six.
#
#     CORES=0-3 ORACLE=330 benchmarks/learning/exported_tasks/call.sh OUT
#     CORES=0-5 SIDE=4 WORKERS=5 ORACLE=380 benchmarks/learning/exported_tasks/call.sh OUT
#
# 1. Float32 demonstrations that may be wrong in one draw of hundreds are checked on 512 more: those that no earlier call
#    reached (110 s).
# 2. Of the rows that nobody found wrong, 15 that no call has judged are judged alone and twice; others by SIDE
#    processes side by side (three unless it says so), for ORACLE seconds.
# Leaves OUT/learning.tgz.
set -u
cores="taskset -c ${CORES:-0-3}" learning=benchmarks/learning seconds=${ORACLE:-330}
out=$1/learning
mkdir -p "$out"
$cores timeout 150 python3 -m benchmarks.learning.checking.recheck --demonstrations $learning/demonstrations.parquet \
    --written $learning/written/second --without $learning/checking/recheck_h200.json --workers ${WORKERS:-3} --seconds 100 \
    --out "$out/kept.parquet" --record "$out/recheck.json"
[ -f "$out/kept.parquet" ] || cp $learning/demonstrations.parquet "$out/kept.parquet"
$cores timeout $((seconds + 30)) python3 -m benchmarks.learning.exported_tasks.oracle_rewards --tasks 220 --seed 8 \
    --written $learning/written/second --demonstrations "$out/kept.parquet" --without $learning/oracle_h200.json \
    --alone 15 --again --alone-seconds 75 --side-by-side ${SIDE:-3} --seconds "$seconds" --out "$out/oracle.json"
tar czf "$1/learning.tgz" -C "$1" learning && rm -r "$out"
