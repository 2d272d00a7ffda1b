"""Tests that the tiled engine has the value and the gradients of the dense one, also of the temperature."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from losses.oracles import CASES, FIRST, mean_loss

from mlcl.labels import LabelRows
from mlcl.losses import LearnedTemperature, build_loss, joint_loss, positive_weights, tiling
from mlcl.losses.sets import LabelSets
from mlcl.testing.loss_batches import case_id, take
from mlcl.testing.losses import assert_equal, value_and_gradients

every_case = pytest.mark.parametrize("case", CASES, ids=case_id)
every_loss = pytest.mark.parametrize("case", FIRST, ids=case_id)
CPU = torch.device("cpu")
pytestmark = pytest.mark.usefixtures("small_tiles")


def solved(case, engine, rows, z, tau=0.3, **how):
    """Returns the value and the gradients of the embeddings and of the logarithm of the temperature."""
    return value_and_gradients(case, replace(rows, z=z), engine, tau, **how)


@every_case
def test_tiled_in_float32_is_close_to_float64(case, rows):
    unit_z = torch.nn.functional.normalize(rows.z, dim=1)
    expected = solved(case, "tiled", rows, unit_z, 0.1)
    actual = solved(case, "tiled", rows, unit_z.float(), 0.1)
    assert_equal([part.double() for part in actual], expected, 2e-5)


@every_loss
def test_float16_counts_in_float32(case, rows):
    z = rows.z.to(torch.float16)
    for engine in ("tiled", "auto"):
        value, gradient, _ = solved(case, engine, rows, z)
        expected, _, _ = solved(case, engine, rows, z.float())
        assert value.dtype == torch.float32
        assert value == expected
        assert gradient.dtype == z.dtype


@every_case
def test_small_temperatures_do_not_overflow(case, rows):
    name, options = case
    z = torch.nn.functional.normalize(rows.z.float(), dim=1)
    expected = mean_loss(name, z.double().tolist(), rows.plain_labels(name), 0.005, **options)
    for engine in ("tiled", "auto"):
        value, gradient, tau_gradient = solved(case, engine, rows, z, 0.005)
        assert value.item() == pytest.approx(expected, rel=1e-4)
        assert gradient.isfinite().all()
        assert tau_gradient.isfinite()


def near_rows(scene):
    """Returns float32 rows of which the views of a sample are close."""
    g = torch.Generator().manual_seed(0)
    if scene == "all close":
        z = torch.randn(9, 3, generator=g) * 2**-12
        return torch.cat([z, z + 4])
    if isinstance(scene, str):  # more rows than torch.cdist takes before it turns to the product form
        base = torch.randn(40, 3, generator=g)
        return torch.cat([base, base, base + 2**-9]) + (1000 if scene == "far from the origin" else 0)
    z = torch.randn(8, 6, generator=g)
    return torch.cat([z, z + scene * torch.randn(8, 6, generator=g)])


@pytest.mark.parametrize("engine", ["tiled", "dense"])
@pytest.mark.parametrize("scene", ["close", "far from the origin", "all close", 1e-4, 1e-5, 1e-6])
def test_distances_of_close_rows_are_not_cancelled(scene, engine):
    """The product form of distances would cancel; tiled gradients of near duplicates are exact, too."""
    z, views = near_rows(scene), 3 if scene in ("close", "far from the origin") else 2
    labels = torch.arange(len(z) // views).repeat(views)
    expected, actual = (
        graded("knn", *inputs, labels, 0.5) for inputs in (("dense", z.double()), (engine, z))
    )
    assert actual[0].item() == pytest.approx(expected[0].item(), rel=1e-5)
    if engine == "tiled" and isinstance(scene, float):
        assert (actual[1] - expected[1]).norm() < 1e-5 * expected[1].norm()


@settings(
    max_examples=80,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    case=st.sampled_from(CASES),
    samples=st.integers(2, 12),
    views=st.integers(1, 3),
    dim=st.integers(1, 6),
    width=st.integers(3, 9),
    tile=st.integers(1, 9),
    seed=st.integers(0, 99),
)
def test_random_shapes_and_tiles(monkeypatch, make, case, samples, views, dim, width, tile, seed):
    monkeypatch.setattr(tiling, "TILE", tile)
    rows = make(samples=samples, views=views, dim=dim, width=width, seed=seed)
    expected = solved(case, "dense", rows, rows.z)
    assert_equal(solved(case, "tiled", rows, rows.z), expected, 1e-11)


@every_case
def test_without_gradient_the_value_is_the_same(case, rows):
    name, options = case
    values = []
    for engine in ("tiled", "dense"):
        loss = build_loss(name, temperature=0.3, engine=engine, **options)
        with torch.no_grad():
            values.append(loss(rows.z, rows.labels(name), rows.sample_ids()).item())
    assert values[0] == pytest.approx(values[1], rel=1e-12)


@pytest.mark.parametrize("engine", ["tiled", "auto"])
def test_a_second_derivative_is_refused(engine, rows):
    z = rows.z.clone().requires_grad_()
    value = build_loss("supcon", engine=engine)(z, rows.labels("supcon"))
    with pytest.raises(RuntimeError, match='no second derivative; build the loss with engine="dense"'):
        torch.autograd.grad(value, z, create_graph=True)
    dense_loss = build_loss("supcon", engine="dense")
    assert torch.autograd.gradgradcheck(lambda z: dense_loss(z, rows.labels("supcon")), (z,))


DOT = ["supcon", "simdis", "mulsupcon", "himulcon", "hicone", "himulcone", "jscl", "sincere", "lascl"]


def scene(name, length, samples=150, dim=16, clustered=False):
    """Returns float32 rows of one length and a loss's labels; clustered rows are near their class centres."""
    g = torch.Generator().manual_seed(3)
    coarse_labels = torch.arange(samples) % 4
    fine_labels = coarse_labels * 3 + torch.randint(0, 3, (samples,), generator=g)
    z = torch.randn(samples, dim, generator=g)
    if clustered:
        centres = torch.randn(4, dim, generator=g), 0.3 * torch.randn(12, dim, generator=g)
        z = centres[0][coarse_labels] + centres[1][fine_labels] + 0.05 * z
    z = torch.nn.functional.normalize(z, dim=1) * length
    paths, sets = torch.stack([coarse_labels, fine_labels], 1), LabelRows.from_classes(fine_labels, 12)
    labels = {"supcon": fine_labels, **dict.fromkeys(("himulcon", "hicone", "himulcone", "lascl"), paths)}
    return z, labels.get(name, sets)


