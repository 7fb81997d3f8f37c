#!/bin/bash
# What needs a GPU but no quiet machine: `bash benchmarks/passbench/h200_attacks/call.sh OUT [cuda]`, from the repository
# root, four processes, at most 200 s. An honest pass with attention and the GPU tests of processes and verdicts come
# one after another; beside them attacks are judged as answers to exported tasks, those that no call has judged yet,
# then attacks with all layers on and, for the time that is left, honest passes. All is printed last.
out=$1 device=${2:-cuda} known=benchmarks/learning/attack_rewards_h200.json run="python3 -m tests.passbench.attacks.run_attacks"
begin=$SECONDS
mkdir -p "$out"
(
  timeout 45 $run --device "$device" --honest-only --only attention_with_a_mask > "$out/attention.txt" 2>&1
  timeout 60 python3 -m pytest -q -rf -p no:cacheprovider -m gpu tests/passbench/workers tests/passbench/test_trial.py \
    > "$out/tests.txt" 2>&1
  timeout 130 python3 -m pytest -q -rf -p no:cacheprovider -m gpu tests/agent/learning/test_reward.py \
    --deselect tests/agent/learning/test_reward.py::test_attacks_earn_nothing_on_a_gpu > "$out/reward_test.txt" 2>&1
) &
cp "$known" "$out/attack_rewards.json"
timeout 85 python3 -m benchmarks.learning.exported_tasks.attack_rewards --out "$out/attack_rewards.json" --device "$device" \
  --side-by-side 3 --seconds 70 > "$out/rewards.txt" 2>&1
timeout 120 python3 -m tests.passbench.gpu_session --only attacks,honest --jobs 3 --repeats 20 \
  --budget $((195 - SECONDS + begin)) --out "$out/session" > "$out/session.txt" 2>&1
wait
tail -n 30 "$out"/*.txt
