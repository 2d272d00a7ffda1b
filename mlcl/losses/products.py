"""How the tiled engine multiplies matrices: in float32, TF32 or bfloat16.

Shapes: B rows, D embedding; I, J the rows and columns of a tile.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch import Tensor

FloatProducts = Literal["exact", "tf32"]
"""Of float32 rows: exact, or with operands cut to TF32's ten bits of mantissa by a GPU's tensor cores."""
Products = Literal["exact", "tf32", "bf16"]
"""bf16: rows are rounded to bfloat16 once, and their products summed in float32."""


@contextmanager
def multiplying(products: Products, device: torch.device) -> Iterator[None]:
    """Within, float32 matrices are multiplied so on the device, whatever the process has set.

    What hardware lacks it computes in float32: a GPU multiplies bfloat16 as such (`Operand`), and float32
    matrices beside them in TF32; a processor needs AMX for bfloat16.
    """
    backend: Any = torch.backends.cuda if device.type == "cuda" else torch.backends.mkldnn
    matmul = backend.matmul
    wanted = "ieee" if products == "exact" else "tf32"
    if device.type != "cuda":
        # Without AMX the setting would choose slower float32 kernels.
        wanted = "bf16" if products == "bf16" and has_amx() else "ieee"
    before = matmul.fp32_precision
    matmul.fp32_precision = wanted
    try:
        yield
    finally:
        matmul.fp32_precision = before


class Operand:
    """Rows `z` (B, D) that are multiplied with each other and with weights, sums in the dtype of the rows.

    With `bf16` float32 rows are rounded to bfloat16, and so is every weight where the device multiplies
    bfloat16 itself (`is_native`).
    """

    def __init__(self, z_BD: Tensor, products: Products) -> None:
        rounded = z_BD.bfloat16() if products == "bf16" and z_BD.dtype == torch.float32 else None
        self.z = z_BD if rounded is None else rounded.float()
        self._half = rounded if is_native(z_BD.device) else None

    def dots(self, rows: slice, cols: slice, out_IJ: Tensor) -> None:
        """z_i . z_j of a tile, into `out_IJ`."""
        if self._half is None:
            torch.mm(self.z[rows], self.z[cols].T, out=out_IJ)
        else:
            torch.mm(self._half[rows], self._half[cols].T, out_dtype=torch.float32, out=out_IJ)

    def weights(self, weight_IJ: Tensor) -> Tensor:
        """Weights as `add` takes them."""
        return weight_IJ if self._half is None else weight_IJ.bfloat16()

    def add(self, sum_ID: Tensor, weight_IJ: Tensor, cols: slice) -> None:
        """Adds sum_j weight_ij z_j to `sum_ID`."""
        if self._half is None:
            sum_ID.addmm_(weight_IJ, self.z[cols])
        else:
            sum_ID.add_(torch.mm(weight_IJ, self._half[cols], out_dtype=torch.float32))


@functools.cache
def has_amx() -> bool:
    """Whether the processor multiplies bfloat16 matrices."""
    return bool(torch.cpu.get_capabilities().get("amx_bf16"))


def is_native(device: torch.device) -> bool:
    """Whether torch multiplies bfloat16 matrices into float32 ones on the device."""
    return device.type == "cuda"
