"""PassBench as a taskset of `verifiers` (its v1 interface): `pip install -e '.[verifiers]'` in PassNet's repository.

with passnet.rewards() as rewards:
    tasks = pass_taskset(samples, rewards)
    ...  # iterate it, or hand it to verifiers' own runners

The answer is the text of the last reply, as `agent.learning.answers` reads it; its reward is PassBench's.
"""

import asyncio
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from agent.learning.answers import files_of
from agent.learning.rewards import Rewards
from agent.learning.trl_rewards import prompt_of
from storage.errors import PassNetError, installed_by
from storage.records import Sample

if TYPE_CHECKING:
    import verifiers.v1 as vf


def pass_taskset(samples: Sequence[Sample], rewards: Rewards) -> "vf.Taskset":
    """A taskset with a task for each sample. Raises PassNetError without verifiers."""
    try:
        import verifiers.v1 as vf
    except ImportError as error:
        raise PassNetError(f"this needs verifiers ({error}): {installed_by('verifiers')}") from error
    by_name = {sample.sample: sample for sample in samples}

    class PassTask(vf.Task[vf.TaskData, vf.State, vf.TaskConfig]):
        """A sample; whoever answers it writes a pass."""

        @property
        def key(self) -> str:
            return self.data.name

        @vf.reward
        async def pass_reward(self, trace: vf.Trace) -> float:
            """The reward of the last reply, from 0 to 1."""
            files = files_of(trace.last_reply)
            return (await asyncio.to_thread(rewards, by_name[self.data.name], files)).value

    class PassTaskset(vf.Taskset[PassTask, vf.TasksetConfig]):
        """A task for each sample."""

        def load(self) -> Iterator[PassTask]:
            for name, sample in by_name.items():
                system, user = (message["content"] for message in prompt_of(sample))
                yield PassTask(vf.TaskData(name=name, prompt=user, system_prompt=system))

    return PassTaskset(vf.TasksetConfig(id="passnet"))
