import pytest
import torch

from mlcl.losses import LOSSES, build_loss

every_loss = pytest.mark.parametrize("name", list(LOSSES))


def call(loss, rows, z):
    return loss(z, rows.labels(loss.spec.name), rows.sample_ids())


@every_loss
def test_autocast_does_not_reach_the_logits(name, rows):
    z = rows.z.float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = call(build_loss(name), rows, z)
    assert value == call(build_loss(name), rows, z)


@every_loss
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 0), (torch.float32, 1e-5)])
def test_dtype_of_the_embeddings_stays(name, dtype, tolerance, rows):
    value = call(build_loss(name), rows, rows.z.to(dtype))
    assert value.dtype == dtype
    assert value.item() == pytest.approx(call(build_loss(name), rows, rows.z).item(), rel=tolerance)


@pytest.mark.parametrize("reduction", ["mean", "sum", "mean_valid", "none"])
def test_no_positives_at_all_is_zero(reduction, rows):
    z = rows.z.clone().requires_grad_()
    loss = build_loss("supcon", reduction=reduction)
    value = loss(z, torch.arange(len(z)))
    value.sum().backward()
    assert value.abs().sum() == 0
    assert z.grad.abs().sum() == 0
    assert loss.stats.without_positive == 1


def test_an_anchor_without_positives_still_repels():
    z = torch.eye(3, dtype=torch.float64).requires_grad_()
    terms = build_loss("supcon", reduction="none")(z, torch.tensor([0, 0, 1]))
    assert terms[2] == 0
    assert torch.autograd.grad(terms[2], z, retain_graph=True)[0].count_nonzero() == 0
    assert torch.autograd.grad(terms[0], z)[0][2].count_nonzero() > 0


def test_normalize_is_the_callers_choice(rows):
    labels = rows.labels("any")
    unit_z = torch.nn.functional.normalize(rows.z, dim=1)
    plain_loss, normalized_loss = build_loss("any"), build_loss("any", normalize=True)
    assert plain_loss(rows.z, labels) != plain_loss(unit_z, labels)
    assert normalized_loss(rows.z * 3, labels).item() == pytest.approx(
        plain_loss(unit_z, labels).item(), rel=1e-13
    )


@pytest.mark.parametrize("engine", ["dense", "auto"])
@pytest.mark.parametrize("reduction", ["mean", "sum", "mean_valid"])
def test_the_value_has_the_dtype_of_the_embeddings(rows, reduction, engine):
    for dtype in (torch.float32, torch.float64):
        value = build_loss("supcon", reduction=reduction, engine=engine)(
            rows.z.to(dtype), rows.labels("supcon")
        )
        assert value.dtype == dtype
