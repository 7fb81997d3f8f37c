"""What calls of a filled draw find in fresh memory, and that they compute as all others do."""

import pytest
import torch
import torch.nn.functional as F

from passbench.child.filled_memory import _requests, fill_free_memory, filled_memory

MADE = {
    "empty": lambda x: torch.empty(3, 4, device=x.device),
    "empty_like": torch.empty_like,
    "empty_strided": lambda x: torch.empty_strided((3, 4), (0, 1), device=x.device),
    "empty_permuted": lambda x: torch.empty_permuted((3, 4), (1, 0), device=x.device),
    "new_empty": lambda x: x.new_empty(5),
    "new_empty_strided": lambda x: x.new_empty_strided((2, 2), (4, 1)),
    "new_tensor": lambda x: torch.Tensor.new(x, 5),
    "prims.empty_strided": lambda x: torch.ops.prims.empty_strided((3,), (1,), **_like(x)),
    "prims.empty_permuted": lambda x: torch.ops.prims.empty_permuted((3,), (0,), **_like(x)),
    "resize": lambda x: torch.ops.aten.resize(x, (9,))[x.numel() :],
    "resize of a view": lambda x: torch.ops.aten.resize(torch.ones(99)[90:92], (9,))[2:],
    "resize_": lambda x: x.resize_(9)[6:],
}


def _like(x):
    return {"dtype": x.dtype, "device": x.device, "requires_grad": False}


@pytest.mark.parametrize("name", MADE)
def test_fresh_memory_holds_nothing_of_earlier_calls(name):
    with filled_memory():
        assert MADE[name](torch.ones(2, 3)).isnan().all()


@pytest.mark.gpu
@pytest.mark.parametrize("size", [12, 5_000, 1 << 18, 300_000, 1 << 20, 3_000_000, 40_000_000])
def test_free_memory_of_a_gpu_holds_nothing_of_earlier_calls(size):
    kept = torch.ones(size, device="cuda")
    made = [torch.ones(size, device="cuda") for _ in range(5)]
    del made[::2], made[-1]
    reserved = torch.cuda.memory_reserved()
    held = fill_free_memory()
    assert torch.cuda.memory_reserved() == reserved
    assert all(sum(one.data_ptr() in block for block in held) == 1 for one in (kept, *made))
    fresh = [torch.empty(size, device="cuda") for _ in range(3)]  # all before the first look, which allocates, too
    assert not any(one.data_ptr() in block for one in fresh for block in held)
    assert all(one.isnan().all() for one in fresh)
    assert (kept == 1).all() and (made[0] == 1).all()


@pytest.mark.gpu
def test_memory_of_a_cuda_graph_is_left_alone():
    x, graph = torch.ones(1 << 19, device="cuda"), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = (x + 1) * 2
    graph.replay()
    fill_free_memory()
    torch.cuda.synchronize()
    assert (result == 4).all()


@pytest.mark.parametrize("size", [512, 1 << 20, (1 << 20) + 512, 2 << 20])
def test_a_free_block_is_asked_for_whole_as_far_as_torch_hands_it_out(size):
    assert sum(_requests(size, large=False)) == size and max(_requests(size, large=False)) <= 1 << 20
    assert _requests(size, large=True) == ([size] if size > 1 << 20 else [])


def test_what_a_tensor_held_stays_where_it_gets_more_memory():
    with filled_memory():
        assert torch.ops.aten.resize(torch.ones(2, 3), (9,))[:6].tolist() == [1.0] * 6
        assert torch.ones(9).resize_(3).resize_(6).tolist() == [1.0] * 6


def test_memory_of_other_layouts_is_left_alone():
    with filled_memory():
        assert torch.empty(3, 3, layout=torch.sparse_coo).to_dense().tolist() == [[0.0] * 3] * 3


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.complex64, torch.int8, torch.int64, torch.bool])
def test_every_dtype(dtype):
    with filled_memory():
        made = torch.empty(4, dtype=dtype)
        assert torch.empty(0, dtype=dtype).numel() == 0 and torch.empty(3, dtype=dtype, device="meta").shape == (3,)
    floating = dtype.is_floating_point or dtype.is_complex
    largest = True if dtype is torch.bool else None if floating else torch.iinfo(dtype).max
    assert made.isnan().all() if floating else (made == largest).all()
    assert not torch.are_deterministic_algorithms_enabled()


@pytest.mark.parametrize("dtype", [torch.float4_e2m1fn_x2, torch.bits16, torch.uint4, torch.qint32])
def test_types_without_nan_and_largest_integer_have_ones_in_every_bit(dtype):
    """`empty` of `float4_e2m1fn_x2` raised: torch fills none."""
    with filled_memory():
        made = torch.empty(4, dtype=dtype)
        assert torch.empty(0, dtype=dtype).numel() == 0 and torch.empty(3, dtype=dtype, device="meta").shape == (3,)
    assert bytes(made.untyped_storage()) == b"\xff" * 4 * dtype.itemsize


COMPUTED = {
    "interpolate": lambda x, w: F.interpolate(x, (17, 11), mode="bilinear", align_corners=False),
    "convolution": lambda x, w: F.conv2d(x, w, padding=1),
    "its gradient": lambda x, w: torch.ops.aten.convolution_backward(
        F.conv2d(x, w, padding=1), x, w, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1, [True, True, False]
    )[1],
    "attention": lambda x, w: F.scaled_dot_product_attention(x, x, x),
}


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("name", COMPUTED)
def test_results_have_the_bits_of_other_calls(name, dtype, device):
    """With torch's own filling, which asks for deterministic algorithms, an interpolation had others on a GPU."""
    generator = torch.Generator(device).manual_seed(0)
    x, w = (torch.randn(*size, generator=generator, device=device) for size in ((4, 64, 33, 33), (64, 64, 3, 3)))
    x, w = x.to(dtype), w.to(dtype)
    usual = COMPUTED[name](x, w)
    with filled_memory():
        found = COMPUTED[name](x, w)
    assert torch.equal(found, usual)
