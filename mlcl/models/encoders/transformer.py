"""The encoder `transformer`: Hugging Face text encoders and decoders.

Shapes: B texts, T tokens, D the model's hidden size.
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from mlcl.config.encoder_section import EncoderConfig
from mlcl.models import pretrained
from mlcl.models.encoder import Encoder


class TransformerConfig(EncoderConfig, pretrained.PretrainedKeys):
    """A Hugging Face text encoder, by folder or name."""

    name: Literal["transformer"]
    pooling: Literal["cls", "mean", "last"] = Field(
        "cls", description="which token states become the embedding; last is for decoders"
    )
    max_length: int = Field(128, ge=1, description="tokens of a text that are read")


class TextTransformer(nn.Module):
    """A pretrained network; the embedding of a text is computed from its token states.

    `pooling="cls"` takes the first token's state, `"mean"` the mean over the tokens of `attention_mask`, and
    `"last"` the last token's state, the only one that depends on the whole text in a decoder. `network` is a
    network from `load_pretrained`. `dim` is D.

    Raises UserError if the network has learned positions for fewer than `max_length` tokens.
    Source: Similarity-Dissimilarity, appendix D (RoBERTa-base; Llama-3.1-8B with LoRA), which does not say
    which state is the embedding.
    """

    def __init__(
        self,
        network: nn.Module,
        pooling: Literal["cls", "mean", "last"] = "cls",
        max_length: int | None = None,
    ) -> None:
        super().__init__()
        if max_length is not None:
            pretrained.check_length(network, max_length, "encoder.max_length")
        self.network = network
        self.pooling = pooling
        self.dim = pretrained.hidden_size(network)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Returns embeddings (B, D), at least float32.

        `input_ids` are (B, T) int64; `attention_mask` (B, T) bool is True for tokens. Padding may be on
        either side; a network that counts positions from the left, as BERT does, needs it on the right.
        """
        h_BTD = pretrained.token_states(self.network, input_ids, attention_mask)
        if self.pooling == "mean":
            tokens_B = attention_mask.sum(1).clamp(min=1)
            return (h_BTD * attention_mask.unsqueeze(2)).sum(1) / tokens_B.unsqueeze(1)
        position_BT = attention_mask * torch.arange(attention_mask.shape[1], device=h_BTD.device)
        index_B = attention_mask.long().argmax(1) if self.pooling == "cls" else position_BT.argmax(1)
        return h_BTD[torch.arange(len(h_BTD), device=h_BTD.device), index_B]


TRANSFORMER = Encoder(
    name="transformer",
    title="a Hugging Face encoder or decoder, whole or with low-rank adapters",
    section=TransformerConfig,
    modality="text",
    build=TextTransformer,
    tokenizer="pretrained",
    packages=pretrained.PACKAGES,
    export=pretrained.save_config,
    order=5,
)
