"""What exchanges have in common under either clock: how they are staged, in which order, and what is checked after."""

from collections.abc import Callable

from passbench.inputs.batch_layout import BatchLayout
from passbench.ipc.messages import Collect, CollectReplayed, Go, Wake
from passbench.timing.statistics import Exchange, Pairs
from passbench.workers.worker_handle import WorkerHandle
from passbench.workers.worker_pair import WorkerPair

PAIRS_IN_ONE_ORDER = 6
"""Half of the fewest pairs after which timing may stop: whoever runs first takes 0.7 to 1 % longer, which falls out
where either side is first in as many pairs."""


class PairExchanges:
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

    def in_turn(
        self, pairs: Pairs, in_one_order: int = PAIRS_IN_ONE_ORDER
    ) -> list[tuple[WorkerHandle, list[Exchange]]]:
        """Both workers in the order of the next pair, each with the list of `pairs` that its exchanges belong into.

        They take turns: after its own exchange a worker would find the GPU's caches of code and addresses as it left
        them, and be up to 0.1 ms faster. Who begins is random, and the order changes after `in_one_order` pairs, so
        that a drift falls out.
        """
        if pairs.candidate_began is None:
            pairs.candidate_began = self.pair.rng.random() < 0.5
        order = [(self.pair.eager, pairs.eager), (self.pair.candidate, pairs.candidate)]
        changed = len(pairs.eager) // in_one_order % 2 == 1
        return order[::-1] if pairs.candidate_began ^ changed else order

    def timed(self, worker: WorkerHandle, layout: BatchLayout, go: Go, seed: int) -> Exchange:
        """One exchange of a worker, whose outputs are collected. `seed` is that of random operators. The first call of
        a rehearsed batch is made before the inputs of the others are handed over, and does not count."""
        go = self.pair.stage(worker, layout, seed, go)
        self.hand_over(worker, layout)
        reply, nanoseconds = self.pair.timed(worker, go, self.pair.settings.call_timeout)
        self.collect(worker, layout, Collect())
        return Exchange(layout.batch.calls - go.first, nanoseconds / 1000, reply.host_us)

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
