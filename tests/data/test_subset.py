import itertools

import numpy as np
import pytest
import torch

from mlcl.data import Dataset, LabelSpace, subset
from mlcl.data.modifications import short_classes
from mlcl.errors import UserError


@pytest.fixture
def train(write):
    rng = np.random.default_rng(0)
    rows = 400
    topic = rng.choice(4, size=rows, p=[0.6, 0.25, 0.13, 0.02])
    spaces = {
        "topic": LabelSpace(kind="single", classes=("a", "b", "c", "d", "unused")),
        "tags": LabelSpace(kind="multi_label", classes=tuple("uvwxy")),
        "ratings": LabelSpace(kind="aspects", aspects=("p", "q"), scale=(1, 2, 3)),
        "path": LabelSpace(kind="hierarchy", levels=("topic",)),
    }
    batch = {
        "topic": [None if i < 5 else int(c) for i, c in enumerate(topic)],
        "tags": [np.flatnonzero(rng.random(5) < [0.7, 0.4, 0.1, 0.05, 0.02]).tolist() for _ in range(rows)],
        "ratings": rng.integers(0, 4, (rows, 2)).tolist(),
    }
    return Dataset.open(write(batch, label_spaces=spaces)).split("train")


@pytest.mark.parametrize("labels", ["topic", "tags", "ratings", "ratings.p", "path"])
def test_larger_subsets_contain_smaller_ones(train, labels):
    for sizes, key in (((10, 37, 200, 400), "n"), ((1, 2, 5, 20), "per_class")):
        subsets = [set(subset(train, labels, seed=1, **{key: size}).rows.tolist()) for size in sizes]
        assert all(small <= large for small, large in itertools.pairwise(subsets))


def test_n_keeps_the_proportions_and_the_order(train):
    part = subset(train, "topic", n=100)
    assert len(part) == 100
    assert part.rows.tolist() == sorted(part.rows.tolist())
    # Quotas round to within one for each of the five strata (four classes, and no class).
    counts, whole_counts = (torch.bincount(s.labels("topic") + 1, minlength=5) for s in (part, train))
    assert (counts - whole_counts / 4).abs().max() <= 1
    part = subset(train, "tags", n=200)  # tags include rare labels
    counts, whole_counts = (torch.bincount(s.labels("tags").columns, minlength=5) for s in (part, train))
    assert (counts[-3:] - whole_counts[-3:] / 2).abs().max() <= 3


def test_per_class_takes_exactly_that_many_and_reports_short_classes(train):
    part = subset(train, "topic", per_class=12)
    whole_counts = torch.bincount(train.labels("topic").clamp(min=0)[train.labels("topic") >= 0], minlength=5)
    counts = torch.bincount(part.labels("topic"), minlength=5)
    assert counts.tolist() == whole_counts.clamp(max=12).tolist()
    messages = [f"class d has {int(whole_counts[3])} of 12 rows", "class unused has 0 of 12 rows"]
    assert short_classes(part, "topic", 12) == short_classes(train, "topic", 12) == messages
    assert short_classes(train, "ratings", 1000)[4].startswith("class q 2 has ")


def test_per_class_covers_every_label_without_filling_up(train):
    rows = subset(train, "tags", per_class=5).labels("tags")
    counts = torch.bincount(rows.columns, minlength=5)
    assert counts.min() >= 5
    assert len(rows) <= 25


def test_seeds_differ_and_repeat_and_a_subset_of_a_part_stays_within_it(train):
    rows = [subset(train, "topic", n=50, seed=seed).rows.tolist() for seed in (0, 0, 1)]
    assert rows[0] == rows[1] != rows[2]
    part = train.take(torch.arange(100, 200))
    rows = subset(part, "topic", n=30).rows
    assert set(rows.tolist()) <= set(part.rows.tolist())


def test_impossible_subsets_are_refused(train):
    with pytest.raises(UserError, match=r"more rows than there are; found: 401; allowed: 1 to 400"):
        subset(train, "topic", n=401)
    with pytest.raises(UserError, match="did you mean topic"):
        subset(train, "topics", n=4)
    with pytest.raises(UserError, match="exactly one"):
        subset(train, "topic")
