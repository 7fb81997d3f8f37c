"""What a pass may import from PassBench: launches that cost the host little.

In: a kernel or a function of the pass, and tensors. Out: `Launch` launches a kernel, `LaunchPlan` allocates and
launches all that a wrapper does, `plan_for` finds one by a call's shapes, `captured` replays a function's launches as a
CUDA graph, `branch` puts some of them side by side, `empty_strided` allocates. All is trusted code: it runs nothing of
a pass but the kernel or the function that it was made for. Read first: `kernel_launch.py`, then `capture.py`.
May import: storage.
"""

from passbench.launch.allocation import empty_strided
from passbench.launch.branches import branch
from passbench.launch.capture import captured
from passbench.launch.kernel_launch import Launch
from passbench.launch.launch_plan import LaunchPlan
from passbench.launch.plan_table import PlanTable, plan_for

__all__ = ["Launch", "LaunchPlan", "PlanTable", "branch", "captured", "empty_strided", "plan_for"]
