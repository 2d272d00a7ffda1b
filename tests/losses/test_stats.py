"""Tests of diagnostics against explicit sums over pairs."""

import math

import pytest
import torch
from losses.oracles import CASES, any_positives

from mlcl.losses import build_loss, positive_weights
from mlcl.losses import stats as module
from mlcl.testing.loss_batches import case_id


def unit(row):
    length = math.sqrt(sum(x * x for x in row))
    return [x / length for x in row]


def distance(a, b):
    return sum((x - y) ** 2 for x, y in zip(unit(a), unit(b), strict=True))


@pytest.mark.parametrize("engine", ["dense", "tiled", "auto"])
def test_every_figure_of_any(engine, rows):
    loss = build_loss("any", temperature=0.7, engine=engine)
    loss(rows.z, rows.labels("any"))
    z, count = rows.z.tolist(), len(rows.z)
    positives = [any_positives(rows.sets, i) for i in range(count)]
    terms = [(1 / len(p), distance(z[i], z[q])) for i, p in enumerate(positives) for q in p]
    distances = [distance(z[i], z[a]) for i in range(count) for a in range(count) if a != i]
    perplexities = []
    for i in range(count):
        negatives = [a for a in range(count) if a != i and a not in positives[i]]
        masses = [math.exp(sum(x * y for x, y in zip(z[i], z[a], strict=True)) / 0.7) for a in negatives]
        shares = [mass / sum(masses) for mass in masses]
        perplexities.append(math.exp(-sum(share * math.log(share) for share in shares)))
    stats = loss.stats
    assert stats.anchors == count
    assert stats.positives_per_anchor == pytest.approx(sum(map(len, positives)) / count)
    assert stats.without_positive == pytest.approx(sum(not p for p in positives) / count)
    assert stats.effective_negatives == pytest.approx(sum(perplexities) / count)
    assert stats.alignment == pytest.approx(sum(w * d for w, d in terms) / sum(w for w, _ in terms))
    assert stats.uniformity == pytest.approx(
        math.log(sum(math.exp(-2 * d) for d in distances) / len(distances))
    )


@pytest.mark.parametrize("engine", ["dense", "tiled", "auto"])
@pytest.mark.parametrize("name", ["any", "all", "mulsupcon", "simdis", "simclr"])
def test_the_weight_of_an_anchor_on_its_own_views(name, engine, rows):
    loss, ids = build_loss(name, engine=engine), rows.sample_ids()
    labels = None if name == "simclr" else rows.labels(name)
    loss(rows.z, labels, ids)
    weights = positive_weights(name, labels, ids).tolist()
    shares = []
    for i, row in enumerate(weights):
        if sum(row) > 0:
            shares.append(sum(w for p, w in enumerate(row) if ids[p] == ids[i]) / sum(row))
    assert 0 < sum(shares)
    assert loss.stats.own_view_weight == pytest.approx(sum(shares) / len(shares))
    if labels is not None:
        loss(rows.z, labels)
        assert loss.stats.own_view_weight == 0


def test_known_geometry():
    """Two pairs lie at opposite points, so positives are aligned and an anchor's negatives equally far."""
    z = torch.tensor([[1.0, 0.0], [1.0, 0.0], [-2.0, 0.0], [-2.0, 0.0]], dtype=torch.float64)
    loss = build_loss("supcon", temperature=0.5)
    loss(z, torch.tensor([0, 0, 1, 1]))
    assert loss.stats.alignment == pytest.approx(0)
    assert loss.stats.effective_negatives == pytest.approx(2)
    assert loss.stats.uniformity == pytest.approx(math.log((1 + 2 * math.exp(-8)) / 3))


def test_no_negatives_at_all():
    loss = build_loss("supcon")
    loss(torch.eye(3), torch.zeros(3, dtype=torch.int64))
    assert loss.stats.effective_negatives == 0
    assert loss.stats.positives_per_anchor == 2


@pytest.mark.parametrize("case", CASES, ids=case_id)
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_every_loss_has_finite_figures(case, kind, rows):
    name, options = case
    loss = build_loss(name, **options)
    loss(rows.z.to(kind), rows.labels(name), rows.sample_ids())
    figures = loss.stats.as_dict()
    assert len(figures) == 7
    assert all(math.isfinite(value) for value in figures.values())
    assert 0 <= figures["without_positive"] < 1
    assert 0 < figures["effective_negatives"] < len(rows.z)


def test_a_sample_of_anchors_bounds_the_cost(monkeypatch, rows):
    monkeypatch.setattr(module, "SAMPLE", 3)
    loss = build_loss("any")
    loss(rows.z, rows.labels("any"))
    expected = [len(any_positives(rows.sets, i)) for i in range(3)]
    assert loss.stats.positives_per_anchor == pytest.approx(sum(expected) / 3)
    assert loss.stats.anchors == len(rows.z)


@pytest.mark.parametrize("count", [0, 1])
def test_no_pairs(count):
    loss = build_loss("supcon")
    loss(torch.zeros(count, 2), torch.zeros(count, dtype=torch.int64))
    figures = loss.stats.as_dict()
    assert figures.pop("without_positive") == figures.pop("zero_rows") == count
    assert set(figures.values()) == {0.0}


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("engine", ["dense", "tiled", "auto"])
def test_zero_rows_are_counted_and_lie_at_the_origin(engine, normalize):
    z = torch.tensor([[3.0, 0.0], [0.0, 2.0], [0.0, 0.0], [1e-9, 0.0]])
    loss = build_loss("supcon", normalize=normalize, engine=engine)
    loss(z, torch.tensor([0, 1, 0, 1]))
    assert loss.stats.zero_rows == (2 if normalize else 1)
    assert loss.stats.alignment == pytest.approx(1)
    distances = [2, 1, 1, 1, 1, 0]
    expected = math.log(sum(math.exp(-2 * d) for d in distances) / 6)
    assert loss.stats.uniformity == pytest.approx(expected)
