"""Triton kernels of the softmax over all pairs of rows, which write no value of a pair to a GPU's memory.

They compute the logits x_ij = ratio u_ij + bias_j with u_ij = z_i . z_j, block by block; bias_j is 0 for
prototypes. A row is no candidate of itself. Inside, logits are divided by ln 2, since GPUs have instructions
for powers of 2.

Shapes: B rows, L prototypes, D embedding, T temperatures; I, J the rows and columns of a block.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

LOG2_E = tl.constexpr(1.4426950408889634)
LN_2 = tl.constexpr(0.6931471805599453)
EXCLUDED = tl.constexpr(-1e30)


@triton.jit
def _load_block(z, row_I, last, dim, D: tl.constexpr):
    """Loads rows of z, with zeros from row `last` and from column `dim` on."""
    d_D = tl.arange(0, D)
    offset_ID = row_I.to(tl.int64)[:, None] * dim + d_D[None, :]
    return tl.load(z + offset_ID, mask=(row_I < last)[:, None] & (d_D < dim)[None, :], other=0.0)


@triton.jit
def _logits(u_IJ, i_I, j_J, ratio, bias_J, last):
    x_IJ = u_IJ * (ratio * LOG2_E) + bias_J[None, :]
    return tl.where((j_J < last)[None, :] & (i_I[:, None] != j_J[None, :]), x_IJ, EXCLUDED)


@triton.jit
def _logsumexp(
    z, ratio_T, lse_TN, rest_TN, bias, own, rows, total, dim,
    MOMENTS: tl.constexpr, FORM: tl.constexpr, D: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    t = tl.program_id(1)
    ratio = tl.load(ratio_T + t)
    i_I = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    left_ID = _load_block(z, i_I, own, dim, D)
    top_I = tl.full((ROWS,), EXCLUDED, tl.float32)
    sum_I = tl.zeros((ROWS,), tl.float32)
    moment_I = tl.zeros((ROWS,), tl.float32)
    for start in range(0, total, COLS):
        j_J = start + tl.arange(0, COLS)
        bias_J = tl.where(j_J < rows, bias * LOG2_E, 0.0)
        right_JD = _load_block(z, j_J, total, dim, D)
        u_IJ = tl.dot(left_ID, tl.trans(right_JD), input_precision=FORM)
        x_IJ = _logits(u_IJ, i_I, j_J, ratio, bias_J, total)
        new_top_I = tl.maximum(top_I, tl.max(x_IJ, 1))
        shift_I = top_I - new_top_I
        x_IJ -= new_top_I[:, None]
        p_IJ = tl.exp2(x_IJ)
        if MOMENTS:
            moment_I += sum_I * shift_I
            moment_I = moment_I * tl.exp2(shift_I) + tl.sum(p_IJ * (x_IJ - bias_J[None, :]), 1)
        sum_I = sum_I * tl.exp2(shift_I) + tl.sum(p_IJ, 1)
        top_I = new_top_I
    offset_I = t.to(tl.int64) * own + i_I
    tl.store(lse_TN + offset_I, (top_I + tl.log2(sum_I)) * LN_2, mask=i_I < own)
    if MOMENTS:
        tl.store(rest_TN + offset_I, (tl.log2(sum_I) - moment_I / sum_I) * LN_2, mask=i_I < own)


@triton.jit
def _gradient(
    z, ratio_T, lse_TB, sum_TB, out, bias, first, last, start, stop, rows, total, dim,
    T: tl.constexpr, FORM: tl.constexpr, D: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    i_I = first + tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    left_ID = _load_block(z, i_I, last, dim, D)
    total_ID = tl.zeros((ROWS, D), tl.float32)
    for column in range(start, stop, COLS):
        j_J = column + tl.arange(0, COLS)
        right_JD = _load_block(z, j_J, stop, dim, D)
        bias_J = tl.where(j_J < rows, bias * LOG2_E, 0.0)
        u_IJ = tl.dot(left_ID, tl.trans(right_JD), input_precision=FORM)
        slope_IJ = tl.zeros((ROWS, COLS), tl.float32)
        for t in tl.static_range(T):
            lse_B, sum_B = lse_TB + t * total, sum_TB + t * total
            x_IJ = _logits(u_IJ, i_I, j_J, tl.load(ratio_T + t), bias_J, stop)
            lse_I = tl.load(lse_B + i_I, mask=i_I < last, other=0.0) * LOG2_E
            lse_J = tl.load(lse_B + j_J, mask=j_J < stop, other=0.0) * LOG2_E
            sum_I = tl.load(sum_B + i_I, mask=i_I < last, other=0.0)
            sum_J = tl.load(sum_B + j_J, mask=j_J < stop, other=0.0)
            # p is at most 1, but without the limit rounding could exceed this at large logits.
            slope_IJ += tl.exp2(tl.minimum(x_IJ - lse_I[:, None], 0.0)) * sum_I[:, None]
            slope_IJ += tl.exp2(tl.minimum(x_IJ - lse_J[None, :], 0.0)) * sum_J[None, :]
        if right_JD.dtype == tl.float32:  # tensor cores would cut bits off, which makes the sum smaller
            bits_IJ = (slope_IJ.to(tl.int32, bitcast=True) + 0x1000) & -0x2000
            slope_IJ = bits_IJ.to(tl.float32, bitcast=True)
        total_ID = tl.dot(slope_IJ.to(right_JD.dtype), right_JD, total_ID, input_precision=FORM)
    d_D = tl.arange(0, D)
    offset_ID = (i_I - first).to(tl.int64)[:, None] * dim + d_D[None, :]
    tl.store(out + offset_ID, total_ID, mask=(i_I < last)[:, None] & (d_D < dim)[None, :])


def logsumexp(
    z_BD: Tensor, ratio_T: Tensor, n_own: int, rows: int, bias: float, *, moments: bool
) -> tuple[Tensor, Tensor]:
    """Computes lse_i = logsumexp_j x_ij of the first `n_own` rows, and lse_i - sum_j p_ij ratio u_ij, (T, N).

    `z_BD` (B + L, D) is contiguous, bfloat16, or float32 to be multiplied in TF32; D is at most WIDEST.
    `rows` is B, and `ratio_T` float32. The second result has arbitrary values without `moments`, and is
    computed so that no large terms cancel. Both results are float32.
    """
    lse_TN, rest_TN = (z_BD.new_empty(len(ratio_T), n_own, dtype=torch.float32) for _ in range(2))
    options = _options(z_BD, bf16=(128, 128, 4, 2), wide=(128, 64, 8, 3), tf32=(128, 64, 4, 3))
    grid = triton.cdiv(n_own, options["ROWS"]), len(ratio_T)
    numbers = bias, n_own, rows, *z_BD.shape
    _logsumexp[grid](z_BD, ratio_T, lse_TN, rest_TN, *numbers, MOMENTS=moments, **options)
    return lse_TN, rest_TN


def gradient(
    z_BD: Tensor, ratio_T: Tensor, value_2TB: Tensor, outputs: slice, cols: slice, rows: int, bias: float
) -> Tensor:
    """Computes sum_j sum_t (R_ti p_tij + R_tj p_tji) z_j of the rows `outputs`, over the columns `cols`.

    `value_2TB` (2, T, B + L) float32 has the logsumexp of each row, and R, 0 for prototypes; the result is
    float32. The other arguments are those of `logsumexp`.
    """
    count = outputs.stop - outputs.start
    out = z_BD.new_empty(count, z_BD.shape[1], dtype=torch.float32)
    options = _options(z_BD, bf16=(128, 32, 4, 3), wide=(128, 64, 8, 3), tf32=(128, 64, 8, 3))
    ends = outputs.start, outputs.stop, cols.start, cols.stop
    numbers = bias, *ends, rows, *z_BD.shape
    grid = (triton.cdiv(count, options["ROWS"]),)
    _gradient[grid](z_BD, ratio_T, *value_2TB, out, *numbers, T=len(ratio_T), **options)
    return out


def _options(z_BD: Tensor, bf16: Sequence[int], wide: Sequence[int], tf32: Sequence[int]) -> dict[str, Any]:
    """Returns the options of a kernel: its arithmetic, its block sizes and its launch.

    `bf16`, `wide` (above 128 dimensions) and `tf32` are each a block's rows and columns, the warps and the
    stages of the pipeline: the fastest of fourteen choices on an H200.
    """
    width = max(16, triton.next_power_of_2(z_BD.shape[1]))
    choice = tf32 if z_BD.dtype == torch.float32 else wide if width > 128 else bf16
    sizes = zip(("ROWS", "COLS", "num_warps", "num_stages"), choice, strict=True)
    return {"FORM": "tf32", "D": width, **dict(sizes)}
