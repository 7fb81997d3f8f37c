"""A model of a user's own, for `module:function`."""

import torch

from tests.passbench.models.small_models import Residual


def residual() -> tuple:
    """A model and its arguments."""
    torch.manual_seed(0)
    return Residual(), (torch.randn(4, 8),)


def raising() -> tuple:
    """What a user's function may do."""
    raise ValueError("no weights here")


def tensor_alone() -> tuple:
    """Arguments that are no tuple."""
    return Residual(), torch.randn(4, 8)


def too_wide() -> tuple:
    """A call on which the model fails."""
    return Residual(), (torch.randn(4, 9),)


def without_parameters() -> tuple:
    """A model that has no weights."""
    return torch.nn.ReLU(), (torch.randn(4, 9),)
