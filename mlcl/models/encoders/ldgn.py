"""LDGN: label attention over a recurrent encoder, then two label graphs.

Shapes: B texts, T words, E size of a word vector, L labels, K = 2 * width states of both directions,
D = 2 * K embedding.
"""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from mlcl.config.encoder_section import EncoderConfig
from mlcl.models.encoder import Encoder
from mlcl.models.label_layers import GraphConvolution, attend, normalize_graph


class LdgnConfig(EncoderConfig):
    """LDGN (Ma et al. 2021): label attention over a recurrent encoder, then two label graphs."""

    name: Literal["ldgn"]
    embedding_dim: int = Field(300, ge=1, description="size of a word vector")
    width: int = Field(150, ge=1, description="of the recurrent layer, in each direction")
    graph_layers: int = Field(2, ge=1, description="graph convolutions on each of the two graphs")
    dropout: float = Field(0.5, ge=0, lt=1, description="of word vectors and label vectors")
    vocabulary: int = Field(50_000, ge=2, description="most frequent training words that are kept")
    max_length: int = Field(500, ge=1, description="words of a text that are read")
    pooling: Literal["max", "mean"] = Field("max", description="over the labels' vectors, for the embedding")


class Ldgn(nn.Module):
    """Label-specific dual graph network: an embedding and one logit for each label.

        H   = BiLSTM(word vectors)                                     states (T, K)
        u_i = sum_j a_ij h_j,  a_ij = softmax_j(h_j . c_i)             label i's part of the text (L, K)
        H^s = GCN(norm(A), U),  A_ij = P(label i | label j)            along the training labels' graph
        H^d = GCN(norm(G), H^s),  G = sigmoid((H^s W_a)(H^s W_b)^T)    along the text's own graph
        O   = [H^s, H^d],  logit_i = w . o_i + b                       w and b are shared by all labels

    The embedding is the maximum (or mean) of the o_i over labels; `dim` is D. All parameters contribute to
    the output, so if a loss reads only the embedding, `classifier` still gets a gradient, of zeros.

    Padding stands on the right and never changes an output; a text without words reads one zero vector.
    Everything after the recurrent layer is computed in at least float32, under autocast too. Each text has a
    graph G (L, L) of its own, so the encoder is meant for hundreds of labels, not for thousands.

    Some choices are ours, and the paper's may differ: all label vectors keep the size K; W_a and W_b
    (convolutions of size 1 in the paper) and the weights of the graph convolutions have no bias, w has one;
    dropout acts on word vectors and on U; label vectors c_i are initialised by Xavier. See also
    `normalize_graph` and `label_graph`.
    Source: Ma et al. 2021, Label-Specific Dual Graph Neural Network for Multi-Label Text Classification. The
    maximum over labels is from kNN-MLTC, appendix A; taking it over O, which the classifier reads, is our
    choice.
    """

    def __init__(
        self,
        vocabulary_size: int,
        label_graph_LL: Tensor,
        *,
        embedding_dim: int = 300,
        width: int = 150,
        graph_layers: int = 2,
        dropout: float = 0.5,
        pooling: Literal["max", "mean"] = "max",
    ) -> None:
        super().__init__()
        states = 2 * width
        self.dim = 2 * states
        self.label_logits = len(label_graph_LL)
        self.pooling = pooling
        self.embedding = nn.Embedding(vocabulary_size, embedding_dim)
        self.recurrent = nn.LSTM(embedding_dim, width, batch_first=True, bidirectional=True)
        self.labels_LK = nn.Parameter(torch.empty(self.label_logits, states))
        nn.init.xavier_normal_(self.labels_LK)
        self.statistical = GraphConvolution(states, graph_layers)
        self.left = nn.Linear(states, states, bias=False)
        self.right = nn.Linear(states, states, bias=False)
        self.dynamic = GraphConvolution(states, graph_layers)
        self.classifier = nn.Linear(self.dim, 1)
        self.dropout = nn.Dropout(dropout)
        self.graph_LL: Tensor
        self.register_buffer("graph_LL", normalize_graph(label_graph_LL.log()))

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Returns (B, D + L), at least float32: the embedding, then one logit per label.

        `input_ids` are (B, T) int64; `attention_mask` (B, T) bool is True for words.
        """
        # A text without words is read as one zero vector: its first position, which has no word.
        first_T = torch.arange(input_ids.shape[1], device=input_ids.device) == 0
        read_BT = attention_mask | first_T
        x_BTE = self.dropout(self.embedding(input_ids) * attention_mask.unsqueeze(-1))
        h_BTK = self._states(x_BTE, read_BT)
        with torch.autocast(h_BTK.device.type, enabled=False):
            return self._compute_outputs(h_BTK if h_BTK.dtype == torch.float64 else h_BTK.float(), read_BT)

    def _states(self, x_BTE: Tensor, read_BT: Tensor) -> Tensor:
        """Returns the LSTM's states of both directions (B, T, K), with 0 at padding."""
        lengths = read_BT.sum(1).cpu()
        packed = pack_padded_sequence(x_BTE, lengths, batch_first=True, enforce_sorted=False)
        h_BTK, _ = pad_packed_sequence(
            self.recurrent(packed)[0], batch_first=True, total_length=x_BTE.shape[1]
        )
        return h_BTK

    def _compute_outputs(self, h_BTK: Tensor, read_BT: Tensor) -> Tensor:
        """Computes the embedding and the logits (B, D + L) from the states."""
        u_BLK = attend(self.labels_LK @ h_BTK.mT, h_BTK, read_BT)
        o_BLD = self._interact(self.dropout(u_BLK))
        embedding_BD = o_BLD.amax(1) if self.pooling == "max" else o_BLD.mean(1)
        return torch.cat([embedding_BD, self.classifier(o_BLD).squeeze(-1)], dim=1)

    def _interact(self, u_BLK: Tensor) -> Tensor:
        """Returns the label vectors [H^s, H^d] (B, L, D), computed along one graph and then the other."""
        statistical_BLK = self.statistical(u_BLK, self.graph_LL)
        affinity_BLL = self.left(statistical_BLK) @ self.right(statistical_BLK).mT
        dynamic_BLK = self.dynamic(statistical_BLK, normalize_graph(F.logsigmoid(affinity_BLL)))
        return torch.cat([statistical_BLK, dynamic_BLK], dim=-1)


LDGN = Encoder(
    name="ldgn",
    title="label attention over a recurrent network, then two label graphs (Ma et al. 2021)",
    section=LdgnConfig,
    modality="text",
    build=Ldgn,
    tokenizer="words",
    label_wise=True,
    no_onnx="its recurrent layer reads packed sequences",
    order=7,
)
