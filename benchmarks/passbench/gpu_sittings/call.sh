#!/bin/bash
# One call on a GPU host, from the repository root; the page beside this file says which, in which order and why.
#   bash benchmarks/passbench/gpu_sittings/call.sh STEP OUT [SECONDS] [cuda|cpu]
# STEP: checks (GPU tests, four attacks, sizes of shared memory), kept (what a shared process costs, shared beside whole
# trials). OUT gets a log and a table of each part as they come; what decides is printed last.
# `cpu` tries every part without a GPU.
set -u
step=$1 out=$2 seconds=${3:-560} device=${4:-cuda}
end=$((SECONDS + seconds - 6))
export PYTHONUNBUFFERED=1
if [ "$device" = cpu ]; then export TRITON_INTERPRET=1; fi
mkdir -p "$out"

part() { # LOG SECONDS COMMAND ...: SECONDS at most, and no more than are left
  local log=$out/$1.log limit=$2 start=$SECONDS
  shift 2
  if [ $limit -gt $((end - SECONDS)) ]; then limit=$((end - SECONDS)); fi
  if [ $limit -lt 5 ]; then echo "no time was left" > "$log" && return; fi
  timeout -k 5 $limit "$@" > "$log" 2>&1
  echo "exit $? after $((SECONDS - start)) of at most $limit s" >> "$log"
}
share() { echo $((seconds * $1 / 100)); }

checks() {
  local d=tests/agent/distill p=tests/passbench here
  here=$(nproc)
  # No test of these takes times, so that they run side by side. What never ran on a GPU comes first.
  part tests "$(share 45)" python3 -m pytest -v -rfE --durations 8 -p no:cacheprovider -m gpu -n $((here < 14 ? here : 14)) \
    $d/test_{joined,small_products,short_rows,few_rows,scans,tiled_steps,weight_norms}.py \
      $d/test_{column_order,pool_backwards,scatters,late_loads,channels_last,any_input,any_size,contracted}.py \
    $d/test_{ordered,order_probe,index_puts,interpolation,split_biases,batch_norm,distill,whole_graphs,powers,norm_backwards}.py \
    tests/extraction/kernels/test_lowering.py $p/child $p/test_{launch,capture}.py \
    $p/inputs $p/checking $p/policy/test_honest_corpus.py $p/test_bench.py
  part group_norms 45 python3 -m benchmarks.agent.inexact_parts --group-norms --device "${device/cuda/cuda:0}"
  [ "$device" = cpu ] || part memory_sizes 60 python3 -m benchmarks.passbench.gpu_sittings.memory_sizes --out "$out/memory_sizes.jsonl"
  part attacks "$(share 19)" python3 -m tests.passbench.attacks.run_attacks --device "$device" --budget $(($(share 19) - 20)) \
    --only hides_strides,shape_of_all_tensors,sorts_tensors,number_beside_an_address
  part quiet_tests 999 python3 -m pytest -v -rfE --durations 8 -p no:cacheprovider -m gpu \
    tests/agent/ahead $d/test_{branches,tuned}.py $p/timing $p/test_shared_bench.py
}
kept() {
  local tried=() both=()
  if [ "$device" = cpu ]; then tried=(--others 2) both=(--most 3); fi
  part both_ways "$(share 33)" python3 -m benchmarks.passbench.kept_passes.both_ways --out "$out/both_ways.parquet" \
    --device "$device" --first sole_op-dc2ad51aaedb --budget $(($(share 33) - 25)) "${both[@]+"${both[@]}"}"
  part kept_passes 999 python3 -m benchmarks.passbench.kept_passes --out "$out/kept_passes.jsonl" \
    --device "$device" --budget $((end - SECONDS - 40)) "${tried[@]+"${tried[@]}"}"
}

case $step in
  checks | kept) "$step" ;;
  *) echo "there is no step $step: checks or kept" >&2 && exit 2 ;;
esac
{ nvidia-smi --query-gpu=name,driver_version --format=csv,noheader; nproc; uptime; } > "$out/host.txt" 2>&1
timeout 30 python3 -m benchmarks.passbench.gpu_sittings "$out" > "$out/tables.md" 2> "$out/tables.err" || cat "$out/tables.err"
[ -s "$out/tables.err" ] || rm -f "$out/tables.err"
tail -c 11000 "$out/tables.md"
