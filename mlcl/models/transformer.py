"""Hugging Face text encoders.

Shapes: B texts, T tokens, D the model's hidden size.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from mlcl.errors import UserError


class Transformer(nn.Module):
    """A pretrained encoder by folder or hub name, and which of its token states make the embedding.

    `pooling="cls"` takes the first token's state, `"mean"` the mean over the tokens of `attention_mask`. A
    folder is read from disk alone; a name goes through the local cache and the hub. Weights are read from
    safetensors and the model's own code is never run, so that nothing is unpickled. Parameters are float32.
    `dim` is D.

    Raises UserError where transformers is missing, or the folder, the name or its safetensors are.
    """

    def __init__(self, model: str | Path, pooling: Literal["cls", "mean"] = "cls") -> None:
        super().__init__()
        self.network = _load(str(model))
        self.pooling = pooling
        self.dim = int(self.network.config.hidden_size)
        # A pooler is not on the way to the embedding: its parameters would never see a gradient.
        pooler = getattr(self.network, "pooler", None)
        if isinstance(pooler, nn.Module):
            pooler.requires_grad_(False)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """`input_ids` (B, T) int64 and `attention_mask` (B, T) bool, True for tokens; gives (B, D)."""
        states = self.network(input_ids=input_ids, attention_mask=attention_mask.long())
        h_BTD: Tensor = states.last_hidden_state
        if self.pooling == "cls":
            return h_BTD[:, 0]
        mask_BT1 = attention_mask.unsqueeze(-1).to(h_BTD.dtype)
        return (h_BTD * mask_BT1).sum(1) / mask_BT1.sum(1).clamp(min=1)


def _load(model: str) -> Any:
    try:
        from transformers import AutoModel
    except (ImportError, RuntimeError) as error:
        raise UserError(
            "transformer needs the package transformers: pip install 'mlcl[transformers]'",
            key="encoder.name",
            found=str(error),
        ) from error
    try:
        return AutoModel.from_pretrained(
            model,
            use_safetensors=True,
            trust_remote_code=False,
            local_files_only=Path(model).is_dir(),
            dtype=torch.float32,
        )
    except (OSError, ValueError, SafetensorError) as error:
        raise UserError(
            "cannot load this model",
            key="encoder.model",
            found=f"{model} ({str(error).splitlines()[0]})",
            allowed="a folder with config.json and safetensors, or a hub name with safetensors",
        ) from error
