"""Which Triton expressions round as eager's CUDA kernels do: shares of elements that differ by a bit; needs a GPU."""

import importlib.util
import tempfile
from pathlib import Path

import torch
import torch.nn.functional as F
import triton
import triton.language as tl

SRC = """
import triton, triton.language as tl
from triton.language.extra import libdevice
@triton.jit
def {name}(x, o, n, BLOCK: tl.constexpr, DT: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n).to(tl.float32)
{body}
    tl.store(o + i, r, mask=i < n)
"""
C = {
    "erf": (lambda x: torch.erf(x), ["r = tl.erf(v)", "r = libdevice.erf(v)"]),
    "gelu": (
        lambda x: F.gelu(x),
        [
            "r = (v * 0.5) * (tl.erf(v * 0.7071067811865476) + 1.0)",
            "r = v * 0.5 * (1.0 + libdevice.erf(v * 0.7071067811865476))",
            "e = tl.erf(v * 0.7071067811865476)\n    r = tl.fma(v * 0.5, e, v * 0.5)",
            "r = v * (0.5 * (tl.erf(v * 0.7071067811865476) + 1.0))",
            "r = v * tl.fma(tl.erf(v * 0.7071067811865476), 0.5, 0.5)",
        ],
    ),
    "gelu_tanh": (
        lambda x: F.gelu(x, approximate="tanh"),
        [
            "c = v * v * v\n    r = 0.5 * v * (1.0 + libdevice.tanh(0.7978845608028654 * (v + 0.044715 * c)))",
            "c = v * v * v\n    r = 0.5 * v * (1.0 + libdevice.tanh(0.7978845608028654 * tl.fma(c, 0.044715, v)))",
        ],
    ),
    "tanh": (
        lambda x: torch.tanh(x),
        [
            "r = libdevice.tanh(v)",
            "d = tl.exp(-2.0 * tl.abs(v))\n    q = (1.0 - d) / (1.0 + d)\n    s = v * v\n"
            "    t = v * (1.0 - s * (0.3333333333 - s * (0.1333333333 - s * 0.0539682540)))\n"
            "    r = tl.where(tl.abs(v) < 0.15, t, tl.where(v < 0, -q, q))",
        ],
    ),
    "exp": (
        lambda x: torch.exp(x),
        ["r = tl.exp(v)", "r = libdevice.exp(v)", "r = libdevice.exp2(v * 1.4426950408889634)"],
    ),
    "log": (lambda x: torch.log(x.abs() + 1), ["r = tl.log(tl.abs(v) + 1)", "r = libdevice.log(tl.abs(v) + 1)"]),
    "sigmoid": (
        lambda x: torch.sigmoid(x),
        [
            "r = 1.0 / (1.0 + tl.exp(-v))",
            "r = tl.div_rn(1.0, 1.0 + libdevice.exp(-v))",
            "r = 1.0 / (1.0 + libdevice.exp(-v))",
            "r = tl.div_rn(1.0, 1.0 + tl.exp(-v))",
        ],
    ),
    "silu": (
        lambda x: F.silu(x),
        [
            "r = v / (1.0 + tl.exp(-v))",
            "r = tl.div_rn(v, 1.0 + libdevice.exp(-v))",
            "r = v / (1.0 + libdevice.exp(-v))",
            "r = v * (1.0 / (1.0 + tl.exp(-v)))",
            "r = tl.div_rn(v, 1.0 + tl.exp(-v))",
        ],
    ),
    "rsqrt": (
        lambda x: torch.rsqrt(x.abs() + 1e-6),
        [
            "r = tl.rsqrt((tl.abs(v) + 1e-6).to(DT).to(tl.float32))",
            "r = libdevice.rsqrt((tl.abs(v) + 1e-6).to(DT).to(tl.float32))",
        ],
    ),
    "sqrt": (lambda x: torch.sqrt(x.abs()), ["r = tl.sqrt(tl.abs(v))", "r = tl.sqrt_rn(tl.abs(v))"]),
    "div": (
        lambda x: x / (x * x + 1.7),
        [
            "r = v / ((v * v).to(DT).to(tl.float32) + 1.7).to(DT).to(tl.float32)",
            "r = tl.div_rn(v, ((v * v).to(DT).to(tl.float32) + 1.7).to(DT).to(tl.float32))",
        ],
    ),
    "hardswish": (
        lambda x: F.hardswish(x),
        [
            "r = v * tl.minimum(tl.maximum(v + 3.0, 0.0), 6.0) / 6.0",
            "r = v * tl.minimum(tl.maximum(v + 3.0, 0.0), 6.0) * 0.16666666666666666",
            "r = tl.div_rn(v * tl.minimum(tl.maximum(v + 3.0, 0.0), 6.0), 6.0)",
        ],
    ),
    "pow3": (lambda x: x.abs() ** 1.5, ["r = libdevice.pow(tl.abs(v), 1.5)", "r = tl.exp2(1.5 * tl.log2(tl.abs(v)))"]),
    "softplus": (lambda x: F.softplus(x), ["r = libdevice.log1p(libdevice.exp(v))", "r = tl.log(1.0 + tl.exp(v))"]),
}

