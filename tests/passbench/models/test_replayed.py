"""Copies of a CUDA graph's outputs, which need no GPU to be looked at."""

import torch

from passbench.models.replayed import _copying


def test_copies_have_the_strides_of_what_they_copy():
    x = torch.randn(4, 6)
    outputs = [x * 2, (x * 3).t(), (x * 4)[:, ::2], torch.randn(6).expand(4, 6)]
    for a, b in zip(_copying(outputs)(outputs), outputs, strict=True):
        assert torch.equal(a, b) and a.stride() == b.stride() and a.data_ptr() != b.data_ptr()


def test_outputs_that_share_memory_share_that_of_the_copy():
    y = torch.randn(8)
    outputs = [y, y[1:], torch.ones(2), y.view(2, 4)]
    copies = _copying(outputs)(outputs)
    assert all(torch.equal(a, b) and a.stride() == b.stride() for a, b in zip(copies, outputs, strict=True))
    copies[0].zero_()
    assert not copies[3].any() and not copies[1].any() and copies[2].all() and y.any()
