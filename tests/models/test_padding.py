"""Tests of text convolutions and of texts without words; the encoder suite tests the padding of others."""

import pytest
import torch

from mlcl.labels import LabelRows
from mlcl.models.encoders.cnn_text import CnnText
from mlcl.models.encoders.ldgn import Ldgn
from mlcl.models.label_layers import label_graph

GRAPH = label_graph(LabelRows.from_lists([[0, 1], [0, 1, 2], [2], [], [0]], 4))
ENCODERS = {
    "cnn_text": lambda: CnnText(30, width=4, embedding_dim=6, kernel_sizes=(3, 4, 5)),
    "ldgn": lambda: Ldgn(30, GRAPH, embedding_dim=5, width=3),
}


@pytest.mark.parametrize("name", ENCODERS)
def test_a_text_without_words_has_one_finite_output_whatever_its_padding(name):
    torch.manual_seed(0)
    encoder = ENCODERS[name]().eval()
    ids, mask = torch.randint(1, 30, (1, 16)), torch.zeros(1, 16, dtype=torch.bool)
    expected = encoder(ids[:, :1], mask[:, :1])
    assert expected.isfinite().all()
    for total in (2, 9, 16):
        torch.testing.assert_close(encoder(ids[:, :total], mask[:, :total]), expected)
    torch.testing.assert_close(encoder(torch.full_like(ids, 7), mask), expected)


def test_cnn_text_is_the_plain_sum_over_windows():
    torch.manual_seed(0)
    encoder = CnnText(30, width=4, embedding_dim=6, kernel_sizes=(3,)).eval()
    ids = torch.randint(1, 30, (1, 5))
    x_TE = encoder.embedding(ids[0])
    weight_FEk, bias_F = encoder.convolutions[0].weight, encoder.convolutions[0].bias
    windows = [(weight_FEk * x_TE[t : t + 3].T).sum((1, 2)) + bias_F for t in range(3)]
    output = encoder(ids, torch.ones(1, 5, dtype=torch.bool))[0]
    torch.testing.assert_close(output, torch.stack(windows).amax(0).relu())
