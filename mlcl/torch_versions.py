"""Uses of PyTorch that its versions since 2.4 allow in different ways."""

from __future__ import annotations

from typing import Any

import torch

OLDER = {"ieee": "highest", "tf32": "high", "bf16": "medium"}
"""The names before PyTorch 2.9, keyed by those since. They hold for all devices of the process at once."""


def cpu_capabilities() -> dict[str, Any]:
    """Returns what the processor has, keyed by name, such as `amx_bf16`; empty where PyTorch cannot tell."""
    found = getattr(torch.cpu, "get_capabilities", dict)
    return dict(found())


def exchange_precision(device: torch.device, precision: str) -> str:
    """Sets the precision of float32 matrix products on the device, and returns the earlier one.

    The precision is `ieee`, `tf32` or `bf16`, or one that this function returned.
    """
    if not hasattr(torch.backends.mkldnn, "matmul"):
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision(OLDER.get(precision, precision))
        return before
    matmul: Any = (torch.backends.cuda if device.type == "cuda" else torch.backends.mkldnn).matmul
    earlier = str(matmul.fp32_precision)
    matmul.fp32_precision = precision
    return earlier


def multiplies_into_float32(device: torch.device) -> bool:
    """Whether PyTorch multiplies bfloat16 matrices into float32 ones on the device."""
    return device.type == "cuda" and hasattr(torch.ops.aten.mm, "dtype")
