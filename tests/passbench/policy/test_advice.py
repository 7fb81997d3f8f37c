"""What a refusal says to write instead, and that this is allowed."""

import pytest

from tests.passbench.policy.test_policy import IMPORTS, check, in_wrapper

SAID = {
    "os.environ.setdefault('TRITON_X', '1')": ("leave the setting out", "pass"),
    "z = os.getenv('FUSE_DEBUG', '0') == '1'": ("write the value into the source", "z = '0' == '1'"),
    "torch.set_float32_matmul_precision('high')": ("leave the line out", "pass"),
    "torch.manual_seed(0)": ("leave the line out", "pass"),
    "torch.cuda.empty_cache()": ("leave the line out", "pass"),
    "torch.set_grad_enabled(False)": ("leave it out", "pass"),
    "z = torch.cuda.current_stream()": ("leave streams out", "pass"),
    "torch._check(n > 0)": ("write assert", "assert n > 0"),
    "torch.cuda.nvtx.range_push('fused')": ("leave it out", "pass"),
    "z = triton.runtime.driver.active.utils.load_binary('a', b'', 0, 0)": (
        "torch.cuda.get_device_properties(x.device)",
        "z = torch.cuda.get_device_properties(x.device).multi_processor_count",
    ),
    "z = torch.FloatTensor([1.0])": ("torch.tensor", "z = torch.tensor([1.0], dtype=torch.float32, device=x.device)"),
    "z = x.tolist()": ("the host reads no values", "z = x.sum()"),
    "z = {id(n): 1}": ("keys of shapes, dtypes and numbers", "z = {(x.shape, x.dtype, n): 1}"),
    "z = x.new(4)": ("x.new_empty(shape)", "z = x.new_empty(4)"),
    "z = torch.ops.mine.f(x)": ("the pass's own function by its name", "z = x + y"),
    "triton.set_allocator(None)": ("leave the line out", "pass"),
    "wrapper.cache = {}": ("a dict of the module", "z = {}"),
    "z = locals()": ("keep them in a dict", "z = {'n': n}"),
    "print('a', file=open('log'))": ("file=sys.stderr alone", "print('a', file=sys.stderr)"),
}
"""What a wrapper does → part of what the finding says, and the same as it says."""


@pytest.mark.parametrize("what", SAID)
def test_following_it_is_enough(tmp_path, what):
    said, instead = SAID[what]
    assert any(said in f.message for f in check(tmp_path, IMPORTS + in_wrapper(what)))
    assert check(tmp_path, IMPORTS + in_wrapper(instead)) == []
