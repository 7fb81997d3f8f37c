"""What exchanges have in common under either clock: how they are staged, in which order, and what is checked after."""

from collections.abc import Callable

from passbench.inputs.batch_layout import BatchLayout
from passbench.ipc.messages import Collect, CollectReplayed, Stage, Wake
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
        """Both workers in random order, each with the list of `pairs` that its exchanges belong into.

        Of two pairs, each worker is first in one: what being first costs falls out.
        """
        order = [(self.pair.eager, pairs.eager), (self.pair.candidate, pairs.candidate)]
        if len(pairs.eager) % 2 == 0:
            pairs.candidate_first = self.pair.rng.random() < 0.5
        else:
            pairs.candidate_first = not pairs.candidate_first
        return order[::-1] if pairs.candidate_first else order

    def stage(self, worker: WorkerHandle, layout: BatchLayout, seed: int) -> None:
        """Have a worker make a batch of calls ready, and only then hand over the inputs: nothing of a pass runs between
        that and the clock."""
        pair = self.pair
        command = Stage(layout.batch, pair.outputs, seed, pair.layers.has("output_contract"))
        pair.ask(worker, command, pair.settings.call_timeout)
        self.hand_over(worker, layout)

    def hand_over(self, worker: WorkerHandle, layout: BatchLayout) -> None:
        """Give a worker the inputs of the exchange that is timed next, and have the GPU turn to its process."""
        self.pair.hand_over(worker, layout)
        self.pair.ask(worker, Wake(), self.pair.settings.call_timeout)

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
