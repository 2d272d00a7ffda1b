"""What an extractor is, what a kind of them declares, and how frozen networks are run.

Shapes: N rows, F columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file
from torch import Tensor, nn

Matrix = Any
"""Rows (N, F) float32: a NumPy array, or a `scipy.sparse.csr_array` with sorted int32 indices."""
Contents = Any
"""A list of texts, images (N, 3, H, W) uint8, or vectors (N, F) float32."""
ROWS_AT_ONCE = 32
"""Rows of a batch: on a CPU more are no quicker."""


class Extractor(Protocol):
    """A fitted extractor, which no training changes."""

    @property
    def columns(self) -> int:
        """F, the numbers of a row."""
        ...

    def __call__(self, contents: Contents) -> Matrix:
        """The rows (N, F) of contents. A row does not depend on the others, up to rounding."""
        ...

    def save(self, folder: Path) -> None:
        """Writes what `Kind.load` needs, without pickles, into a folder that is there."""
        ...


@dataclass(frozen=True)
class Kind:
    """One kind of extractor: a value at the end of a module of this folder.

    `fit(section, contents, device)` makes the extractor of a section of `mlcl.models.feature_inputs`;
    `contents` are those of the training rows, which it reads only with `learns`, and is None otherwise.
    `load(section, folder, device)` makes it from what `save` wrote. `state(section)` gives plain data on all
    that decides its outputs beside the section and the rows; it raises UserError for a missing file.
    Rows of an extractor that is not `cached` are made each time.
    """

    fit: Callable[[Any, Contents | None, torch.device], Extractor]
    load: Callable[[Any, Path, torch.device], Extractor]
    state: Callable[[Any], object]
    learns: bool = False
    cached: bool = True


def floats(values: Any) -> NDArray[np.float32]:
    """Values as a contiguous float32 array."""
    return np.ascontiguousarray(values, dtype=np.float32)


Precision = Literal["float32", "bf16"]


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
