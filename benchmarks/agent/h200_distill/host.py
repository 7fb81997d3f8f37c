"""What a call of eager, a launch and a wrapper cost the host, in microseconds; needs a GPU."""

import sys
import time

import torch
import triton
import triton.language as tl

sys.path.insert(0, ".")
from passbench.launch import Launch


@triton.jit
def k1(a, b, o, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(o + i, tl.load(a + i, mask=i < n) + tl.load(b + i, mask=i < n), mask=i < n)


a = torch.randn(64, 256, device="cuda")
b = torch.randn_like(a)
o = torch.empty_like(a)
n = a.numel()
L = Launch(k1, (n // 256,), n=n, BLOCK=256, num_warps=4, enable_fp_fusion=False)
P = {(torch.float32, a.shape, a.stride(), torch.float32, a.shape, a.stride()): (L, 1)}


def t(name, f, N=3000):
    for _ in range(50):
        f()
    torch.cuda.synchronize()
    best = 1e9
    for _ in range(7):
        s = time.perf_counter()
        for _ in range(N):
            f()
        e = time.perf_counter()
        torch.cuda.synchronize()
        best = min(best, (e - s) / N)
    print(f"{name:28} {best * 1e6:.2f} us", flush=True)


def fused(x, y):
    launch, _ = P[x.dtype, x.shape, x.stride(), y.dtype, y.shape, y.stride()]
    out = torch.empty_strided((64, 256), (256, 1), dtype=torch.float32, device=x.device)
    launch(x, y, out)
    return out


t("nothing", lambda: None)
t("eager add", lambda: a + b)
t("eager relu", lambda: torch.relu(a))
t("layer_norm", lambda: torch.nn.functional.layer_norm(a, (256,)))
t("jit launch", lambda: k1[(n // 256,)](a, b, o, n, BLOCK=256, num_warps=4, enable_fp_fusion=False))
t("Launch", lambda: L(a, b, o))
t("plan lookup", lambda: P[a.dtype, a.shape, a.stride(), b.dtype, b.shape, b.stride()])
t("empty_strided", lambda: torch.empty_strided((64, 256), (256, 1), dtype=torch.float32, device=a.device))
t("empty_like", lambda: torch.empty_like(a))
t("new_empty_strided", lambda: a.new_empty_strided((64, 256), (256, 1)))
t("data_ptr x3", lambda: (a.data_ptr(), b.data_ptr(), o.data_ptr()))
t("get_device", lambda: a.get_device())
t("dtype tuple", lambda: tuple([x.dtype for x in (a, b, o)]))
run, (fn, md) = L._run, L._handles
ps = (a.data_ptr(), b.data_ptr(), o.data_ptr())
t("stream", lambda: L._stream(0))
s = L._stream(0)
t("compiled.run", lambda: run(64, 1, 1, s, fn, md, None, None, None, *ps, *L._rest))
raw = getattr(run, "launch", None)
if raw:
    t("raw launch", lambda: raw(64, 1, 1, s, fn, False, False, None, None, md, None, None, None, *ps, *L._rest))
t("wrapper in all", lambda: fused(a, b))
