"""Frozen networks: their precision, and their outputs in batches that a block of rows decides.

Shapes: N rows, F columns of the output.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file
from torch import Tensor, nn

Precision = Literal["float32", "bf16"]
ROWS_AT_ONCE = 32
"""Rows of a batch: on a CPU more are no quicker."""


def precision(device: torch.device) -> Precision:
    """bf16 where the device computes in it, which halves the time; float32 where it is emulated."""
    if device.type == "cuda":
        return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "float32"
    able = torch.cpu.get_capabilities()
    return "bf16" if able.get("avx512_bf16") or able.get("amx_bf16") else "float32"


@torch.no_grad()
def outputs(
    network: nn.Module,
    batches: Iterable[tuple[NDArray[np.int64], dict[str, Tensor]]],
    shape: tuple[int, int],
    device: torch.device,
    precision: Precision,
) -> NDArray[np.float32]:
    """The network's outputs (N, F) = `shape`; each batch has its row numbers and its inputs."""
    output_NF = np.empty(shape, dtype=np.float32)
    for rows, inputs in batches:
        on_device = {name: value.to(device) for name, value in inputs.items()}
        with torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16"):
            output_NF[rows] = network(**on_device).float().cpu().numpy()
    return output_NF


def freeze(network: nn.Module, device: torch.device) -> nn.Module:
    """The network in evaluation mode, without gradients, on the device."""
    return network.to(device).eval().requires_grad_(requires_grad=False)


def save_weights(network: nn.Module, file: Path) -> None:
    """Writes all weights as safetensors."""
    save_file({name: tensor.cpu().contiguous() for name, tensor in network.state_dict().items()}, file)