PLACE = Path(tempfile.mkdtemp())
for name, (eager, bodies) in C.items():
    for n, body in enumerate(bodies):
        fn = f"{name}_{n}"
        (PLACE / f"{fn}.py").write_text(SRC.format(name=fn, body="    " + body))
        spec = importlib.util.spec_from_file_location(fn, PLACE / f"{fn}.py")
        m = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(m)
        k = getattr(m, fn)
        out = []
        for dt, td in ((torch.float32, tl.float32), (torch.float16, tl.float16), (torch.bfloat16, tl.bfloat16)):
            if dt == torch.float32:
                x = torch.randn(1 << 20, device="cuda") * 2
            else:
                x = torch.arange(-32768, 32768, dtype=torch.int32, device="cuda").to(torch.int16).view(dt)
                x = x[torch.isfinite(x.float()) & (x.float().abs() < 60)]
            e = eager(x)
            for fusion in (False, True):
                o = torch.empty_like(x)
                try:
                    k[(triton.cdiv(x.numel(), 256),)](x, o, x.numel(), BLOCK=256, DT=td, enable_fp_fusion=fusion)
                except Exception as err:
                    out.append(type(err).__name__)
                    continue
                bad = (o != e) & ~(o.isnan() & e.isnan())
                out.append(f"{bad.float().mean().item():.2e}")
        print(
            f"{fn:12} f32 {out[0]:9} {out[1]:9} f16 {out[2]:9} {out[3]:9} bf16 {out[4]:9} {out[5]:9}  {body[:70]!r}",
            flush=True,
        )
# batch norm and layer norm
for dt in (torch.float32, torch.float16, torch.bfloat16):
    x = torch.randn(2, 64, 14, 14, device="cuda", dtype=dt)
    w, b, mu = (torch.randn(64, device="cuda", dtype=dt) for _ in range(3))
    va = torch.rand(64, device="cuda", dtype=dt) + 0.5
    e = F.batch_norm(x, mu, va, w, b, False, 0.1, 1e-5)
    X, W, B, M, V = (t.float() for t in (x, w, b, mu, va))
    s = (1, -1, 1, 1)
    inv = torch.rsqrt(V + 1e-5).view(s)
    inv2 = (1 / torch.sqrt(V + 1e-5)).view(s)
    W, B, M = W.view(s), B.view(s), M.view(s)
    D = torch.Tensor.double
    forms = {
        "fma((x-m)*w, inv, b)": (D((X - M) * W) * D(inv) + D(B)).float(),
        "fma((x-m)*inv, w, b)": (D((X - M) * inv) * D(W) + D(B)).float(),
        "fma(x-m, inv*w, b)": (D(X - M) * D(inv * W) + D(B)).float(),
        "fma(x-m, w*inv2, b)": (D(X - M) * D(inv2 * W) + D(B)).float(),
        "fma((x-m)*w, inv2, b)": (D((X - M) * W) * D(inv2) + D(B)).float(),
        "fma(x, a, fma(-m,a,b))": (D(X) * D(inv * W) + D((D(-M) * D(inv * W) + D(B)).float())).float(),
    }
    print("batch_norm", dt, {k: f"{(v.to(dt) != e).float().mean().item():.1e}" for k, v in forms.items()}, flush=True)
