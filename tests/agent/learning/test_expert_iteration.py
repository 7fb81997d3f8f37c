"""A round of expert iteration: right answers become what is learned next, wrong ones and evaluation samples do not."""

from dataclasses import replace

import pytest
from datasets import load_dataset

from agent.learning import expert_iteration, sft
from agent.learning.answers import answer_of, files_of
from agent.learning.dataset import write_dataset
from agent.learning.expert_iteration import SCHEMA, LanguageModel, round_of
from agent.learning.leaks import HeldOut
from agent.learning.rewards import Rewards
from storage.errors import PassNetError
from tests.agent.learning.test_reward import QUICK, SAMPLE
from tests.agent.learning.test_reward import files_of as files_in
from tests.passbench.samples import PASSES
from tests.support.stores import publish_samples

GOOD, WRONG = (answer_of(files_in(PASSES / name)) for name in ("add_relu", "wrong"))
TASK = replace(SAMPLE, split="train", family_hash="f" * 64)


def test_the_best_right_answer_to_each_task_is_kept(tmp_path):
    other = replace(TASK, sample="never right")
    asked = []

    def answer(conversations):
        asked.extend(conversations)
        return [WRONG, GOOD, "nothing", WRONG]

    with Rewards(["cpu"], settings=QUICK) as rewards:
        done = round_of([TASK, other, replace(TASK, split="eval")], HeldOut.of(()), answer, rewards, 2)
    assert len(asked) == 4 and "torch.relu" in asked[0][1]["content"]
    assert (done.tasks, done.answers, done.right) == (2, 4, 1)
    [row] = [row for rows in done.rows.values() for row in rows]
    assert (row["sample"], row["reward"], row["speedup"]) == (TASK.sample, 0.5, None)
    assert files_of(row["completion"][0]["content"]) == files_of(GOOD)
    write_dataset(tmp_path / "round", "A round", "text\n", {"train": [row], "validation": []}, SCHEMA)
    loaded = load_dataset(str(tmp_path / "round"), "demonstrations", cache_dir=str(tmp_path / "cache"))
    assert sft.example_of(loaded["train"][0], "plain")["completion"][0]["content"] == row["completion"][0]["content"]
    assert len(sft.example_of(loaded["train"][0], "tools")["messages"]) == 6
    with pytest.raises(PassNetError, match="exists already"):
        write_dataset(tmp_path / "round", "A round", "text\n", {"train": [row]}, SCHEMA)


@pytest.fixture(scope="module")
def random_model(tmp_path_factory):
    """A model of one layer with random weights, and its tokenizer, in a directory."""
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    from benchmarks.learning.decoder.code_tokens import Text

    place = tmp_path_factory.mktemp("model")
    own = Text.trained(["import torch and add"], 300).tokenizer
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=own, eos_token="<end>", pad_token="<end>")
    tokenizer.chat_template = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}<end>{% endfor %}"
    tokenizer.save_pretrained(place)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    LlamaForCausalLM(LlamaConfig(vocab_size=400, max_position_embeddings=50_000, **sizes)).save_pretrained(place)
    return place


def test_a_model_answers_each_conversation(random_model):
    model = LanguageModel(str(random_model), "cpu", longest=3, batch=2)
    conversations = [[{"role": "user", "content": text}] for text in ("import", "import torch and", "add")]
    assert [isinstance(text, str) for text in model(conversations)] == [True] * 3


def test_a_model_that_is_never_right_leaves_no_dataset(random_model, tmp_path, capsys):
    version = publish_samples([TASK], tmp_path / "data")
    given = ["--model", random_model, "--version", version.path, "--out", tmp_path / "round", "--samples", "1"]
    given += ["--longest", "2", "--devices", "cpu"]
    assert expert_iteration.main([*map(str, given)]) == 1
    assert "none of 1 answers was right" in capsys.readouterr().err and not (tmp_path / "round").exists()
