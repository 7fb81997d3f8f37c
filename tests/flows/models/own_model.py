"""A model of a user's own, for `module:function`."""

import torch

from tests.passbench.models.test_serving import Residual


def residual() -> tuple:
    """A model and its arguments."""
    torch.manual_seed(0)
    return Residual(), (torch.randn(4, 8),)
