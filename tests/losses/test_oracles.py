import math

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from losses.oracles import CASES, ORACLES, PATH_LOSSES, case_id, is_detached, mean_loss

from mlcl.labels import LabelRows
from mlcl.losses import LOSSES, build_loss

every_case = pytest.mark.parametrize("case", CASES, ids=case_id)
every_engine = pytest.mark.parametrize("engine", ["dense", "tiled", "auto"])
pytestmark = pytest.mark.usefixtures("small_tiles")


def test_every_loss_and_option_has_a_case():
    assert {name for name, _ in CASES} == set(LOSSES)
    for name, spec in LOSSES.items():
        used = {option for other, options in CASES if other == name for option in options}
        assert used == set(spec.options)


@every_case
@every_engine
@pytest.mark.parametrize("tau", [0.002, 1.3])
def test_mean_equals_the_oracle(case, engine, rows, tau):
    name, options = case
    loss = build_loss(name, temperature=tau, engine=engine, **options)
    value = loss(rows.z, rows.labels(name), rows.sample_ids())
    expected = mean_loss(name, rows.z.tolist(), rows.plain(name), tau, **options)
    assert expected > 0
    assert value.item() == pytest.approx(expected, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("case", [case for case in CASES if case[0] != "mulsupcon"], ids=case_id)
def test_terms_equal_the_oracle(case, rows):
    name, options = case
    terms = build_loss(name, temperature=0.2, reduction="none", **options)(
        rows.z, rows.labels(name), rows.sample_ids()
    )
    expected = ORACLES[name](rows.z.tolist(), rows.plain(name), 0.2, **options)
    assert terms.tolist() == pytest.approx(expected, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("case", [case for case in CASES if not is_detached(case)], ids=case_id)
@every_engine
def test_gradient_is_that_of_the_value(case, engine, make):
    name, options = case
    rows = make(samples=4, dim=3)
    loss = build_loss(name, temperature=0.5, engine=engine, **options)
    z = rows.z.clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda z: loss(z, rows.labels(name), rows.sample_ids()), (z,))


@every_case
@pytest.mark.parametrize(
    ("engine", "reduction"), [("dense", "sum"), ("tiled", "mean"), ("auto", "mean_valid")]
)
def test_order_of_rows_is_irrelevant(case, engine, reduction, rows):
    name, options = case
    loss = build_loss(name, temperature=0.3, reduction=reduction, engine=engine, **options)
    order = torch.randperm(len(rows.z), generator=torch.Generator().manual_seed(1))
    labels = rows.labels(name)
    if isinstance(labels, LabelRows):
        shuffled = labels.take(order)
    else:
        shuffled = None if labels is None else labels[order]
    value = loss(rows.z, labels, rows.sample_ids())
    again = loss(rows.z[order], shuffled, rows.sample_ids()[order])
    assert again.item() == pytest.approx(value.item(), rel=1e-12)


@st.composite
def batches(draw):
    count, dim = draw(st.integers(2, 7)), draw(st.integers(1, 4))
    numbers = st.floats(-2, 2, allow_nan=False, width=32)
    z = draw(st.lists(st.lists(numbers, min_size=dim, max_size=dim), min_size=count, max_size=count))
    labels = draw(
        st.lists(st.lists(st.integers(0, 3), min_size=3, max_size=3), min_size=count, max_size=count)
    )
    return z, labels


@settings(
    max_examples=150,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    batch=batches(),
    case=st.sampled_from(CASES),
    engine=st.sampled_from(["dense", "tiled", "auto"]),
    tau=st.sampled_from([0.005, 0.05, 0.5, 5.0]),
)
def test_random_batches_equal_the_oracle(batch, case, engine, tau):
    (name, options), (z, numbers) = case, batch
    first = [row[0] for row in numbers]
    sets = [frozenset(label for label, value in enumerate(row) if value > 1) for row in numbers]
    paths = [tuple(value - 1 for value in row) for row in numbers]
    plain = {
        "simclr": first,
        "supcon": [c - 1 for c in first],
        "jaccard": numbers,
        **dict.fromkeys(PATH_LOSSES, paths),
    }.get(name, sets)
    labels = {
        "simclr": None,
        "supcon": torch.tensor(first) - 1,
        "jaccard": torch.tensor(numbers),
        **dict.fromkeys(PATH_LOSSES, torch.tensor(paths)),
    }.get(name, LabelRows.from_lists([sorted(s) for s in sets], 3))
    z_BD = torch.tensor(z, dtype=torch.float64)
    samples = torch.tensor(first) if name == "simclr" else None
    value = build_loss(name, temperature=tau, engine=engine, **options)(z_BD, labels, samples).item()
    expected = mean_loss(name, z, plain, tau, **options)
    assert math.isclose(value, expected, rel_tol=1e-10, abs_tol=1e-10)
