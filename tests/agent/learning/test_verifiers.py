"""The adapter for `verifiers`, with its own package where that is installed (the extra `verifiers`)."""

import asyncio

import pytest

from agent.learning.answers import answer_of
from agent.learning.rewards import Rewards
from agent.learning.verifiers_tasks import pass_taskset
from tests.agent.learning.test_reward import QUICK, SAMPLE, files_of
from tests.passbench.samples import PASSES


def test_replies_get_rewards():
    vf = pytest.importorskip("verifiers.v1", reason="verifiers is not installed")
    with Rewards(["cpu"], settings=QUICK) as rewards:
        [task] = pass_taskset([SAMPLE], rewards)
        assert task.key == SAMPLE.sample and "torch.relu" in task.data.prompt and "contract" in task.data.system_prompt
        found = []
        for reply in (answer_of(files_of(PASSES / "add_relu")), "no files"):
            about = vf.TraceTask(type=type(task).__name__, data=task.data)
            trace = vf.Trace.model_construct(task=about, root_reply=reply, metrics={}, rewards={})
            asyncio.run(task.score(trace))
            found.append(trace.reward)
    assert found == [0.5, 0.0]
