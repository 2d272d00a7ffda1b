"""Functions for features of PyTorch whose interface differs between its versions since 2.4."""

from __future__ import annotations

from typing import Any

import torch

OLDER = {"ieee": "highest", "tf32": "high", "bf16": "medium"}
"""Maps names of precisions to those before PyTorch 2.9, which set the precision for all devices at once."""


def cpu_capabilities() -> dict[str, Any]:
    """Returns the processor's capabilities by name, such as `amx_bf16`; empty if PyTorch cannot list them."""
    get_capabilities = getattr(torch.cpu, "get_capabilities", dict)
    return dict(get_capabilities())


def exchange_precision(device: torch.device, precision: str) -> str:
    """Sets the precision of float32 matrix products on the device, and returns the previous precision.

    `precision` is `ieee`, `tf32` or `bf16`, or a value that this function returned.
    """
    if not hasattr(torch.backends.mkldnn, "matmul"):
        old_precision = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision(OLDER.get(precision, precision))
        return old_precision
    matmul: Any = (torch.backends.cuda if device.type == "cuda" else torch.backends.mkldnn).matmul
    previous = str(matmul.fp32_precision)
    matmul.fp32_precision = precision
    return previous


def multiplies_into_float32(device: torch.device) -> bool:
    """Whether PyTorch can multiply bfloat16 matrices to a float32 result on the device."""
    return device.type == "cuda" and hasattr(torch.ops.aten.mm, "dtype")