def graded(name, engine, z, labels, tau):
    z = z.clone().requires_grad_()
    temperature = LearnedTemperature(tau).to(z.dtype)
    value = build_loss(name, temperature=temperature, engine=engine)(z, labels)
    value.backward()
    return value.detach().double(), z.grad.double(), temperature.log_tau.grad.double()


@pytest.mark.parametrize("name", DOT)
@pytest.mark.parametrize(
    ("length", "tau", "clustered"),
    [(1, 0.005, False), (10, 0.1, False), (1000, 0.05, False), (1, 0.1, True), (28, 0.01, True)],
)
def test_float32_at_any_scale_of_the_logits(name, clustered, length, tau, monkeypatch):
    """The value has the precision of float32 for logits of this size, gradients that of the dense engine."""
    monkeypatch.setattr(tiling, "TILE", 32)
    z, labels = scene(name, length, clustered=clustered)
    tau = float(torch.tensor(tau).log().exp())
    exact = graded(name, "dense", z.double(), labels, tau)
    actual = graded(name, "tiled", z, labels, tau)
    precision = 1e-6 * (10 + length**2 / tau)
    assert abs(actual[0] - exact[0]) < precision
    dense = graded(name, "dense", z, labels, tau)
    for gradient, reference, truth in zip(actual[1:], dense[1:], exact[1:], strict=True):
        error, allowed_error = (gradient - truth).norm(), (reference - truth).norm()
        assert error <= 5 * allowed_error + 2e-5 * truth.norm() + 1e-6 * precision


def test_own_rows_of_a_set_are_not_lost_beside_it():
    """The first row has no equal set, so all its factors are exp(-20), while other rows have factors of 1."""
    labels = LabelRows.from_lists([[0], [0, 1, 2, 3, 4], [0, 1, 2, 3, 4]], 5)
    z = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    options = {"penalty": "exponential", "rate": 5.0, "normalizer": "factors", "temperature": 0.5}
    dense, tiled = (
        build_loss("simdis", reduction="sum", engine=engine, **options)(z, labels).item()
        for engine in ("dense", "tiled")
    )
    assert tiled == pytest.approx(dense, rel=1e-5)


@pytest.mark.parametrize("engine", ["tiled", "dense"])
@pytest.mark.parametrize("rate", [2.9, 3.2])
def test_factors_that_float32_hardly_holds_have_no_infinite_inverse(engine, rate):
    """The factors of the first row, exp(-rate 33), lose digits or are 0 in float32; they count as 0."""
    labels = LabelRows.from_lists([[0], *[range(34)] * 8], 34)
    z = torch.nn.functional.normalize(torch.randn(9, 4, generator=torch.Generator().manual_seed(0)), dim=1)
    z.requires_grad_()
    options = {"penalty": "exponential", "rate": rate, "normalizer": "factors"}
    value = build_loss("simdis", engine=engine, **options)(z, labels)
    value.backward()
    terms = build_loss("simdis", reduction="none", **options)(z.detach().double(), labels)
    assert value.item() == pytest.approx(terms[1:].sum().item() / 9, rel=1e-6)
    assert z.grad.isfinite().all()


