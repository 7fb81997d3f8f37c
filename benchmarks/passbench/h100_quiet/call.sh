#!/bin/bash
# What PassBench still wants of a GPU: `bash benchmarks/passbench/h100_quiet/call.sh OUT [cuda|cpu] [SECONDS] [ONLY]`, from
# the repository root, on a host that does nothing else; at most SECONDS (290). With two GPUs, GPU 0 and the first half of
# the cores are for what needs quiet, one part after another: A/A twice, four runs of the same passes, threads in turns.
# Threads of one core are in the same half. GPU 1 and the other half get attacks that have no expected verdict in HAD,
# honest passes that have fewer than 20 there, then all attacks with all layers on and without; beside them GPU tests.
# With one GPU, ONLY is one of the two halves, `quiet` or `attacks`, which gets all cores. OUT gets summary.txt, which is
# printed too, what decides last, and all.tgz with every log and table; a call that is killed leaves the all.tgz of the
# last two minutes.
out=$1 device=${2:-cuda} seconds=${3:-290} only=${4:-both}
end=$((SECONDS + seconds - 14)) # of all parts; the summary takes the rest
had=${HAD-benchmarks/passbench/h100_quiet/verdicts.parquet} # records of earlier calls, separated by spaces
work=$(mktemp -d) held=benchmarks/dedup/held_out_1 recorded=benchmarks/agent/h200_distill_350
if [ "$device" = cuda ]; then budget=$((27 * seconds / 290)); else budget=20; fi # of A/A and of each run
mkdir -p "$out" "$work"/aa-{1,2}

pack() { # replaces at once what an earlier one has left
  local new=$work/pack-$BASHPID.tgz
  tar czf "$new" -C "$work" --exclude=./passes --exclude='./pack-*' . 2> /dev/null
  mv "$new" "$out/.all" && mv "$out/.all" "$out/all.tgz"
}
(
  trap 'kill $pause; exit' TERM
  while :; do
    sleep 120 & pause=$!
    wait $pause && pack
  done
) > /dev/null 2>&1 &
packing=$!
trap 'kill $packing 2> /dev/null' EXIT

left() { echo $((end - SECONDS > 1 ? end - SECONDS : 1)); }
least() { echo $(($1 < $2 ? $1 : $2)); }
part() { # LOG SECONDS COMMAND ...
  local log=$work/$1.txt start=$SECONDS limit
  limit=$(least $(($2 * (seconds < 290 ? 290 : seconds) / 290)) "$(left)")
  shift 2
  timeout -k 3 "$limit" "$@" > "$log" 2>&1
  echo "exit $? after $((SECONDS - start)) of at most $limit s" >> "$log"
}
tests() { # LOG SECONDS OPTIONS
  part "$1" "$2" python3 -m pytest -v -rfE --durations 3 -p no:cacheprovider -m gpu "${@:3}"
}

quiet() {
  part passes 25 python3 -m benchmarks.passbench.recorded_passes $recorded/{third,fourth,fifth}.parquet \
    --out "$work/passes" --most $((26 * seconds / 290))
  for number in 1 2; do
    part aa-$number 50 python3 -m benchmarks.passbench.aa_noise $held/version --names $held/names_2.txt \
      --limit $((12 * seconds / 290)) --one-a-dtype --arrangements first --settled --sides eager --budget $budget --device "$device" --out "$work/aa-$number/aa"
  done
  part repeats 165 python3 -m benchmarks.passbench.repeat_runs benchmarks/extraction/corpus_350/version \
    --out "$work/repeats" --runs 4 --seed 7 --budget $budget --device "$device" -- --authors "" --passes "$work/passes" \
    --split eval,train --at-most 1 --mixed --repeats 0
  part turns 999 python3 -m benchmarks.passbench.host_noise.thread_turns $held/version --names $held/names_2.txt \
    --budget "$(least $((budget * 5 / 3)) $(($(left) - 10)))" --device "$device" --out "$work/turns.jsonl"
}
session() { # STEP KEPT OPTIONS: all the time that is left but KEPT seconds
  part "$1" 999 python3 -m tests.passbench.gpu_session --only "$1" --jobs $jobs --device "$device" \
    --budget $(($(left) - $2)) --out "$work/$1" "${@:3}"
}
attacks() { # what earlier calls have not seen comes first
  session new $((seconds / 3)) --had $had
  session honest $((seconds / 8)) --repeats 20 --had $had # which begins once it has imported torch
  session layers 10
}
some_tests() {
  tests tests-new 60 tests/passbench/policy/test_honest_corpus.py -k "descriptors or docstrings"
  tests tests-evidence 60 tests/passbench/child/test_evidence.py
  tests tests-corpus 999 tests/passbench/policy/test_honest_corpus.py -k "not descriptors and not docstrings"
}
other_tests() {
  (unset CUDA_VISIBLE_DEVICES && tests tests-one-gpu 40 tests/passbench/workers/test_one_gpu.py)
  part two-attacks 110 python3 -m tests.passbench.attacks.run_attacks --device "$device" --attacks-only --repeats 5 \
    --only batches_many_captured_calls,counts_replays --budget 90 --out "$work/two-attacks"
  part faults 999 python3 -m tests.passbench.workers.faults --device "$device" --times 1 --shared-gpu --out "$work/faults"
}
on() { # CORES GPU FUNCTION
  taskset -cp "$1" $BASHPID > /dev/null
  CUDA_VISIBLE_DEVICES=$2 "$3"
}

