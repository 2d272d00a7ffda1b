"""Encodes batches without rows, so that a process without rows takes part in collective operations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor


def encode_rows(encode: Callable[[dict[str, Any]], Tensor], inputs: Mapping[str, Any]) -> Tensor:
    """Returns the embeddings (N, D) that `encode` computes from tensors of N rows by name; N may be 0.

    Many encoders refuse inputs without rows, and DDP waits for the gradients of all processes. If N is 0, a
    row of zeros is encoded and left out of the result: gradients are then zero, and not missing.

    Example:
        >>> encode_rows(lambda its: its["input_ids"].float(), {"input_ids": torch.ones(0, 3).long()}).shape
        torch.Size([0, 3])
    """
    tensors = {name: value for name, value in inputs.items() if isinstance(value, Tensor) and value.ndim}
    # In the flattened form of an EmbeddingBag, a text may have no tokens; `offsets` has a number per text.
    rows = len(tensors["offsets"]) if "offsets" in tensors else min(map(len, tensors.values()), default=1)
    if rows:
        return encode(dict(inputs))
    row = {
        name: value.new_full((1, *(max(size, 1) for size in value.shape[1:])), name == "attention_mask")
        for name, value in tensors.items()
    }
    return encode({**inputs, **row})[:0]
