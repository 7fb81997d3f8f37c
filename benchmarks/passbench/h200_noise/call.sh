#!/bin/bash
# A/A twice and four runs of the same passes, three steps from run to run: `bash benchmarks/passbench/h200_noise/call.sh
# OUT [cuda]`, from the repository root, on a quiet GPU, at most 290 s. OUT gets one table a part; they are printed last.
out=$1 device=${2:-cuda} passes=$(mktemp -d) version=benchmarks/agent/h200_distill_350 held=benchmarks/dedup/held_out_1
mkdir -p "$out"
timeout 20 python3 -m benchmarks.passbench.recorded_passes $version/{third,fourth,fifth}.parquet --out "$passes" --most 26
for n in 1 2; do
  timeout 44 python3 -m benchmarks.passbench.aa_noise $held/version --names $held/names_2.txt --limit 12 --one-a-dtype \
    --arrangements first --settled --sides eager --budget 27 --device "$device" --out "$out/aa-$n/aa" > "$out/aa-$n.log" 2>&1
  timeout 12 python3 -c "import pathlib, tests.passbench.gpu_session as s; print(s.against_itself(pathlib.Path('$out/aa-$n')))" \
    > "$out/aa-$n.txt" 2>&1
done
timeout 172 python3 -m benchmarks.passbench.repeat_runs benchmarks/extraction/corpus_350/version --out "$out/repeats" \
  --runs 4 --seed 7 --budget 24 --device "$device" -- --authors "" --passes "$passes" --split eval,train --at-most 1 \
  --mixed --repeats 0 > "$out/repeats.txt" 2>&1
tail -n 40 "$out"/*.txt
