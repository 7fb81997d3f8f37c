#!/usr/bin/env bash
# One GPU, at most 140 s: whether the kernels have eager's bits, and TorchInductor beside distill on the samples of
# beside_5.txt, in which distill was slower. `OUT` is where the results go; DEVICE=cpu tries the script anywhere.
#     OUT=DIR bash benchmarks/agent/h200_distill_350/call.sh
set -u
device=${DEVICE:-cuda:0} room=benchmarks/agent/h200_distill_350 work=$(mktemp -d)
mark=gpu; [ "$device" = cpu ] && mark="not gpu"
timeout 60 python3 -m pytest -v -n0 -p no:cacheprovider -m "$mark" tests/agent/distill/test_norm_backwards.py \
    tests/agent/distill/test_split_biases.py tests/agent/distill/test_whole_graphs.py > "$OUT/bits.log" 2>&1
timeout 75 python3 -m benchmarks.agent.beside_inductor benchmarks/extraction/corpus_578/version --device "$device" \
    --names "${NAMES:-$room/beside_5.txt}" --processes "${PROCESSES:-12}" --search 6 --write 45 --budget 70 --out "$work" > "$OUT/beside.log" 2>&1
cp "$work/rows.csv" "$work/summary.txt" "$OUT"
cat "$work"/written/*.log > "$OUT/authors.log"
grep -hE "adds in another order|further draws" "$OUT/authors.log" | cut -c1-40,230-400
grep -E "PASSED|FAILED|passed|failed" "$OUT/bits.log" | tail -n 40
cat "$OUT/summary.txt"
rm -rf "$work"
