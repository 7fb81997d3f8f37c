"""PassBench as a reward function for TRL's GRPOTrainer. It needs nothing of TRL itself.

from agent.learning.trl_rewards import PassReward, grpo_rows

with passnet.rewards() as rewards:
    reward = PassReward(samples, rewards)
    trainer = GRPOTrainer(model, reward_funcs=reward, train_dataset=Dataset.from_list(grpo_rows(samples)), ...)
    trainer.train()
"""

from collections.abc import Mapping, Sequence
from typing import Any

from agent.learning.answers import files_of
from agent.learning.demonstrations import PLAIN
from agent.learning.rewards import Rewards
from agent.llm.prompt import SYSTEM
from agent.llm.task import describe_graphs
from storage.errors import PassNetError
from storage.records import Sample


def grpo_rows(samples: Sequence[Sample]) -> list[dict[str, Any]]:
    """Rows of a training set: `prompt`, a conversation, and `sample`, the id by which the reward finds the task."""
    return [{"prompt": prompt_of(sample), "sample": sample.sample} for sample in samples]


def prompt_of(sample: Sample) -> list[dict[str, str]]:
    """The contract and a task in plain form: the answer is text, as `agent.learning.answers` reads it."""
    task = PLAIN + describe_graphs(sample)
    return [{"role": "system", "content": SYSTEM}, {"role": "user", "content": task}]


class PassReward:
    """A reward function: completions and the dataset's column `sample` in, a reward from 0 to 1 for each out."""

    def __init__(self, samples: Sequence[Sample], rewards: Rewards) -> None:
        self._samples, self._rewards = {sample.sample: sample for sample in samples}, rewards
        self.__name__ = "pass_reward"  # by which TRL logs it

    def __call__(self, completions: Sequence[Any], sample: Sequence[str], **_: Any) -> list[float]:
        """Rewards of completions, which are texts or conversations. Raises PassNetError for a sample that it does not
        have."""
        if unknown := sorted(set(sample) - self._samples.keys()):
            raise PassNetError(f"the reward has no sample {unknown[0]}: give it all that the dataset has")
        answers = [files_of(text_of(completion)) for completion in completions]
        jobs = [(self._samples[name], files) for name, files in zip(sample, answers, strict=True)]
        return [reward.value for reward in self._rewards.score(jobs)]


def text_of(completion: str | Sequence[Mapping[str, Any]]) -> str:
    """The text of a completion: its own, or of the last message that has some."""
    if isinstance(completion, str):
        return completion
    texts = [message.get("content") for message in completion if message.get("content")]
    return str(texts[-1]) if texts else ""
