"""Tests of REG: the loss of its weights, and a gradient that repels no positive."""

import math

import pytest
import torch
from losses.oracles import reg, reg_weights, similarity

from mlcl.labels import LabelRows
from mlcl.losses import LearnedTemperature, build_loss, positive_weights
from mlcl.testing.losses import assert_equal

pytestmark = pytest.mark.usefixtures("small_tiles")


def definition(z, centres, sets, tau, alpha):
    """Returns the mean and its gradients by rows, prototypes and log tau, from the equations."""
    rows, dim = len(z), len(z[0])
    vectors = [*z, *centres]
    value, tau_gradient, row_gradients = 0.0, 0.0, [[0.0] * dim for _ in vectors]
    limited_count = 0
    for i in range(rows):
        row_weights, label_weights = reg_weights(sets, i, alpha, bool(centres))
        w = row_weights | {rows + label: weight for label, weight in label_weights.items()}
        logit = {a: similarity(z[i], other) / tau for a, other in enumerate(vectors) if a != i}
        max_logit = max(logit.values())
        lse = max_logit + math.log(math.fsum(math.exp(x - max_logit) for x in logit.values()))
        for a, x in logit.items():
            value += w.get(a, 0.0) * (lse - x) / rows
            slope = math.fsum(w.values()) * math.exp(x - lse) - w.get(a, 0.0)
            if a in w and slope > 0:
                slope, limited_count = 0.0, limited_count + 1
            tau_gradient -= slope * x / rows
            for d in range(dim):
                row_gradients[i][d] += slope * vectors[a][d] / tau / rows
                row_gradients[a][d] += slope * z[i][d] / tau / rows
    assert limited_count > 0
    return value, row_gradients[:rows], row_gradients[rows:], tau_gradient


@pytest.mark.parametrize("alpha", [0.0, 1.0, 2.5])
@pytest.mark.parametrize("engine", ["dense", "tiled", "auto"])
@pytest.mark.parametrize("tau", [0.05, 0.5])
@pytest.mark.parametrize("prototypes", [False, True])
def test_value_and_gradients_equal_the_definition(alpha, engine, tau, prototypes, rows):
    torch.manual_seed(1)
    loss = build_loss(
        "reg",
        temperature=LearnedTemperature(tau).double(),
        engine=engine,
        prototypes=(rows.width, 5) if prototypes else None,
        alpha=alpha,
    ).double()
    z = rows.z.clone().requires_grad_()
    value = loss(z, rows.labels("reg"), rows.sample_ids())
    value.backward()
    centres = loss.prototypes.tolist() if prototypes else []
    exact_tau = loss.temperature.value().item()
    expected = definition(rows.z.tolist(), centres, rows.sets, exact_tau, alpha)
    actual = [value.detach(), z.grad, loss.temperature.log_tau.grad]
    assert_equal(
        actual, [torch.tensor(part, dtype=torch.float64) for part in (*expected[:2], expected[3])], 1e-11
    )
    if prototypes:
        assert_equal([loss.prototypes.grad], [torch.tensor(expected[2], dtype=torch.float64)], 1e-11)


def test_weights_by_hand():
    """Row 1 has half of its labels in common with row 0, and row 2 all of its labels."""
    sets = [frozenset({0, 1}), frozenset({1, 2}), frozenset({1}), frozenset()]
    assert reg_weights(sets, 0, 1.0, True) == ({1: 0.1, 2: 0.2}, {0: 0.5, 1: 0.2})
    assert reg_weights(sets, 0, 1.0, False) == (pytest.approx({1: 1 / 6, 2: 1 / 3}), {})
    labels = torch.tensor([[1, 1, 0], [0, 1, 1], [0, 1, 0], [0, 0, 0]])
    assert positive_weights("reg", labels)[0].tolist() == pytest.approx([0, 1 / 6, 1 / 3, 0])


@pytest.mark.parametrize("engine", ["dense", "tiled"])
def test_a_positive_that_is_near_enough_is_left_alone(engine):
    """Row 0 lies on its positive 1 but not on 2, so row 1 has more than its half of the softmax."""
    z = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]], dtype=torch.float64, requires_grad=True)
    labels = torch.zeros(3, dtype=torch.int64)
    build_loss("reg", temperature=0.1, engine=engine, reduction="sum")(z, labels).backward()
    p = 1 / (1 + math.exp(10))
    # Rows 0 and 1 attract row 2; row 2 is equally near to both, so its own term has no gradient.
    assert z.grad[2].tolist() == pytest.approx([2 * (p - 0.5) / 0.1, 0])
    assert reg(z.tolist(), [frozenset({0})] * 3, 0.1)[2] == pytest.approx(math.log(2))


def test_shares_far_below_that_of_the_row_itself_keep_their_digits():
    """f is 1 for a row with itself, and 40^-4 for another row that shares one of 40 labels."""
    z = torch.nn.functional.normalize(torch.randn(9, 4, generator=torch.Generator().manual_seed(0)), dim=1)
    sets = [[0, row % 2 + 1, *range(40 * row + 3, 40 * row + 41)] for row in range(len(z))]
    labels = LabelRows.from_lists(sets, 400)
    tiled_value, exact_value = (
        build_loss("reg", engine=engine, alpha=4.0)(embeddings, labels)
        for engine, embeddings in (("tiled", z), ("dense", z.double()))
    )
    assert tiled_value.item() == pytest.approx(exact_value.item(), rel=1e-6)
