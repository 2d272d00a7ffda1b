"""Padding changes no output of a text encoder, and gets no gradient."""

import pytest
import torch
from tiny_models import token_batch
from torch import nn

from mlcl.labels import LabelRows
from mlcl.models.encoders.cnn_text import CnnText
from mlcl.models.encoders.ldgn import Ldgn
from mlcl.models.encoders.plm_icd import PlmIcd
from mlcl.models.label_layers import label_graph
from mlcl.models.pretrained import load_pretrained

GRAPH = label_graph(LabelRows.from_lists([[0, 1], [0, 1, 2], [2], [], [0]], 4))
ENCODERS = {
    "cnn_text": lambda _: CnnText(30, width=4, embedding_dim=6, kernel_sizes=(3, 4, 5)),
    "ldgn": lambda _: Ldgn(30, GRAPH, embedding_dim=5, width=3),
    "plm_icd": lambda models: PlmIcd(load_pretrained(models["bert"]), 4, chunk_length=4),
}


@pytest.fixture(params=ENCODERS)
def encoder(request, models):
    torch.manual_seed(0)
    return ENCODERS[request.param](models).eval()


@pytest.mark.parametrize("length", [0, 1, 2, 3, 4, 5, 7])
def test_padding_never_changes_an_output(encoder, length):
    if isinstance(encoder, PlmIcd) and not length:
        pytest.skip("its tokenizer adds special tokens to an empty text")
    ids, mask = token_batch([length], 16)
    expected = encoder(ids[:, : max(length, 1)], mask[:, : max(length, 1)])
    assert expected.isfinite().all()
    for total in (length + 1, 9, 16):
        torch.testing.assert_close(encoder(ids[:, :total], mask[:, :total]), expected)
    torch.testing.assert_close(encoder(torch.where(mask, ids, 7), mask), expected)


def test_no_gradient_reaches_padding(encoder):
    encoder(torch.tensor([[7, 4, 9]]), torch.tensor([[True, True, False]])).sum().backward()
    words = next(module for module in encoder.modules() if isinstance(module, nn.Embedding))
    assert words.weight.grad[9].abs().sum() == 0
    assert words.weight.grad[7].abs().sum() > 0
