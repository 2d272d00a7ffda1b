"""Tests of the relation mix of the source `scenes`: its accuracy, its counts and its seeds."""

import numpy as np
import pytest
import torch

from mlcl.data import Dataset, prepare
from mlcl.data.description import describe
from mlcl.data.sources.scenes import FAR, MIXES, RELATIONS, SOURCE, Options, fit_probabilities, shares_of
from mlcl.errors import UserError
from mlcl.losses.relations import label_counts, relation

OF_PAPER = dict(zip(RELATIONS, ((1,), (2,), (3,), (4, 5)), strict=True))


def counted(rows):
    """Returns the share of each relation among pairs of different rows, counted with `relation`."""
    relation_NN = relation(label_counts(rows))
    pairs = ~torch.eye(len(relation_NN), dtype=torch.bool)
    return {
        name: sum((relation_NN[pairs] == r).double().mean().item() for r in relations)
        for name, relations in OF_PAPER.items()
    }


@pytest.mark.parametrize("mix", MIXES)
def test_scenes_have_the_mix_that_is_asked_for_with_equally_frequent_digits(tmp_path, mix):
    place = prepare("scenes", tmp_path, {"mix": mix, "scenes": 1_000})
    labels = Dataset.open(place).split("train").labels("digits")
    shares = counted(labels)
    assert shares == pytest.approx(dict(zip(RELATIONS, MIXES[mix], strict=True)), abs=FAR + 0.01)
    assert set(labels.counts().tolist()) <= {1, 2, 3, 4}
    assert labels.counts().double().mean() == pytest.approx(2, abs=0.05)
    counts = torch.bincount(labels.columns, minlength=8)
    assert counts.max() - counts.min() < 0.05 * counts.double().mean()
    (note,) = describe(place).notes
    assert f"equal (R2) {100 * shares['equal']:.1f} %" in note
    assert f"nested (R4 or R5) {100 * shares['nested']:.1f} %" in note


def test_shares_count_pairs_of_different_rows():
    sets = [frozenset(labels) for labels in ((0,), (0,), (0, 1), (1, 2), (3,))]
    rows = torch.zeros(5, 4)
    for row, labels in enumerate(sets):
        rows[row, list(labels)] = 1
    assert shares_of(sets) == pytest.approx(counted(rows))
    assert shares_of(sets) == pytest.approx({"disjoint": 0.6, "equal": 0.1, "overlap": 0.1, "nested": 0.2})


def test_three_digits_apart_have_one_solution():
    shares = {"disjoint": 2 / 3, "equal": 1 / 3, "overlap": 0.0, "nested": 0.0}
    p = fit_probabilities(shares, labels=3, size=1.0)
    singles = [p[frozenset([label])] for label in range(3)]
    assert singles == pytest.approx([1 / 3] * 3, abs=0.01)


def test_an_impossible_mix_names_the_nearest(tmp_path):
    mix = {"disjoint": 0.1, "equal": 0.8, "overlap": 0.1, "nested": 0.0}
    with pytest.raises(UserError) as error:
        prepare("scenes", tmp_path, {"mix": mix})
    assert error.value.key == "data.options.mix"
    assert "equal (R2) 80.0 %" in error.value.line()
    assert "such as disjoint (R1)" in error.value.line()


def test_a_mix_by_numbers_is_the_named_one_and_seeded(tmp_path):
    mix_shares = dict(zip(RELATIONS, MIXES["overlap"], strict=True))
    first, second, other = (
        SOURCE.write(tmp_path / name, Options(scenes=100, mix=mix), seed)
        for name, mix, seed in (("a", "overlap", 0), ("b", mix_shares, 0), ("c", "overlap", 1))
    )
    assert first.fingerprint == second.fingerprint
    assert first.fingerprint != other.fingerprint


def test_missing_labels_are_left_out_of_train_and_validation_alone(tmp_path):
    whole, part = (
        SOURCE.write(tmp_path / str(share), Options(scenes=1_000, missing=share), 0) for share in (0.0, 0.3)
    )
    assert whole.rows == part.rows
    counts = {
        (share, split): len(Dataset.open(tmp_path / share).split(split).labels("digits").columns)
        for share in ("0.0", "0.3")
        for split in ("train", "test")
    }
    assert counts["0.3", "test"] == counts["0.0", "test"]
    assert counts["0.3", "train"] / counts["0.0", "train"] == pytest.approx(
        0.7, abs=4 * np.sqrt(0.21 / 1_600)
    )
