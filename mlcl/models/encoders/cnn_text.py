"""Kim's convolutional text encoder.

Shapes: B texts, T words, E embedding size, F filters of one kernel size, k kernel size, D = F x sizes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from mlcl.config.encoder_section import EncoderConfig
from mlcl.models.encoder import Encoder


class CnnTextConfig(EncoderConfig):
    """Kim's convolutional text encoder with a word vocabulary from the training split."""

    name: Literal["cnn_text"]
    width: int = Field(100, ge=1, description="filters of each kernel size")
    kernel_sizes: tuple[Annotated[int, Field(ge=1)], ...] = Field(
        (3, 4, 5), min_length=1, description="words that a filter spans"
    )
    embedding_dim: int = Field(128, ge=1, description="size of a word vector")
    dropout: float = Field(0.5, ge=0, lt=1, description="dropout of the encoder's output")
    vocabulary: int = Field(30_000, ge=2, description="most frequent training words that are kept")
    max_length: int = Field(128, ge=1, description="words of a text that are read")


class CnnText(nn.Module):
    """A network of word vectors, parallel convolutions, ReLU, maximum over time and dropout.

    h_f = max_t relu(w_f . x_{t:t+k} + b_f) over the windows t without padding; a text with fewer than k words
    has one window, which is filled up with zeros. Padding is on the right and never changes an output.

    `vocabulary_size` is the number of different ids, padding included; `dim` is D.
    Source: Kim 2014, Convolutional Neural Networks for Sentence Classification, Eq. 2 and section 2. Unlike
    here, its code pads texts with zeros on both sides, may start from word2vec, and bounds the norms of the
    classifier's weights.
    """

    def __init__(
        self,
        vocabulary_size: int,
        width: int = 100,
        kernel_sizes: Sequence[int] = (3, 4, 5),
        embedding_dim: int = 128,
        dropout: float = 0.5,
    ) -> None:
        super().__init__()
        self.dim = width * len(kernel_sizes)
        self.kernel_sizes = tuple(kernel_sizes)
        self.embedding = nn.Embedding(vocabulary_size, embedding_dim)
        self.convolutions = nn.ModuleList(nn.Conv1d(embedding_dim, width, k) for k in self.kernel_sizes)
        self.dropout = nn.Dropout(dropout)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Returns embeddings (B, D) of ids (B, T) int64; the mask (B, T) bool is True for words."""
        x_BTE = self.embedding(input_ids) * attention_mask.unsqueeze(-1)
        x_BET = functional.pad(
            x_BTE.transpose(1, 2), (0, max(0, max(self.kernel_sizes) - input_ids.shape[1]))
        )
        words_B = attention_mask.sum(1)
        pooled = [
            _max_over_time(convolution(x_BET), words_B, k)
            for convolution, k in zip(self.convolutions, self.kernel_sizes, strict=True)
        ]
        h_BD: Tensor = self.dropout(torch.cat(pooled, dim=1))
        return h_BD


def _max_over_time(c_BFT: Tensor, words_B: Tensor, k: int) -> Tensor:
    start_T = torch.arange(c_BFT.shape[2], device=c_BFT.device)
    last_B = (words_B - k).clamp(min=0)
    beyond_BT = start_T > last_B.unsqueeze(1)
    # After ReLU no value is below 0 and every text has a window, so masked zeros do not change a maximum.
    return c_BFT.relu().masked_fill(beyond_BT.unsqueeze(1), 0).amax(2)


CNN_TEXT = Encoder(
    name="cnn_text",
    title="convolutions over word vectors (Kim 2014)",
    section=CnnTextConfig,
    modality="text",
    build=CnnText,
    tokenizer="words",
    order=1,
)
