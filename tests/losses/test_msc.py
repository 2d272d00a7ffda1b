"""Tests of MSC with prototypes, which are learned candidates of every anchor, weighted by label frequency."""

import pytest
import torch
from losses.oracles import msc

from mlcl.losses import LearnedTemperature, build_loss
from mlcl.testing.losses import assert_equal

pytestmark = pytest.mark.usefixtures("small_tiles")
OPTIONS = [{}, {"alpha": 0.5}, {"beta": 3.0}, {"alpha": 2.0, "beta": 0.25}]


def build(rows, engine, options, tau=0.3, dim=5, **how):
    torch.manual_seed(1)
    temperature = LearnedTemperature(tau).double()
    loss = build_loss(
        "msc", temperature=temperature, engine=engine, prototypes=(rows.width, dim), **how, **options
    )
    return loss.double()


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("engine", ["dense", "tiled", "auto"])
@pytest.mark.parametrize("tau", [0.004, 0.5])
def test_value_equals_the_oracle(options, engine, tau, rows):
    loss = build(rows, engine, options, tau)
    value = loss(rows.z, rows.labels("msc"), rows.sample_ids())
    exact_tau = loss.temperature.value().item()
    terms = msc(rows.z.tolist(), rows.sets, exact_tau, loss.prototypes.tolist(), **options)
    assert value.item() == pytest.approx(sum(terms) / len(terms), rel=1e-12)


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("tau", [0.001, 0.3])
@pytest.mark.parametrize("reduction", ["mean", "mean_valid", "sum"])
def test_tiled_equals_dense(options, tau, reduction, make):
    rows = make(samples=11)
    gradients = []
    for engine in ("dense", "tiled"):
        loss = build(rows, engine, options, tau, reduction=reduction, normalize=True)
        z = rows.z.clone().requires_grad_()
        value = loss(z, rows.labels("msc"))
        value.backward()
        gradients.append([value.detach(), z.grad, loss.prototypes.grad, loss.temperature.log_tau.grad])
    dense, tiled = gradients
    assert_equal(tiled, dense, 1e-11)


@pytest.mark.parametrize("engine", ["dense", "tiled"])
def test_gradient_of_the_prototypes(engine, make):
    rows = make(samples=4)
    loss = build(rows, engine, {"beta": 2.0})

    def value(prototypes):
        arguments = (rows.z, rows.labels("msc"))
        return torch.func.functional_call(loss, {"prototypes": prototypes}, arguments)

    assert torch.autograd.gradcheck(value, (loss.prototypes.detach().clone().requires_grad_(),))


def test_an_anchor_alone_is_drawn_by_its_prototypes(rows):
    """A single row with the labels 0 and 1 has no candidates except the prototypes."""
    loss = build_loss("msc", temperature=1.0, prototypes=(3, 2), engine="tiled").double()
    loss.prototypes.data = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]]).double()
    value = loss(torch.tensor([[1.0, 0.0]]).double(), torch.tensor([[1, 1, 0]]))
    logits = torch.tensor([1.0, 0.0, -1.0]).double()
    assert value.item() == pytest.approx((logits.logsumexp(0) - (logits[0] + logits[1]) / 2).item())


def test_prototypes_stay_with_their_class():
    torch.manual_seed(0)
    loss = build_loss("msc", prototypes=(10, 4))
    z, low, high = torch.randn(6, 4), torch.tensor([0, 0, 1, 1, 2, 2]), torch.tensor([7, 7, 8, 8, 9, 9])
    assert loss(z, low) != loss(z, high)
    assert loss(z, low) == loss(z, torch.nn.functional.one_hot(low, 10))
    with pytest.raises(ValueError, match="class labels must be below 10; found: 10"):
        loss(z, high + 1)


@pytest.mark.parametrize("beta", [1e-30, 1e30])
def test_any_beta_is_finite(beta, rows):
    values = []
    for engine in ("dense", "tiled"):
        loss = build(rows, engine, {"beta": beta}).float()
        values.append(loss(rows.z.float(), rows.labels("msc")).item())
    assert values[1] == pytest.approx(values[0], rel=1e-5)


def test_prototypes_are_checked(rows):
    with pytest.raises(ValueError, match=r"prototypes must be \(labels, dimension\); found: \(3,\)"):
        build_loss("msc", prototypes=(3,))
    with pytest.raises(ValueError, match=r"prototypes must be \(labels, dimension\); found: 5"):
        build_loss("msc", prototypes=5)
    with pytest.raises(ValueError, match=r"supcon has no prototypes; found: \(3, 2\)"):
        build_loss("supcon", prototypes=(3, 2))
    with pytest.raises(ValueError, match="prototypes of 9 labels; found: labels of width 6"):
        build_loss("msc", prototypes=(9, 5))(rows.z, rows.labels("msc"))
    with pytest.raises(ValueError, match="do not fit prototypes of dimension 4"):
        build_loss("msc", prototypes=(6, 4))(rows.z, rows.labels("msc"))
