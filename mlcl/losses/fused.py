"""The softmax by Triton kernels, which keep the pairs of rows in a GPU's registers, not in its memory.

Shapes: N own rows, B rows, L prototypes, D embedding, T temperatures.
"""

from __future__ import annotations

import functools
import importlib
import logging
import math
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

import torch
from torch import Tensor

from mlcl.losses.gradients import PairGradients
from mlcl.losses.similarities import Similarities
from mlcl.losses.weights.base import Number

logger = logging.getLogger(__name__)
WIDEST = {torch.bfloat16: 256, torch.float32: 128}
"""The largest embedding dimension by dtype; blocks of wider rows do not fit in a multiprocessor."""
OLDEST_TRITON = (3, 6)
"""The oldest version of Triton that the kernels have run with; PyTorch 2.10 brings it."""


def serves(similarities: Similarities) -> bool:
    """Whether the kernels compute these similarities: bf16 or TF32 dot products up to WIDEST, on a GPU."""
    rows_BD = similarities.operand.narrow
    if rows_BD is None or rows_BD.shape[1] > WIDEST[rows_BD.dtype]:
        return False
    return has_kernels(rows_BD.device)


@functools.cache
def has_kernels(device: torch.device) -> bool:
    """Whether the device is a GPU with tensor cores for bfloat16 and TF32 on which the kernels run.

    They do not run without Triton or without a C compiler, which Triton calls; a log line says why.
    """
    if device.type != "cuda" or not torch.cuda.is_available() or torch.version.hip is not None:
        return False
    if torch.cuda.get_device_capability(device) < (8, 0):
        return False
    try:
        if tuple(int(part) for part in version("triton").split(".")[:2]) < OLDEST_TRITON:
            raise ImportError(f"Triton {version('triton')} is older than 3.6")
        z_BD, ratio_T = torch.eye(16, device=device, dtype=torch.bfloat16), torch.ones(1, device=device)
        load_kernels().logsumexp(z_BD, ratio_T, 16, 16, 0.0, moments=False)
    except Exception as problem:
        logger.warning("losses are computed in tiles, which is slower than by Triton's kernels: %s", problem)
        return False
    return True


def load_kernels() -> Any:
    """Returns the module `kernels`, which is imported, and Triton with it, at the first call."""
    return importlib.import_module("mlcl.losses.kernels")


class FusedSoftmax:
    """The softmax of similarities at T temperatures, with the arguments and methods of `Softmax`.

    The exponentials are summed with each row's largest logit as shift, so that none overflows. The dot
    product of a pair is computed twice, for the softmax and for the gradient, and so is its mirror image.
    """

    def __init__(
        self, similarities: Similarities, ratios: Sequence[Number], repulsion: float = 1.0, *, moments: bool
    ) -> None:
        rows_BD = similarities.operand.narrow
        assert rows_BD is not None
        self._rows_BD = rows_BD.contiguous()
        self._similarities = similarities
        self._ratio_T = torch.stack([_as_tensor(ratio, rows_BD.device) for ratio in ratios])
        self._bias = math.log(repulsion)
        self._moments = moments
        self._kernels = load_kernels()

    def logsumexp(self) -> Tensor:
        """Computes log sum_{a != i} exp(s_ia / tau_t) of the anchors (T, N)."""
        own, rows = self._similarities.own, self._similarities.rows
        lse_TN: Tensor
        lse_TN, self._rest_TN = self._kernels.logsumexp(
            self._rows_BD, self._ratio_T, own, rows, self._bias, moments=self._moments
        )
        return lse_TN

    def set_rows(self, value_2TB: Tensor) -> None:
        """Sets logsumexp_i and ratio_t R_i of all rows and prototypes (2, T, B + L), for `add_gradient`."""
        self._value_2TB = value_2TB

    def add_gradient(self, gradients: PairGradients) -> None:
        """Adds to `gradients` the softmax part of the gradients with respect to own rows and prototypes."""
        anchors, rows, total = (slice(0, self._similarities.own), self._similarities.rows, len(self._rows_BD))
        slope = functools.partial(self._kernels.gradient, self._rows_BD, self._ratio_T, self._value_2TB)
        gradients.gradient.add_(slope(anchors, slice(0, total), rows, self._bias))
        if rows < total:
            gradients.prototype_gradient.add_(slope(slice(rows, total), anchors, rows, 0.0))

    def entropies(self) -> Tensor:
        """Returns sum_i R_i H(p_i) over the own anchors i for each temperature (T,), H the entropy."""
        sum_TN = self._value_2TB[1, :, : self._similarities.own].double()
        total_T: Tensor = (sum_TN * self._rest_TN).sum(1) / self._ratio_T
        return total_T


def _as_tensor(ratio: Number, device: torch.device) -> Tensor:
    """Returns the number as float32 on the device, without waiting for it."""
    return ratio.float() if isinstance(ratio, Tensor) else torch.full((), ratio, device=device)
