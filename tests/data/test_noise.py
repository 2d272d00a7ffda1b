"""Tests of label noise: how many labels change, which labels they become, and which stay."""

import math

import numpy as np
import pytest
import torch

from mlcl.data import Dataset, LabelSpace, add_label_noise, reached_by, subset
from mlcl.errors import UserError
from mlcl.labels import LabelRows

ROWS, FINE = 6_000, 6
SPACES = {
    "coarse": LabelSpace(kind="single", classes=("a", "b", "c")),
    "fine": LabelSpace(kind="single", classes=tuple("uvwxyz")),
    "path": LabelSpace(kind="hierarchy", levels=("coarse", "fine")),
    "tags": LabelSpace(kind="multi_label", classes=tuple(f"t{i}" for i in range(40))),
    "ratings": LabelSpace(kind="aspects", aspects=("p", "q"), scale=(1, 2.5, 4)),
}


@pytest.fixture
def train(write):
    rng = np.random.default_rng(0)
    fine = rng.integers(0, FINE, ROWS)
    batch = {
        "fine": [None if i % 50 == 0 else int(c) for i, c in enumerate(fine)],
        "coarse": [None if i % 50 == 0 else int(c) // 2 for i, c in enumerate(fine)],
        "tags": [rng.choice(40, rng.integers(0, 4), replace=False).tolist() for _ in range(ROWS)],
        "ratings": rng.choice([0, 1, 2.5, 4], (ROWS, 2)).tolist(),
    }
    return Dataset.open(write(batch, label_spaces=SPACES)).split("train")


def deviation(p, n):
    return 4 * math.sqrt(p * (1 - p) / n)


@pytest.mark.parametrize("rate", [0.0, 0.3, 0.8, 1.0])
def test_a_class_stays_as_often_as_the_paper_says(train, rate):
    clean_labels, noisy_labels = (
        train.labels("fine"),
        add_label_noise(train, "fine", rate, seed=1).labels("fine"),
    )
    is_known = clean_labels >= 0
    assert torch.equal(noisy_labels[~is_known], clean_labels[~is_known])
    expected_share, kept_share = (
        1 - rate * (FINE - 1) / FINE,
        float((noisy_labels == clean_labels)[is_known].double().mean()),
    )
    assert kept_share == pytest.approx(
        expected_share, abs=deviation(expected_share, int(is_known.sum())) + 1e-12
    )
    changed_classes = noisy_labels[is_known & (noisy_labels != clean_labels)]
    if rate:
        shares = torch.bincount(changed_classes, minlength=FINE) / len(changed_classes)
        assert shares.numpy() == pytest.approx(1 / FINE, abs=0.03)


def test_coarser_levels_follow_the_drawn_class(train):
    noisy_split = add_label_noise(train, "fine", 0.5, seed=2)
    fine, coarse = noisy_split.labels("fine"), noisy_split.labels("coarse")
    assert torch.equal(coarse, torch.where(fine < 0, -1, fine // 2))
    assert torch.equal(noisy_split.labels("path"), torch.stack([coarse, fine], dim=1))
    assert torch.equal(noisy_split.labels("path.coarse"), coarse)
    assert not torch.equal(coarse, train.labels("coarse"))


def test_aspects_are_drawn_one_by_one_and_missing_ratings_stay_missing(train):
    noisy_split = add_label_noise(train, "ratings", 0.6, seed=3)
    clean_NA, noisy_NA = train.labels("ratings"), noisy_split.labels("ratings")
    assert torch.equal(noisy_NA == 0, clean_NA == 0)
    assert set(noisy_NA.unique().tolist()) == {0, 1, 2.5, 4}
    known_NA = clean_NA > 0
    shares_A = [(noisy_NA == clean_NA)[known_NA[:, a], a].double().mean() for a in range(2)]
    assert [float(share) for share in shares_A] == pytest.approx([0.6, 0.6], abs=0.04)
    assert torch.equal(noisy_split.labels("ratings.q") >= 0, known_NA[:, 1])
    expected = torch.tensor([-1, 0, 1, 2])[torch.searchsorted(torch.tensor([0, 1, 2.5, 4]), noisy_NA[:, 1])]
    assert torch.equal(noisy_split.labels("ratings.q"), expected)


def test_a_multi_label_row_keeps_its_number_of_labels_less_repeats(train):
    clean_labels, noisy_labels = (
        train.labels("tags"),
        add_label_noise(train, "tags", 0.5, seed=4).labels("tags"),
    )
    assert isinstance(noisy_labels, LabelRows)
    assert bool((noisy_labels.counts() <= clean_labels.counts()).all())
    assert int(noisy_labels.counts().sum()) > 0.97 * int(clean_labels.counts().sum())
    n_kept = sum(
        len(set(a) & set(b)) for a, b in zip(clean_labels.lists(), noisy_labels.lists(), strict=True)
    )
    assert n_kept / int(clean_labels.counts().sum()) == pytest.approx(0.5 + 0.5 / 40, abs=0.03)


@pytest.mark.parametrize("name", ["fine", "tags", "ratings"])
def test_a_row_has_the_same_noise_in_every_subset(train, name):
    whole_labels = add_label_noise(train, name, 0.5, seed=5).labels(name)
    part = subset(train, "fine", n=500, seed=0)
    noisy_labels = add_label_noise(part, name, 0.5, seed=5).labels(name)
    rows = part.index
    if isinstance(whole_labels, LabelRows):
        assert noisy_labels.lists() == whole_labels.take(rows).lists()
    else:
        assert torch.equal(noisy_labels, whole_labels[rows])
    other_labels = add_label_noise(part, name, 0.5, seed=6).labels(name)
    assert (
        noisy_labels.lists() != other_labels.lists()
        if isinstance(noisy_labels, LabelRows)
        else not torch.equal(noisy_labels, other_labels)
    )


def test_only_whole_spaces_and_finest_levels_take_noise(train):
    assert reached_by(train.info, "fine") == {"fine", "path", "coarse", "path.coarse", "path.fine"}
    assert reached_by(train.info, "ratings") == {"ratings", "ratings.p", "ratings.q"}
    for name in ("path", "coarse", "ratings.p"):
        with pytest.raises(UserError, match="whole label space") as error:
            add_label_noise(train, name, 0.5, seed=0)
        assert error.value.allowed == ["fine", "ratings", "tags"]
