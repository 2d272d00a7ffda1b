"""Tests of a loss that is one function from labels to weights, for the dense engine and small batches."""

import logging
import math

import pytest
import torch

from mlcl.losses import LOSSES, build_loss, loss, sharing_key
from mlcl.testing import register_plugins
from mlcl.testing.losses import LossTestCase


class TestNeighbouring(LossTestCase):
    names = ("neighbouring",)
    modules = ("losses.neighbouring_classes",)

    def weights(self, labels, i, decay=1.0):
        neighbours = [p for p in range(len(labels)) if p != i and labels[i] >= 0 and labels[p] >= 0]
        distances = {p: abs(labels[p] - labels[i]) for p in neighbours}
        return {p: math.exp(-decay * distance) for p, distance in distances.items() if distance <= 1}


@pytest.fixture
def known():
    with register_plugins(LOSSES, TestNeighbouring.modules):
        yield


@pytest.mark.usefixtures("known")
def test_it_says_once_that_it_is_dense(caplog):
    loss._warn_dense.cache_clear()
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            build_loss("neighbouring")
    assert [record.message for record in caplog.records] == [
        "loss neighbouring has no closed form: its weights take memory of batch x batch"
    ]


@pytest.mark.usefixtures("known")
def test_it_has_no_tiled_engine_and_shares_no_softmax():
    with pytest.raises(ValueError, match="no closed form for the tiled engine; allowed: dense, auto"):
        build_loss("neighbouring", engine="tiled")
    assert sharing_key(build_loss("neighbouring")) is None


@pytest.mark.usefixtures("known")
@pytest.mark.parametrize("rows", [8, 300])
def test_large_batches_have_the_gradient_of_the_definition(rows):
    z = torch.randn(rows, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    labels = torch.arange(rows) % 7
    gradients = [
        torch.autograd.grad(build_loss("neighbouring", engine=engine)(z, labels), z)[0]
        for engine in ("auto", "dense")
    ]
    torch.testing.assert_close(*gradients, rtol=1e-12, atol=1e-14)
