"""How a pass is written."""

from dataclasses import dataclass, field

from agent.distill.kernels.launch_configs import LaunchLimits
from agent.distill.rounding import Confirms
from agent.distill.ways import Ways


@dataclass(frozen=True)
class Style:
    """How a pass is written. Its launches keep within `limits`.

    `captured`: whole graphs are replaced, launches and library calls alike, and replayed as CUDA graphs
    (`agent.distill.whole_graphs`).

    `general`: sizes that differ between variants are arguments of the kernels, which are compiled once for all
    variants. Otherwise they are constants, and a kernel is compiled for each.

    `own_schedule`: which kernels a region becomes is TorchInductor's choice; else they are as few as can be.

    `branches`: what needs nothing of each other is side by side in these CUDA graphs (`agent.distill.branches`).

    `channels_last`: whole graphs are replaced, with half-type convolutions in channels-last memory
    (`agent.distill.rewrites.channels_last`).

    `split_linears`: kernels add the biases of linears in single precision, whatever else rounds as eager does
    (`agent.distill.rewrites.split_biases`).

    `joined`: regions that need no library call of each other are one.

    `products`: kernels compute small products of matrices, in an order of their own
    (`agent.distill.kernels.formulas.small_products`).

    `for_others`: kernels for inputs that are no variant's are written, too (`agent.distill.other_inputs`), where this
    says that the orders in which they add are eager's. That takes time, and is for the pass that is handed in.

    `compiled`: whole graphs are replaced by TorchInductor's own code in these numerics (`agent.distill.inductor`), ""
    for none; its kernels have the configurations of number `config` among those that TorchInductor chooses from.
    """

    limits: LaunchLimits = field(default_factory=LaunchLimits)
    general: bool = False
    captured: bool = False
    own_schedule: bool = False
    branches: bool = False
    channels_last: bool = False
    split_linears: bool = False
    joined: bool = False
    products: bool = False
    for_others: Confirms | None = None
    compiled: str = ""
    config: int = 0

    @property
    def ways(self) -> Ways:
        """The ways in which its regions are looked for."""
        return Ways(
            own_schedule=self.own_schedule,
            channels_last=self.channels_last,
            split_linears=self.split_linears,
            joined=self.joined,
            products=self.products,
        )

    @property
    def other_regions(self) -> bool:
        """Whether regions are others than those of the graph as it is."""
        return self.channels_last or self.joined

    @property
    def measured_apart(self) -> bool:
        """Whether no search begins with it: regions, products or code are others than those of the graph as it is."""
        return self.other_regions or self.split_linears or self.products or bool(self.compiled)

    @property
    def whole(self) -> bool:
        """Whether whole graphs are replaced."""
        return self.captured or self.channels_last or bool(self.compiled)
