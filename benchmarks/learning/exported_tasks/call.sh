#!/bin/bash
# What known passes and attacks earn on a GPU, for a host that other work shares: some 480 s on four cores.
#
#     CORES=0-3 ORACLE=330 benchmarks/learning/exported_tasks/call.sh OUT
#
# 1. Float32 demonstrations that may be wrong in one draw of hundreds are checked on 512 more (80 s).
# 2. Of those that are left, 15 are judged alone and twice, the two that were refused before among them; the others by
#    three processes side by side, for ORACLE seconds.
# 3. Attacks that have no reward on a GPU yet (45 s).
# Leaves OUT/learning.tgz.
set -u
cores="taskset -c ${CORES:-0-3}" learning=benchmarks/learning seconds=${ORACLE:-330}
out=$1/learning
mkdir -p "$out"
$cores timeout 130 python3 -m benchmarks.learning.checking.recheck --demonstrations $learning/demonstrations.parquet \
    --written $learning/written/second --workers 3 --seconds 75 --out "$out/kept.parquet" --record "$out/recheck.json"
[ -f "$out/kept.parquet" ] || cp $learning/demonstrations.parquet "$out/kept.parquet"
$cores timeout $((seconds + 30)) python3 -m benchmarks.learning.exported_tasks.oracle_rewards --tasks 220 --seed 7 \
    --written $learning/written/second --demonstrations "$out/kept.parquet" --without $learning/oracle_h200.json \
    --alone 15 --again --alone-seconds 75 --side-by-side 3 --seconds "$seconds" --out "$out/oracle.json"
cp $learning/attack_rewards_h200.json "$out/attack_rewards.json"
$cores timeout 75 python3 -m benchmarks.learning.exported_tasks.attack_rewards --out "$out/attack_rewards.json" \
    --device cuda --seconds 45 --side-by-side 3
tar czf "$1/learning.tgz" -C "$1" learning && rm -r "$out"
