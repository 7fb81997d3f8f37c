"""How floating-point inputs are drawn."""

from enum import Enum


class Distribution(Enum):
    """How floating-point inputs are drawn; within [low, high] where the record declares a range.

    Parameters and buffers keep the record's moments: they are drawn as NORMAL instead of SCALED, OFFSET and SPARSE, and
    have less freedom in VARIED.
    """

    NORMAL = "normal"  # the declared mean and std, or uniform over the declared range
    VARIED = "varied"  # each call with another std and mean, or part of the range, and with spikes at random places
    SCALED = "scaled"  # four times the std, or the ends of the range
    OFFSET = "offset"  # the mean shifted by two std, or the upper quarter of the range
    SPARSE = "sparse"  # nine of ten values zero, or the range's value nearest to zero


CORRECTNESS = (
    Distribution.NORMAL,
    Distribution.SCALED,
    Distribution.OFFSET,
    Distribution.SPARSE,
    Distribution.VARIED,
)
"""Distributions of successive correctness draws."""
