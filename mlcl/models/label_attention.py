"""Attention by label: each label has its own weights over the tokens of a text.

Shapes: B texts, T tokens, D token state, L labels, K labels of one block.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

LABELS_AT_ONCE = 512
"""Labels whose (B, K, T) weights and (B, K, D) vectors are in memory together."""


class LabelAttention(nn.Module):
    """One vector and one logit a label; the vectors' maximum or mean is the text's embedding.

        Z = tanh(V H),  A = softmax(U Z) over tokens,  d_l = sum_t A_lt h_t,  logit_l = w_l . d_l + b_l

    Padding gets no weight. All of it is computed in at least float32, under autocast too. Many labels go
    through in blocks, which the backward computes again, so that the (B, L, T) weights and the (B, L, D)
    vectors never exist as a whole; nothing else changes.

    `key` holds V (D, D), `query` U (L, D), `output` w and b. They start normal with deviation 0.02, b at 0.
    `label_logits` is L, `dim` is D.
    Source: Huang et al. 2022, PLM-ICD, label-aware attention, which is that of Vu et al. 2020, A Label
    Attention Model for ICD Coding from Clinical Text; the start is that of PLM-ICD's code. The maximum over
    labels as an embedding: kNN-MLTC, appendix A, which takes it of LDGN.
    """

    def __init__(self, dim: int, labels: int, pooling: Literal["max", "mean"] = "max") -> None:
        super().__init__()
        self.dim = dim
        self.label_logits = labels
        self.pooling = pooling
        self.key = nn.Linear(dim, dim, bias=False)
        self.query = nn.Linear(dim, labels, bias=False)
        self.output = nn.Linear(dim, labels)
        for linear in (self.key, self.query, self.output):
            nn.init.normal_(linear.weight, std=0.02)
        nn.init.zeros_(self.output.bias)

    def forward(self, h_BTD: Tensor, mask_BT: Tensor) -> Tensor:
        """Token states (B, T, D) and their mask (B, T) bool, True for tokens, of which every text has one.

        Gives (B, D + L), at least float32: the embedding, then one logit a label.
        """
        with torch.autocast(h_BTD.device.type, enabled=False):
            h_BTD = h_BTD if h_BTD.dtype == torch.float64 else h_BTD.float()
            pooled, logits = self._blocks(torch.tanh(self.key(h_BTD)), h_BTD, mask_BT)
            if self.pooling == "max":
                pooled_BD = torch.stack(pooled).amax(0)
            else:
                pooled_BD = torch.stack(pooled).sum(0) / self.label_logits
            return torch.cat([pooled_BD, *logits], dim=1)

    def _blocks(self, z_BTD: Tensor, h_BTD: Tensor, mask_BT: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        """For every block of labels the maximum or sum (B, D) of its vectors, and its logits (B, K)."""
        rows = (self.query.weight, self.output.weight, self.output.bias)
        if self.label_logits <= LABELS_AT_ONCE:
            parts = [self._block(z_BTD, h_BTD, mask_BT, *rows)]
        else:
            parts = [
                checkpoint(
                    self._block, z_BTD, h_BTD, mask_BT, *block, use_reentrant=False, preserve_rng_state=False
                )
                for block in zip(*(torch.split(row, LABELS_AT_ONCE) for row in rows), strict=True)
            ]
        return [pooled for pooled, _ in parts], [logits for _, logits in parts]

    def _block(
        self, z_BTD: Tensor, h_BTD: Tensor, mask_BT: Tensor, u_KD: Tensor, w_KD: Tensor, b_K: Tensor
    ) -> tuple[Tensor, Tensor]:
        d_BKD = attend(u_KD @ z_BTD.mT, h_BTD, mask_BT)
        pooled_BD = d_BKD.amax(1) if self.pooling == "max" else d_BKD.sum(1)
        return pooled_BD, (d_BKD * w_KD).sum(2) + b_K


def attend(score_BLT: Tensor, h_BTD: Tensor, mask_BT: Tensor) -> Tensor:
    """Label vectors (B, L, D) = softmax of scores (B, L, T) over a text's own tokens, times the states."""
    weight_BLT = score_BLT.masked_fill(~mask_BT.unsqueeze(1), -torch.inf).softmax(2)
    return weight_BLT @ h_BTD
