"""PLM-ICD: encodes long texts in chunks by a pretrained network, then attends to the tokens for each label.

Shapes: B texts, T tokens, C tokens of a chunk, N chunks of all texts, D the model's hidden size, L labels.
"""

from __future__ import annotations

from typing import Literal

import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from mlcl.config.encoder_section import EncoderConfig
from mlcl.models import pretrained
from mlcl.models.encoder import Encoder
from mlcl.models.label_layers import LabelAttention


class PlmIcdConfig(EncoderConfig, pretrained.PretrainedKeys):
    """PLM-ICD (Huang et al. 2022): chunks through a pretrained encoder, then attention by label."""

    name: Literal["plm_icd"]
    max_length: int = Field(3072, ge=1, description="tokens of a text that are read")
    chunk_length: int = Field(128, ge=8, description="tokens that are encoded together")
    pooling: Literal["max", "mean"] = Field("max", description="over the labels' vectors, for the embedding")


class PlmIcd(nn.Module):
    """Label-wise attention over texts that are longer than the pretrained network can read.

        H = [f(x_1:C), f(x_C+1:2C), ...],  then `LabelAttention` on H

    A text's tokens, with special tokens only at its two ends, are cut into chunks of C tokens without
    overlap. The network f reads every chunk by itself, with positions from 0, and the labels attend
    to the token states of all chunks. Padding changes nothing, and chunks that are only padding are not
    computed.

    `network` is a network from `load_pretrained`. `dim` is D, `label_logits` is L.

    Raises UserError if the network has learned positions for fewer than `chunk_length` tokens.
    Source: Huang et al. 2022, PLM-ICD: Automatic ICD Coding with Pretrained Language Models; there C is 128
    and a text has at most 3,072 tokens. Similarity-Dissimilarity, appendix C, names it and gives no details.
    As in PLM-ICD's code, chunks have no special tokens of their own, keys have size D, and there is no
    dropout before the labels. Unlike there, the labels' attention leaves padding out.
    """

    def __init__(
        self,
        network: nn.Module,
        labels: int,
        *,
        chunk_length: int = 128,
        pooling: Literal["max", "mean"] = "max",
    ) -> None:
        super().__init__()
        pretrained.check_length(network, chunk_length, "encoder.chunk_length")
        self.network = network
        self.chunk_length = chunk_length
        self.dim = pretrained.hidden_size(network)
        self.label_logits = labels
        self.attention = LabelAttention(self.dim, labels, pooling)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Returns (B, D + L), at least float32: the embedding, then one logit per label.

        `input_ids` are (B, T) int64; `attention_mask` (B, T) bool is True for tokens. Padding is on the
        right.
        """
        by_label: Tensor = self.attention(self._states(input_ids, attention_mask), attention_mask)
        return by_label

    @property
    def label_layer(self) -> nn.Linear:
        """The linear layer with a weight vector (D,) and a bias for each label."""
        return self.attention.output

    def label_vectors(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Returns the labels' vectors (B, L, D), which `label_layer` reads, at least float32."""
        return self.attention.label_vectors(self._states(input_ids, attention_mask), attention_mask)

    def _states(self, ids_BT: Tensor, mask_BT: Tensor) -> Tensor:
        """Returns the token states (B, T, D); zeros in chunks that are only padding."""
        texts, tokens = ids_BT.shape
        length = min(self.chunk_length, tokens)
        ids_NC, mask_NC = (F.pad(x, (0, -tokens % length)).reshape(-1, length) for x in (ids_BT, mask_BT))
        used_N = mask_NC.any(1)
        h_used = pretrained.token_states(self.network, ids_NC[used_N], mask_NC[used_N])
        h_NCD = h_used.new_zeros(*ids_NC.shape, self.dim).index_put((used_N,), h_used)
        return h_NCD.reshape(texts, -1, self.dim)[:, :tokens]


PLM_ICD = Encoder(
    name="plm_icd",
    title="chunks through a pretrained encoder, then attention by label (Huang et al. 2022)",
    section=PlmIcdConfig,
    modality="text",
    build=PlmIcd,
    tokenizer="pretrained",
    label_wise=True,
    packages=pretrained.PACKAGES,
    export=pretrained.save_config,
    order=6,
)
