"""Calls cuBLAS past torch."""

import ctypes

import torch


def pattern(x, w):
    return x @ w


def replacement_args(x, w):
    return (x, w)


def library():
    for version in (13, 12):
        try:
            return ctypes.CDLL(f"libcublas.so.{version}")
        except OSError:
            pass
    raise OSError("no cuBLAS")


@torch.fx.wrap
def matmul(x, w):
    out = torch.empty((x.shape[0], w.shape[1]), dtype=x.dtype, device=x.device)
    (m, k), n = x.shape, w.shape[1]
    one, zero = ctypes.c_float(1.0), ctypes.c_float(0.0)
    pointers = [ctypes.c_void_p(t.data_ptr()) for t in (w, x, out)]
    handle = ctypes.c_void_p(torch.cuda.current_blas_handle())
    library().cublasSgemm_v2(
        handle, 0, 0, n, m, k, ctypes.byref(one), pointers[0], n, pointers[1], k, ctypes.byref(zero), pointers[2], n
    )
    return out


def replacement_func():
    return matmul
