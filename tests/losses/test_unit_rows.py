"""Tests of rows of unit length: ordinary rows equal those of `F.normalize`, zero rows have no gradient."""

import pytest
import torch
import torch.nn.functional as F

from mlcl.losses import build_loss, joint_loss
from mlcl.models import Projection
from mlcl.unit_rows import SHORTEST, unit_rows

ENGINES = ("dense", "tiled", "auto")
CLASSES = torch.tensor([0, 0, 1, 1, 0, 1])


def embeddings(dtype=torch.float32, seed=0):
    return torch.randn(6, 4, generator=torch.Generator().manual_seed(seed), dtype=dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_ordinary_rows_are_those_of_normalize_to_the_bit_with_its_gradient(dtype):
    z, reference_z = (embeddings(dtype).mul(1e-3).requires_grad_() for _ in range(2))
    unit_z, expected = unit_rows(z), F.normalize(reference_z, dim=1)
    assert torch.equal(unit_z, expected)
    weight = embeddings(dtype, seed=1)
    (unit_z * weight).sum().backward()
    (expected * weight).sum().backward()
    assert torch.equal(z.grad, reference_z.grad)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_row_shorter_than_the_epsilon_is_zero_without_a_gradient(dtype):
    length = 2.0**-22
    z = torch.tensor([[0.0, 0.0], [SHORTEST / 2, 0.0], [length, 0.0]], dtype=dtype, requires_grad=True)
    unit_z = unit_rows(z)
    assert unit_z.tolist() == [[0, 0], [0, 0], [1, 0]]
    unit_z.sum().backward()
    # d (z / |z|) / dz = (I - u u^T) / |z|
    assert z.grad.tolist() == [[0, 0], [0, 0], [0, pytest.approx(1 / length)]]


def test_the_gradient_of_other_rows_is_that_of_finite_differences():
    z = torch.cat([embeddings(torch.float64), torch.zeros(1, 4, dtype=torch.float64)])
    assert torch.autograd.gradcheck(
        lambda z_ND: unit_rows(torch.cat([z_ND, z[6:]])), z[:6].clone().requires_grad_()
    )


def with_zero_rows(dtype=torch.float32):
    z = embeddings(dtype)
    z[2], z[5] = 0, 1e-30
    return z.requires_grad_()


def of_loss(name, engine):
    options = {"prototypes": (2, 4)} if name == "msc" else {}
    return lambda z: build_loss(name, normalize=True, engine=engine, **options)(z, CLASSES)


def of_shared_softmax(z):
    losses = [build_loss(name, normalize=True) for name in ("supcon", "mulsupcon")]
    return joint_loss(losses, [1.0, 1.0], z, [CLASSES, CLASSES])[0]


USES = {f"{name}, {e}": of_loss(name, e) for name in ("supcon", "simdis", "knn", "msc") for e in ENGINES}
USES["shared softmax"] = of_shared_softmax
USES["projection"] = lambda h: Projection("linear", 4, 3, normalize_input=True)(h).square().sum()


@pytest.mark.parametrize("use", USES)
def test_zero_embeddings_get_no_gradient_from_what_normalises_them(use):
    z = with_zero_rows()
    USES[use](z).backward()
    assert bool((z.grad[[2, 5]] == 0).all())
    assert 0 < float(z.grad.abs().max()) < 100


@pytest.mark.parametrize("engine", ENGINES)
def test_a_zero_embedding_leaves_the_other_gradients_those_of_its_definition(engine):
    z, reference_z = with_zero_rows(torch.float64), with_zero_rows(torch.float64)
    build_loss("supcon", normalize=True, engine=engine)(z, CLASSES).backward()
    keep = [0, 1, 3, 4]
    unit_z = torch.zeros_like(reference_z).index_copy(
        0, torch.tensor(keep), F.normalize(reference_z[keep], dim=1)
    )
    build_loss("supcon", engine="dense")(unit_z, CLASSES).backward()
    torch.testing.assert_close(z.grad, reference_z.grad, rtol=1e-10, atol=1e-12)


def test_a_zero_prototype_gets_no_gradient():
    loss = build_loss("msc", normalize=True, prototypes=(2, 4))
    with torch.no_grad():
        loss.prototypes[1] = 0
    loss(embeddings().requires_grad_(), CLASSES).backward()
    assert loss.prototypes.grad[1].tolist() == [0] * 4
    assert float(loss.prototypes.grad[0].abs().max()) > 0
