"""Layers that compute a vector for each label: attention over the tokens of a text, and graph convolutions.

Shapes: B texts, T tokens, D token state, L labels, K labels of one block, P pairs of labels of one row, V the
size of a label's vector in a graph.
"""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from mlcl.labels import LabelRows

LABELS_AT_ONCE = 512
"""The largest number of labels whose (B, K, T) weights and (B, K, D) vectors are in memory at once."""


class LabelAttention(nn.Module):
    """Attention with separate weights for each label, which gives one vector and one logit per label.

        Z = tanh(V H),  A = softmax(U Z) over tokens,  d_l = sum_t A_lt h_t,  logit_l = w_l . d_l + b_l

    The text's embedding is the maximum or the mean of the vectors d_l over labels. Padding gets no weight.
    All values are at least float32, under autocast too. If there are many labels they are computed in blocks,
    which the backward pass computes again, so the (B, L, T) weights and the (B, L, D) vectors never exist as
    a whole.

    `key` holds V (D, D), `query` U (L, D), `output` w and b. Weights are initialised from a normal
    distribution with standard deviation 0.02, b with 0. `label_logits` is L.
    Source: Huang et al. 2022, PLM-ICD, label-aware attention, from Vu et al. 2020, A Label Attention Model
    for ICD Coding from Clinical Text; the initialisation is that of PLM-ICD's code. The maximum over labels
    as an embedding is from kNN-MLTC, appendix A.
    """

    def __init__(self, dim: int, labels: int, pooling: Literal["max", "mean"] = "max") -> None:
        super().__init__()
        self.label_logits = labels
        self.pooling = pooling
        self.key = nn.Linear(dim, dim, bias=False)
        self.query = nn.Linear(dim, labels, bias=False)
        self.output = nn.Linear(dim, labels)
        for linear in (self.key, self.query, self.output):
            nn.init.normal_(linear.weight, std=0.02)
        nn.init.zeros_(self.output.bias)

    def forward(self, h_BTD: Tensor, mask_BT: Tensor) -> Tensor:
        """Returns (B, D + L), at least float32: the embedding, then one logit per label.

        `h_BTD` are token states (B, T, D); the mask (B, T) bool is True for tokens, of which every text has
        at least one.
        """
        with torch.autocast(h_BTD.device.type, enabled=False):
            h_BTD = h_BTD if h_BTD.dtype == torch.float64 else h_BTD.float()
            pooled, logits = self._compute_blocks(torch.tanh(self.key(h_BTD)), h_BTD, mask_BT)
            if self.pooling == "max":
                pooled_BD = torch.stack(pooled).amax(0)
            else:
                pooled_BD = torch.stack(pooled).sum(0) / self.label_logits
            return torch.cat([pooled_BD, *logits], dim=1)

    def label_vectors(self, h_BTD: Tensor, mask_BT: Tensor) -> Tensor:
        """Returns the vectors d (B, L, D) of all labels, which `output` reads, at least float32."""
        with torch.autocast(h_BTD.device.type, enabled=False):
            h_BTD = h_BTD if h_BTD.dtype == torch.float64 else h_BTD.float()
            z_BTD = torch.tanh(self.key(h_BTD))
            queries = torch.split(self.query.weight, LABELS_AT_ONCE)
            return torch.cat([attend(u_KD @ z_BTD.mT, h_BTD, mask_BT) for u_KD in queries], dim=1)

    def _compute_blocks(
        self, z_BTD: Tensor, h_BTD: Tensor, mask_BT: Tensor
    ) -> tuple[list[Tensor], list[Tensor]]:
        """Returns the maximum or sum (B, D) of each block's label vectors, and the block's logits (B, K)."""
        rows = (self.query.weight, self.output.weight, self.output.bias)
        if self.label_logits <= LABELS_AT_ONCE:
            parts = [self._compute_block(z_BTD, h_BTD, mask_BT, *rows)]
        else:
            parts = [
                checkpoint(
                    self._compute_block,
                    z_BTD,
                    h_BTD,
                    mask_BT,
                    *block,
                    use_reentrant=False,
                    preserve_rng_state=False,
                )
                for block in zip(*(torch.split(row, LABELS_AT_ONCE) for row in rows), strict=True)
            ]
        return [pooled for pooled, _ in parts], [logits for _, logits in parts]

    def _compute_block(
        self, z_BTD: Tensor, h_BTD: Tensor, mask_BT: Tensor, u_KD: Tensor, w_KD: Tensor, b_K: Tensor
    ) -> tuple[Tensor, Tensor]:
        d_BKD = attend(u_KD @ z_BTD.mT, h_BTD, mask_BT)
        pooled_BD = d_BKD.amax(1) if self.pooling == "max" else d_BKD.sum(1)
        return pooled_BD, (d_BKD * w_KD).sum(2) + b_K


def attend(score_BLT: Tensor, h_BTD: Tensor, mask_BT: Tensor) -> Tensor:
    """Returns vectors (B, L, D): states weighted by the softmax of scores (B, L, T) over unmasked tokens."""
    weight_BLT = score_BLT.masked_fill(~mask_BT.unsqueeze(1), -torch.inf).softmax(2)
    return weight_BLT @ h_BTD


def label_graph(rows: LabelRows) -> Tensor:
    """Computes A_ij = P(label i | label j) = n_ij / n_j (L, L) float32, from the n_ij rows that have both.

    The diagonal is 1. A label that no row has is connected only to itself, which is our choice and avoids a
    division by 0. Source: Ma et al. 2021, statistical label co-occurrence.

    Example:
        >>> label_graph(LabelRows.from_lists([[0, 1], [0]], 2)).tolist()
        [[1.0, 1.0], [0.5, 1.0]]
    """
    # Each stored label is repeated for every label of its row.
    row_copies = rows.take(rows.row_index())
    label_P = torch.repeat_interleave(rows.columns, row_copies.counts())
    n_LL = torch.bincount(label_P * rows.width + row_copies.columns, minlength=rows.width**2).double()
    n_LL = n_LL.reshape(rows.width, rows.width)
    graph_LL = n_LL / n_LL.diagonal().clamp(min=1)
    return graph_LL.fill_diagonal_(1).float()


def normalize_graph(log_graph: Tensor) -> Tensor:
    """Computes A_ij / sqrt(r_i c_j), r and c the sums of rows and columns, from log A (L, L) or (B, L, L).

    For a symmetric graph this is D^(-1/2) A D^(-1/2) of Kipf and Welling 2017, Eq. 2. Graphs over labels are
    not symmetric; dividing by both sums keeps every weight at most 1 and lets no vector grow, which row sums
    alone do not guarantee. That is our choice. Logarithms are used because the sums of a sigmoid's values may
    underflow.
    """
    sums = log_graph.logsumexp(-1, keepdim=True) + log_graph.logsumexp(-2, keepdim=True)
    return (log_graph - sums / 2).exp()


class GraphConvolution(nn.Module):
    """Applies H <- LeakyReLU(A H W) `layers` times, each time with another W (V, V).

    Source: Kipf and Welling 2017, Eq. 2, with the activation of Ma et al. 2021.
    """

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.weights = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(layers))
        for weight in self.parameters():
            # torch's default initialisation shrinks the states with every layer.
            nn.init.kaiming_uniform_(weight, nonlinearity="leaky_relu")

    def forward(self, h_BLV: Tensor, graph: Tensor) -> Tensor:
        """Maps vectors (B, L, V) to (B, L, V), along a normalized graph (L, L) or (B, L, L)."""
        for weight in self.weights:
            h_BLV = F.leaky_relu(graph @ weight(h_BLV))
        return h_BLV