# Threads of one core follow each other, so that no core has one in either half.
mapfile -t order < <(lscpu -p=CPU,CORE,SOCKET | grep -v '^#' | sort -t, -k3,3n -k2,2n -k1,1n | cut -d, -f1)
cores=${#order[@]} half=$((${#order[@]} / 2)) few=$((${#order[@]} / 8))
some_of() { # FROM COUNT: processors, separated by commas
  local IFS=,
  echo "${order[*]:$1:$2}"
}
if [ "$only" = attacks ]; then half=0; fi
first=$(some_of 0 $half) rest=$(some_of $half $((cores - half - 2 * few)))
some=$(some_of $((cores - 2 * few)) $few) others=$(some_of $((cores - few)) $few)
pairs=$(((cores - half - 2 * few) / 2))
jobs=$((pairs > 1 ? pairs : 1))
if ((few == 0)); then some=$rest others=$rest; fi # to try it on a small machine
if [ "$only" = quiet ]; then
  on "$(some_of 0 "$cores")" 0 quiet
else
  if [ "$only" = attacks ]; then gpu=0; else gpu=1; fi
  running=() # all but what packs
  on "$rest" $gpu attacks & running+=($!)
  on "$some" $gpu some_tests & running+=($!)
  on "$others" $gpu other_tests & running+=($!)
  if [ "$only" = both ]; then on "$first" 0 quiet & running+=($!); fi
  wait "${running[@]}"
fi

show() { # TITLE: the end of standard input, so many lines and bytes
  echo "== $1"
  cut -c 1-220 | tail -n "$2" | tail -c "$3"
}
{
  {
    nvidia-smi -L
    echo "$cores threads of $(lscpu -p=CORE,SOCKET | grep -v '^#' | sort -u | wc -l) cores"
    echo "all parts ended after $((SECONDS - end + seconds - 14)) s"
    uptime
  } 2>&1 | show host 7 500
  for name in new evidence corpus one-gpu; do
    [ -f "$work/tests-$name.txt" ] || continue # of the other half
    grep -E "^(FAILED|ERROR|exit |E  )|::.* (FAILED|ERROR)|(passed|failed|skipped|deselected).* in " "$work/tests-$name.txt" |
      show "tests-$name: $(grep -c PASSED "$work/tests-$name.txt") passed" 8 900
  done
  of() { [ -f "$work/$1.txt" ] && show "${@:2}" < "$work/$1.txt"; } # nothing of the other half
  of faults faults 10 800
  of two-attacks two-attacks 16 1500
  of new "attacks without a verdict so far" 16 1800
  of layers "attacks, all layers on first" 16 1800
  of honest "honest passes with fewer than 20 verdicts" 10 1000
  if [ "$only" != attacks ]; then
    grep -h "^exit" "$work"/{passes,aa-1,aa-2}.txt | show "passes, A/A, A/A" 3 300
    of turns threads 8 1500
    python3 -c "import pathlib, sys, tests.passbench.gpu_session as s
for one in sys.argv[1:]: print(s.against_itself(pathlib.Path(one)))" "$work"/aa-{1,2} 2>&1 | show "A/A, twice" 50 4200
    cat "$work/repeats/summary.md" "$work/repeats.txt" | show "runs of the same passes" 12 1800
  fi
} > "$out/summary.txt"
kill $packing 2> /dev/null
wait $packing 2> /dev/null
pack
tail -c 11800 "$out/summary.txt"
