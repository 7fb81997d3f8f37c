"""TRL: the reward function; fine-tuning with its own trainer where it is installed (the extra `learning`)."""

import json

import pytest

from agent.learning import sft
from agent.learning.answers import answer_of
from agent.learning.demonstrations import row_of
from agent.learning.rewards import Rewards
from agent.learning.trl_rewards import PassReward, grpo_rows
from storage.errors import PassNetError
from tests.agent.learning.test_demonstrations import SPECS, mul_add, of_training_samples, solved, training
from tests.agent.learning.test_reward import QUICK, SAMPLE, files_of
from tests.passbench.samples import PASSES


def test_completions_get_rewards():
    good = answer_of(files_of(PASSES / "add_relu"))
    with Rewards(["cpu"], settings=QUICK) as rewards:
        reward = PassReward([SAMPLE], rewards)
        completions = [
            good,
            [{"role": "assistant", "content": good}],
            "no files",
            [{"role": "assistant", "content": None}],
        ]
        found = reward(prompts=[""] * 4, completions=completions, sample=[SAMPLE.sample] * 4, trainer_state=None)
        assert found == [0.5, 0.5, 0.0, 0.0]
        with pytest.raises(PassNetError, match="no sample other"):
            reward(completions=[good], sample=["other"])
    [row] = grpo_rows([SAMPLE])
    assert row["sample"] == SAMPLE.sample and "torch.relu" in row["prompt"][1]["content"]


def test_rows_as_the_trainer_takes_them():
    row = row_of(solved(training(mul_add, *SPECS)))
    plain = sft.example_of(row, "plain")
    assert [m["role"] for m in plain["prompt"] + plain["completion"]] == ["system", "user", "assistant"]
    tools = sft.example_of(row, "tools")["messages"]
    assert tools[2]["tool_calls"][0]["function"]["arguments"]["name"] == "fuse.py"


def test_without_demonstrations_it_says_so(tmp_path, capsys):
    assert sft.main(["--model", "m", "--data", str(tmp_path), "--out", str(tmp_path / "out")]) == 1
    assert "sft: " in capsys.readouterr().err


@pytest.fixture(scope="module")
def small_model(tmp_path_factory):
    """A model of one layer with random weights, and its tokenizer, in a directory."""
    pytest.importorskip("trl", reason="trl is not installed")
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    from benchmarks.learning.decoder.code_tokens import Text

    place = tmp_path_factory.mktemp("model")
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Text.trained(["import torch and add"], 300).tokenizer, eos_token="<end>", pad_token="<end>"
    )
    tokenizer.chat_template = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}<end>{% endfor %}"
    tokenizer.save_pretrained(place)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    LlamaForCausalLM(LlamaConfig(vocab_size=400, max_position_embeddings=50_000, **sizes)).save_pretrained(place)
    return place


def test_fine_tuning_a_small_model_and_going_on(small_model, tmp_path):
    from flows.cli.demonstrations import export_demonstrations

    export_demonstrations(tmp_path / "demonstrations", of_training_samples(tmp_path / "data"))
    given = ["--model", small_model, "--data", tmp_path / "demonstrations", "--out", tmp_path / "out", "--cpu"]
    given = [*map(str, given), "--accumulate", "1", "--longest", "40000", "--save-steps", "1", "--lora", "2"]
    assert sft.main([*given, "--steps", "1"]) == 0 and (tmp_path / "out" / "final").is_dir()
    assert sft.main([*given, "--steps", "2"]) == 0
    state = json.loads((tmp_path / "out" / "checkpoint-2" / "trainer_state.json").read_text())
    assert state["global_step"] == 2


def test_a_step_of_grpo_takes_the_reward(small_model, tmp_path):
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    with Rewards(["cpu"], settings=QUICK) as rewards:
        config = GRPOConfig(
            output_dir=str(tmp_path),
            max_steps=1,
            per_device_train_batch_size=2,
            num_generations=2,
            max_completion_length=4,
            logging_steps=1,
            use_cpu=True,
            bf16=False,
            report_to="none",
        )
        trainer = GRPOTrainer(
            str(small_model),
            reward_funcs=PassReward([SAMPLE], rewards),
            args=config,
            train_dataset=Dataset.from_list(grpo_rows([SAMPLE]) * 2),
        )
        trainer.train()
    assert trainer.state.log_history[0]["rewards/pass_reward/mean"] == 0.0  # random weights write no pass
