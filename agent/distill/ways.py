"""Which variations of plain regions and kernels a search looks for."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Ways:
    """Each is off unless it is set.

    `own_schedule`: kernels are those that TorchInductor makes of a region, else as few as can be.

    `biases`: kernels add also biases of convolutions, as eager does on a GPU, and with any rounding those of linears in
    single precision. Those that eager adds apart from a linear's product they always add.

    `split_linears`: kernels add biases of linears in single precision whatever the rounding.

    `channels_last`: whole graphs have their half-type convolutions in channels-last memory.

    `joined`: regions that need no library call of each other are one.

    `products`: kernels compute small products of matrices.
    """

    own_schedule: bool = False
    biases: bool = False
    channels_last: bool = False
    split_linears: bool = False
    joined: bool = False
    products: bool = False


PLAIN = Ways()
