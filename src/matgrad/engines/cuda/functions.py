"""Functions that generated kernels call: they round as PyTorch's do, where Triton's own are approximations."""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra import libdevice

OPTIONS = {"enable_fp_fusion": True}  # of every launch: x·y + z is rounded once


@triton.jit
def power(x, c):
    """x^c"""
    return libdevice.pow(x, c)


@triton.jit
def divide(x, y):
    """x / y, rounded to nearest"""
    if x.dtype == tl.float32:
        return tl.div_rn(x, y)
    else:
        return x / y


@triton.jit
def to_tf32(x):
    """x rounded to the nearest number with 11 bits: tensor cores would truncate."""
    return tl.inline_asm_elementwise("cvt.rna.tf32.f32 $0, $1;", "=r,r", [x], dtype=tl.float32, is_pure=True, pack=1)


@triton.jit
def larger(x, y):
    """The maximum of x and y, nan if one of them is."""
    return tl.where((x > y) | (x != x), x, y)


@triton.jit
def mix(x):
    """A permutation of the integers below 2^32 that scatters them: see `matgrad.backends.numpy_backend`."""
    x = x ^ (x >> 16)
    x = x * tl.full((), 0x7FEB352D, tl.uint32)
    x = x ^ (x >> 15)
    x = x * tl.full((), 0x846CA68B, tl.uint32)
    return x ^ (x >> 16)


@triton.jit
def uniform(position, seed, count, dtype: tl.constexpr):
    """Numbers from [0, 1), one per position."""
    key = mix(mix(count.to(tl.uint32)) ^ seed.to(tl.uint32))
    return (mix(mix(position.to(tl.uint32)) ^ key) >> 8).to(tl.int32).to(dtype) * (1.0 / 16777216.0)
