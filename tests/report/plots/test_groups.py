"""Tests of the rows that a plot shows of a data set with three superclasses of several sizes."""

from collections import Counter

import numpy as np
import pytest
import torch
from builders import dataset, tiny_job

from mlcl.data.format import SPLITS, LabelSpace
from mlcl.errors import UserError
from mlcl.report.plots.groups import FIGURES, row_groups, sample
from mlcl.training.job_data import JobData

SIZES = {
    "animal": {"cat": 40, "dog": 30, "bee": 20, "ant": 10, "owl": 8},
    "thing": {"cup": 25, "pot": 15},
    "plant": {"oak": 35},
}
"""The number of rows of each class in every split; most rows are of the superclass animal."""
CLASSES = tuple(name for classes in SIZES.values() for name in classes)


@pytest.fixture(scope="module")
def job_data(tmp_path_factory):
    home = tmp_path_factory.mktemp("home")
    kinds = [(parent, name, size) for parent, classes in SIZES.items() for name, size in classes.items()]
    rows = [
        (f"{split}-{name}{i}", name, split, list(SIZES).index(parent), CLASSES.index(name))
        for split in ("train", "validation", "test")
        for parent, name, size in kinds
        for i in range(size)
    ]
    spaces = {"kind": tuple(SIZES), "name": CLASSES}
    spaces["path"] = LabelSpace(kind="hierarchy", levels=("kind", "name"))
    columns = dict(zip(("id", "text", "split", "kind", "name"), zip(*rows, strict=True), strict=True))
    dataset(home / "data", "kinds", spaces, columns)
    return JobData.of(tiny_job(home / "data", "objective.heads={}", "objective.classifier.labels=name"), home)


def names(groups):
    return [group.name for group in groups]


def test_four_of_the_largest_superclass_and_one_stranger(job_data):
    groups = row_groups(job_data, job_data.dataset.split("test"))
    animals = [f"{name} (kind animal)" for name in ("cat", "dog", "bee", "ant")]
    assert names(groups) == [*animals, "oak (kind plant)"]
    assert [group.colour for group in groups] == [0, 0, 0, 0, 1]
    assert [len(group.rows) for group in groups] == [40, 30, 20, 10, 35]


def test_a_small_family_is_filled_up_with_strangers(job_data):
    test = job_data.dataset.split("test")
    rows = [row for row, text in enumerate(test.texts()) if text in ("cup", "pot", "oak", "cat")][5:]
    groups = row_groups(job_data, test.take(torch.tensor(rows)))
    assert names(groups) == ["cup (kind thing)", "pot (kind thing)", "cat (kind animal)", "oak (kind plant)"]
    assert [group.colour for group in groups] == [0, 0, 1, 2]


def test_named_classes_are_taken_in_their_order(job_data):
    groups = row_groups(job_data, job_data.dataset.split("test"), ["pot", "oak", "cup"])
    assert names(groups) == ["pot (kind thing)", "oak (kind plant)", "cup (kind thing)"]
    assert [group.colour for group in groups] == [0, 1, 0]


def test_a_figure_of_the_paper_names_its_classes(tmp_path):
    animals, bottle = ("camel", "cattle", "chimpanzee", "kangaroo"), "bottle"
    classes = (bottle, "oak_tree", *animals)
    rows = [(f"{split}{n}", name, split, n) for split in SPLITS for n, name in enumerate(classes)]
    columns = dict(zip(("id", "text", "split", "fine"), zip(*rows, strict=True), strict=True))
    dataset(tmp_path / "data", "animals", {"fine": classes}, columns)
    job = tiny_job(tmp_path / "data", "objective.heads={}", "objective.classifier.labels=fine")
    job_data = JobData.of(job, tmp_path)
    test = job_data.dataset.split("test")
    assert names(row_groups(job_data, test, ["mlcl-figure3"])) == [*animals, bottle]
    assert names(row_groups(job_data, test, ["oak_tree", "mlcl-figure3"])) == ["oak_tree", *animals, bottle]
    with pytest.raises(UserError, match=r"--class: .*no such class.*found: apple"):
        row_groups(job_data, test, ["mlcl-figure5"])
    assert {name: figure_classes[-1] for name, figure_classes in FIGURES.items()} == {
        "mlcl-figure3": "bottle",
        "mlcl-figure5": "cattle",
        "mlcl-figure6": "cattle",
        "mlcl-figure7": "mouse",
        "mlcl-figure8": "spider",
    }


def test_classes_without_a_hierarchy_have_a_colour_each(job_data):
    job = tiny_job(job_data.dataset.place, "objective.heads={}", "objective.classifier.labels=kind")
    flat_data = JobData.of(job, job_data.cache.parent)
    groups = row_groups(flat_data, flat_data.dataset.split("test"))
    assert names(groups) == ["animal", "thing", "plant"]
    assert [group.colour for group in groups] == [0, 1, 2]


def test_the_sample_is_capped_and_in_proportion(job_data):
    test = job_data.dataset.split("test")
    groups = row_groups(job_data, test)
    rows = sample(job_data, test, groups, 54, seed=0)
    assert len(set(rows.tolist())) == 54
    assert (np.diff(rows) > 0).all()
    counts = Counter(next(g.name for g in groups if row in g.rows) for row in rows)
    for group in groups:
        assert counts[group.name] == pytest.approx(54 * len(group.rows) / 135, abs=1)
    assert np.array_equal(rows, sample(job_data, test, groups, 54, seed=0))
    assert not np.array_equal(rows, sample(job_data, test, groups, 54, seed=1))
    assert len(sample(job_data, test, groups, 1000, seed=0)) == 135  # all rows are taken, as there are few
