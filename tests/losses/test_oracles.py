import math

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from losses.oracles import CASES, ORACLES, PATH_LOSSES, is_detached, mean_loss

from mlcl.losses import LOSSES, build_loss
from mlcl.testing.loss_batches import LossBatch
from mlcl.testing.losses import LossTestCase

pytestmark = pytest.mark.usefixtures("small_tiles")


class TestEveryLoss(LossTestCase):
    """The suite of losses for every registered loss."""

    names = tuple(LOSSES)
    more = tuple(CASES)

    def definition(self, name, z, labels, tau, **options):
        return ORACLES[name](z, labels, tau, **options)

    def is_differentiable(self, name, options):
        return not is_detached((name, options))


class TestSeveralPaths(TestEveryLoss):
    """The suite of losses for the losses of paths, with several paths per row."""

    names = PATH_LOSSES
    more = tuple(case for case in CASES if case[0] in PATH_LOSSES)
    several_paths = True


def test_every_loss_and_option_has_a_case():
    assert {name for name, _ in CASES} == set(LOSSES)
    for name, spec in LOSSES.items():
        used_options = {option for other, options in CASES if other == name for option in options}
        assert used_options == set(spec.options)


@st.composite
def batches(draw):
    count, dim = draw(st.integers(2, 7)), draw(st.integers(1, 4))
    numbers = st.floats(-2, 2, allow_nan=False, width=32)
    z = draw(st.lists(st.lists(numbers, min_size=dim, max_size=dim), min_size=count, max_size=count))
    labels = draw(
        st.lists(st.lists(st.integers(0, 3), min_size=3, max_size=3), min_size=count, max_size=count)
    )
    first = [row[0] for row in labels]
    paths = [tuple(value - 1 for value in row) for row in labels]
    if draw(st.booleans()):
        paths = [frozenset({path, path[::-1]}) for path in paths]
    return LossBatch(
        z=torch.tensor(z, dtype=torch.float64),
        sets=[frozenset(label for label, value in enumerate(row) if value > 1) for row in labels],
        classes=[value - 1 for value in first],
        ratings=labels,
        paths=paths,
        samples=first,
        width=3,
    )


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
    name, options = case
    samples = batch.sample_ids() if LOSSES[name].labels == "none" else None
    loss = build_loss(name, temperature=tau, engine=engine, **options)
    expected = mean_loss(name, batch.z.tolist(), batch.plain_labels(name), tau, **options)
    value = loss(batch.z, batch.labels(name), samples).item()
    assert math.isclose(value, expected, rel_tol=1e-10, abs_tol=1e-10)
