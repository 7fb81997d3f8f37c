"""What exchanges have in common under either clock: how they are staged, in which order, and what is checked after."""

from collections.abc import Callable

from passbench.inputs.batch_layout import BatchLayout
from passbench.ipc.messages import Collect, CollectReplayed, Stage
from passbench.timing.statistics import Exchange, Pairs
from passbench.workers.worker_handle import WorkerHandle
from passbench.workers.worker_pair import WorkerPair


class CheckedExchanges:
    """Exchanges with a pair of workers whose inputs and outputs are checked outside the clock.

    `check_inputs` checks the inputs of a batch that the candidate has run, before its outputs are collected. `compare`
    compares the outputs of both workers. Both raise VariantFailure, and so does every exchange.
    """

    def __init__(
        self,
        pair: WorkerPair,
        check_inputs: Callable[[BatchLayout], None],
        compare: Callable[[BatchLayout], None],
    ) -> None:
        self.pair = pair
        self._check_inputs, self._compare = check_inputs, compare

    def shuffled(self, pairs: Pairs) -> list[tuple[WorkerHandle, list[Exchange]]]:
        """Both workers in random order, each with the list of `pairs` that its exchanges belong into."""
        order = [(self.pair.eager, pairs.eager), (self.pair.candidate, pairs.candidate)]
        self.pair.rng.shuffle(order)
        return order

    def stage(self, worker: WorkerHandle, layout: BatchLayout, seed: int) -> None:
        """Have a worker make a batch of calls ready, and only then hand over the inputs: nothing can be computed ahead
        of the clock."""
        pair = self.pair
        command = Stage(layout.batch, pair.outputs, seed, pair.layers.has("output_contract"))
        pair.ask(worker, command, pair.settings.call_timeout)
        pair.hand_over(worker, layout)

    def collect(self, worker: WorkerHandle, layout: BatchLayout, command: Collect | CollectReplayed) -> None:
        """Have a worker copy its outputs out, after a look at its inputs."""
        if worker is self.pair.candidate:
            with self.pair.phases("check inputs"):
                self._check_inputs(layout)
        if self.pair.layers.has("late_inputs"):
            self.pair.spoil_inputs(worker, layout)
        self.pair.ask(worker, command, self.pair.settings.call_timeout)

    def compare(self, layout: BatchLayout) -> None:
        """Compare the outputs of every call of a batch, unless that layer is off."""
        if self.pair.layers.has("timed_outputs_checked"):
            with self.pair.phases("compare"):
                self._compare(layout)
