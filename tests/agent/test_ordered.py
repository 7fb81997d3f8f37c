"""Sums, means and norms in eager's order: the order itself, and the kernels' bits against sums taken in that order."""

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.exact import exact
from agent.order import Order, sum_order
from agent.pass_source import Case, Style, module_source
from agent.program import sketch
from agent.regions import region_of
from agent.rounding import Rounding, rounded
from passbench.policy import check_dir
from tests.agent.support import FLOATS, in_dtype, sample, tensor, variant
from tests.benchmarks.h200_distill.orders import added, cases, moments, rows_of

BFLOAT16, FLOAT32 = torch.bfloat16, torch.float32


def _sketch(function, *inputs):
    one = variant(function, *inputs)
    return sketch(region_of(one.graph, range(len(one.graph.ops))).graph, inputs)


def _sum_of(dims):
    return lambda x: torch.ops.aten.sum.dim_IntList(x * 2.0, list(dims))
