"""Graphs over labels: which stand together in the training rows, and convolutions along them.

Shapes: L labels, P pairs of labels that stand in one row, B texts, K the size of a label's vector.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mlcl.labels import LabelRows


def label_graph(rows: LabelRows) -> Tensor:
    """A_ij = P(label i | label j) = n_ij / n_j, with n_ij the rows that hold both: (L, L) float32.

    The diagonal is 1. A label that no row holds is joined to itself alone, so that nothing is divided by 0:
    our choice. Source: Ma et al. 2021, statistical label co-occurrence.
    """
    # Each stored label once more beside every label of its row.
    beside = rows.take(rows.row_index())
    label_P = torch.repeat_interleave(rows.columns, beside.counts())
    n_LL = torch.bincount(label_P * rows.width + beside.columns, minlength=rows.width**2).double()
    n_LL = n_LL.reshape(rows.width, rows.width)
    graph_LL = n_LL / n_LL.diagonal().clamp(min=1)
    return graph_LL.fill_diagonal_(1).float()


def normalized(log_graph: Tensor) -> Tensor:
    """A_ij / sqrt(r_i c_j), r and c the sums of rows and columns, from log A: (L, L) or (B, L, L) alike.

    For a symmetric graph this is D^(-1/2) A D^(-1/2) of Kipf and Welling 2017, Eq. 2. Graphs over labels are
    not symmetric; with both sums no weight is above 1 and no vector grows along it, which row sums alone do
    not promise. That is our choice. Logarithms, because the sums of a sigmoid's values may underflow.
    """
    sums = log_graph.logsumexp(-1, keepdim=True) + log_graph.logsumexp(-2, keepdim=True)
    return (log_graph - sums / 2).exp()


class GraphConvolution(nn.Module):
    """`layers` times H <- LeakyReLU(A H W), each with its own W (K, K).

    Source: Kipf and Welling 2017, Eq. 2, with the activation of Ma et al. 2021.
    """

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.weights = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(layers))
        for weight in self.parameters():
            # torch's own start shrinks the states with every layer.
            nn.init.kaiming_uniform_(weight, nonlinearity="leaky_relu")

    def forward(self, h_BLK: Tensor, graph: Tensor) -> Tensor:
        """Vectors (B, L, K) and a normalized graph (L, L) or (B, L, L); gives (B, L, K)."""
        for weight in self.weights:
            h_BLK = F.leaky_relu(graph @ weight(h_BLK))
        return h_BLK
