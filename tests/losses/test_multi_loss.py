"""Tests that losses that share the softmax of an embedding have the values and gradients of single losses."""

import pytest
import torch
from torch import nn

from mlcl.losses import LearnedTemperature, build_loss, joint_loss, sharing_key
from mlcl.losses.similarities import Similarities
from mlcl.testing.losses import assert_equal

pytestmark = pytest.mark.usefixtures("small_tiles")
NAMES = ["supcon", "simdis", "himulcone", "jaccard", "simclr", "mulsupcon"]
WEIGHTS = [0.3, 0.5, 0.2, 1.5, 0.0, 0.7]
TAUS = [0.3, 0.1, 0.3, 0.002, 0.1, 0.3]


def losses_of(names, taus, **how):
    return nn.ModuleList([build_loss(n, temperature=t, **how) for n, t in zip(names, taus, strict=True)])


def one_by_one(losses, weights, z, labels, samples):
    values = [loss(z, y, samples) for loss, y in zip(losses, labels, strict=True)]
    return sum(weight * value for weight, value in zip(weights, values, strict=True)), values


def gradients(work, z, losses):
    z.grad = None
    losses.zero_grad()
    total, values = work()
    total.backward()
    parameter_gradients = [parameter.grad for parameter in losses.parameters()]
    return [total.detach(), *(value.detach() for value in values), z.grad, *parameter_gradients]


@pytest.mark.parametrize("reduction", ["mean", "sum", "mean_valid"])
@pytest.mark.parametrize("normalize", [False, True])
def test_together_as_one_by_one(reduction, normalize, make):
    rows = make(samples=9)
    z = rows.z.clone().requires_grad_()
    losses = losses_of(NAMES, TAUS, reduction=reduction, normalize=normalize)
    labels = [rows.labels(name) for name in NAMES]
    arguments = (losses, WEIGHTS, z, labels, rows.sample_ids())
    joint_gradients = gradients(lambda: joint_loss(*arguments), z, losses)
    separate_gradients = gradients(lambda: one_by_one(*arguments), z, losses)
    assert_equal(joint_gradients, separate_gradients, 1e-12)


@pytest.mark.parametrize("scene", ["temperatures", "distances"])
def test_learned_temperatures_keep_their_own_gradient_and_distances_are_shared_too(scene, rows):
    """Two learned temperatures and a constant have the same value, and two losses share one of them."""
    shared_tau, own_tau = LearnedTemperature(0.25).double(), LearnedTemperature(0.25).double()
    names, weights = ["supcon", "any", "simdis", "mulsupcon"], [0.4, 0.3, 0.2, 0.1]
    losses = losses_of(names, [shared_tau, shared_tau, own_tau, 0.25])
    if scene == "distances":
        names, weights = ["knn", "knn"], [0.4, 0.6]
        knn = [build_loss("knn", temperature=0.5), build_loss("knn", temperature=2.0, dynamic=False)]
        losses = nn.ModuleList(knn)
    z = rows.z.clone().requires_grad_()
    arguments = (losses, weights, z, [rows.labels(n) for n in names], None)
    joint_gradients = gradients(lambda: joint_loss(*arguments), z, losses)
    separate_gradients = gradients(lambda: one_by_one(*arguments), z, losses)
    assert len(joint_gradients) == (8 if scene == "temperatures" else 4)
    for first, second in zip(joint_gradients, separate_gradients, strict=True):
        torch.testing.assert_close(first, second, rtol=1e-12, atol=1e-12)


def test_the_pairs_are_compared_once(monkeypatch, rows):
    calls = []
    monkeypatch.setattr(Similarities, "tile", _counting(Similarities.tile, calls))
    labels = [rows.labels("supcon"), rows.labels("any")]
    joint_loss(losses_of(["supcon", "any"], [0.1, 0.2]), [1, 1], rows.z, labels)
    joint_count = len(calls)
    build_loss("supcon", engine="tiled")(rows.z, labels[0])
    assert joint_count == len(calls) - joint_count > 0


def _counting(tile, made):
    def counted(self, rows, cols):
        made.append((rows, cols))
        return tile(self, rows, cols)

    return counted


def test_weights_and_labels_fit_the_losses():
    loss, labels = build_loss("supcon"), torch.tensor([0, 0])
    for losses, weights, loss_labels in (([], [], []), ([loss], [1, 2], [labels]), ([loss], [1], [])):
        with pytest.raises(ValueError, match="as many weights and labels as losses"):
            joint_loss(losses, weights, torch.eye(2), loss_labels)
    with pytest.raises(ValueError, match=r"weights must be finite and 0 or more; found: \[-1\]"):
        joint_loss([loss], [-1], torch.eye(2), [labels])


def test_what_cannot_share():
    plain_loss = build_loss("supcon")
    for other in (
        build_loss("knn"),
        build_loss("supcon", normalize=True),
        build_loss("any", engine="dense"),
        build_loss("any", reduction="none"),
        build_loss("msc", prototypes=(3, 2)),
        build_loss("sincere"),
    ):
        assert sharing_key(other) != sharing_key(plain_loss)
        with pytest.raises(ValueError, match=f"cannot share a softmax: supcon, {other.spec.name}"):
            joint_loss([plain_loss, other], [1, 1], torch.eye(2), [torch.tensor([0, 0])] * 2)
    assert sharing_key(build_loss("msc")) is None