@pytest.mark.parametrize("name", ["hicone", "himulcone"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_of_equal_pairs_one_is_the_largest(name, dtype, make):
    """Identical views make all pairs equal; dense and tiled engines give the gradient to the same pair."""
    rows = make(samples=7, views=1)
    z = rows.z.to(dtype).repeat(2, 1)
    paths = torch.tensor(rows.paths).repeat(2, 1)
    dense, tiled = (graded(name, engine, z, paths, 0.3) for engine in ("dense", "tiled"))
    assert_equal(tiled, dense, 1e-11 if dtype == torch.float64 else 1e-4)


@pytest.mark.parametrize(
    ("name", "value"),
    [(name, value) for name in ("supcon", "knn", "himulcone") for value in (math.nan, math.inf)]
    + [("knn", 1e25)],
)
def test_what_is_not_finite_is_not_hidden(name, value, make):
    rows = make(samples=7)
    z = rows.z.float()
    z[3] = value
    value, gradient, _ = graded(name, "tiled", z, rows.labels(name), 0.3)
    assert not value.isfinite()
    assert not gradient.isfinite().all()


@every_case
def test_no_rows_at_all(case, make):
    name, options = case
    rows = make(samples=2)
    index = torch.tensor([], dtype=torch.int64)
    for engine in ("tiled", "auto"):
        z = torch.zeros(0, 3, requires_grad=True)
        loss = build_loss(name, engine=engine, **options)
        value = loss(z, take(rows.labels(name), index), index)
        value.backward()
        assert value == 0
        assert loss.stats.without_positive == 0


def test_a_compiled_model_around_the_loss(rows):
    encoder, loss = torch.nn.Linear(5, 3).double(), build_loss("supcon", engine="tiled")
    step = torch.compile(lambda x: loss(encoder(x), rows.labels("supcon")), backend="aot_eager")
    expected = loss(encoder(rows.z), rows.labels("supcon"))
    assert step(rows.z).item() == pytest.approx(expected.item())
    joint_step = torch.compile(
        lambda x: joint_loss([loss, loss], [1, 2], encoder(x), [rows.labels("supcon")] * 2)[0],
        backend="aot_eager",
    )
    assert joint_step(rows.z).item() == pytest.approx(3 * expected.item())


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16, torch.int32])
@pytest.mark.parametrize("name", ["supcon", "any", "himulcon"])
def test_labels_of_any_integer_dtype(name, dtype, rows):
    classes = torch.tensor(rows.classes).clamp(min=0)
    labels = classes[:, None] if name == "himulcon" else classes
    values = [build_loss(name, engine="tiled")(rows.z, y) for y in (labels, labels.to(dtype))]
    assert values[0] == values[1]


def test_tiles_cover_every_pair_once():
    for own_rows, rows, prototypes in [(0, 5, 0), (4, 4, 0), (9, 9, 2), (5, 12, 3), (1, 3, 0)]:
        visits = torch.zeros(own_rows, rows + prototypes, dtype=torch.int64)
        for part, cols, mirrored in tiling.tiles(CPU, own_rows, rows, prototypes):
            visits[part, cols] += 1
            if mirrored:
                visits[cols, part] += 1
        assert (visits == 1).all()


def test_rows_that_hash_alike_are_still_told_apart(monkeypatch, rows):
    expected = solved(("simdis", {}), "dense", rows, rows.z)
    monkeypatch.setattr(LabelSets, "_hashes", lambda sets: torch.zeros(len(sets), dtype=torch.int64))
    assert_equal(solved(("simdis", {}), "tiled", rows, rows.z), expected, 1e-12)
    ratings = solved(("jaccard", {}), "dense", rows, rows.z)
    assert_equal(solved(("jaccard", {}), "tiled", rows, rows.z), ratings, 1e-12)


def test_many_labels_are_counted_by_those_in_both(monkeypatch, rows):
    expected = positive_weights("simdis", rows.labels("simdis"))
    monkeypatch.setattr("mlcl.losses.sets.FEW", 2)
    assert torch.equal(positive_weights("simdis", rows.labels("simdis")), expected)
    wide_labels = LabelRows(rows.labels("any").offsets, rows.labels("any").columns * 1000, rows.width * 1000)
    assert torch.equal(positive_weights("simdis", wide_labels), expected)


def test_none_has_no_tiled_engine():
    with pytest.raises(ValueError, match="reduction none has no tiled engine"):
        build_loss("any", reduction="none", engine="tiled")
    with pytest.raises(ValueError, match=r"unknown engine 'tile'; did you mean tiled\?"):
        build_loss("any", engine="tile")
