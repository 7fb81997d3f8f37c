"""What a model that learns to write passes needs: a reward, tasks, demonstrations, a recipe.

In: samples, and passes as files by name. Out: `Reward`s, tasks in Harbor's layout, chat data. Read first: `reward.py`
(the number), then `rewards.py` (many at a time, in warm processes).

May import: agent.author, agent.distill, agent.llm, passbench, storage.
"""
