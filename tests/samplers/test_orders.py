"""Tests of the rows of each batch, against plain loops over the batches."""

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from mlcl.samplers import Balanced, EpochSampler, Grouped
from mlcl.samplers.epochs import Groups, tree

ROWS, SIZE = 203, 16
RNG = np.random.default_rng(0)
SINGLE = np.sort(RNG.choice(12, ROWS, p=np.arange(12, 0, -1) / 78))
SETS = [sorted(set(RNG.choice(9, RNG.integers(1, 4)).tolist())) for _ in range(ROWS)]
PATHS = np.stack([SINGLE // 6, SINGLE // 3, SINGLE], axis=1)


def single_tree(class_N):
    return tree(np.asarray(class_N)[:, None], np.arange(len(class_N)))


def set_tree(sets):
    pairs = [(label, row) for row, labels in enumerate(sets) for label in labels]
    return tree(np.array([[label] for label, _ in pairs]), np.array([row for _, row in pairs]))


def orders(rows=ROWS, size=SIZE):
    classes, sets = single_tree(SINGLE[:rows]), set_tree(SETS[:rows])
    paths = tree(PATHS[:rows], np.arange(rows))
    return {
        "balanced": Balanced(classes[-1], rows, size),
        "balanced by square root": Balanced(classes[-1], rows, size, power=0.5),
        "balanced label sets": Balanced(sets[-1], rows, size),
        "pk": Grouped(classes, rows, size, k=4),
        "pk label sets": Grouped(sets, rows, size, k=4),
        "hierarchical": Grouped(paths, rows, size, k=2, branches=2),
    }


def epoch(order, seed=0, size=SIZE):
    rows = order(np.random.default_rng(seed)).tolist()
    return [rows[start : start + size] for start in range(0, len(rows), size)]


SIZES = [(203, 16), (208, 16), (205, 16), (40, 33), (17, 17), (9, 17), (203, 10)]


@pytest.mark.parametrize("name", orders())
@pytest.mark.parametrize(("rows", "size"), SIZES)
def test_no_row_is_twice_in_a_batch_and_an_epoch_is_as_long_as_uniform(name, rows, size):
    batches = epoch(orders(rows, size)[name], size=size)
    uniform_batches = list(EpochSampler(rows, size, seed=0, drop_last=False).batches(0))
    assert [len(batch) for batch in batches][: len(uniform_batches)] == [
        len(batch) for batch in uniform_batches
    ]
    assert sum(map(len, batches)) == rows
    for batch in batches:
        assert len(set(batch)) == len(batch)
        assert set(batch) <= set(range(rows))


@pytest.mark.parametrize("name", ["uniform", *orders()])
def test_ranks_share_the_batch_and_every_step_can_be_resumed(name):
    order = orders().get(name)
    single_batches = list(EpochSampler(ROWS, SIZE, seed=3, order=order).batches(2))
    for world in (1, 2, 3, 4):
        ranks = [EpochSampler(ROWS, SIZE, 3, rank, world, order=order) for rank in range(world)]
        for step in range(len(single_batches) + 1):
            rest = [torch.cat(parts) for parts in zip(*(r.batches(2, step) for r in ranks), strict=True)]
            assert len(rest) == ranks[0].steps_per_epoch - step == len(single_batches) - step
            assert all(torch.equal(a, b) for a, b in zip(single_batches[step:], rest, strict=True))
    other_epoch = list(EpochSampler(ROWS, SIZE, seed=3, order=order).batches(3))
    assert not torch.equal(single_batches[0], other_epoch[0])


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0])
def test_balanced_draws_a_class_by_its_rows_to_the_power(power):
    classes = np.repeat(np.arange(4), [40, 80, 160, 320])  # no class is so small that a batch has all of it
    order = Balanced(single_tree(classes)[-1], 600, 8, power)
    weights = [n**power for n in (40, 80, 160, 320)]
    for seed in range(5):
        class_counts = Counter(classes[row] for batch in epoch(order, seed, 8) for row in batch)
        for c, weight in enumerate(weights):
            repeats = 12  # a draw of a row that its batch already has is made again
            assert abs(class_counts[c] - 600 * weight / sum(weights)) <= repeats


@pytest.mark.parametrize("power", [-1, 40])
def test_a_whole_power_is_that_of_a_float(power):
    classes = single_tree(np.repeat(np.arange(2), [4, 8]))[-1]
    assert np.array_equal(
        Balanced(classes, 12, 4, power).shares, Balanced(classes, 12, 4, float(power)).shares
    )


def test_balanced_draws_a_row_of_several_labels_by_the_sum_of_their_inverse_counts():
    sets = [[0], [0], [0, 1], [0], [0, 1, 2], [2], [0], [0], [0, 1], [0]]
    order, row_counts = Balanced(set_tree(sets)[-1], 10, 1), Counter()
    for seed in range(400):
        row_counts.update(order(np.random.default_rng(seed)).tolist())
    label_counts = Counter(label for labels in sets for label in labels)
    expected = [
        sum(1 / label_counts[label] for label in labels) / len(label_counts) * 4000 for labels in sets
    ]
    assert chisquare([row_counts[row] for row in range(10)], expected).pvalue > 0.01
    assert max(abs(row_counts[row] - expected[row]) for row in range(10)) < 0.05 * max(expected)


def test_pk_has_k_rows_of_each_of_p_classes():
    classes = np.repeat(np.arange(8), [4, 8, 20, 20, 40, 40, 40, 84])
    order = Grouped(single_tree(classes), 256, 16, k=4)
    visits, uses = Counter(), Counter()
    for batch in epoch(order):
        class_counts = Counter(classes[row] for row in batch)
        assert set(class_counts.values()) == {4}
        visits.update(class_counts)
        uses.update(batch)
    assert set(visits.values()) == {32}  # 16 batches of 4 of the 8 classes
    for c in range(8):  # each row of a class is drawn once before any is drawn again
        class_uses = [uses[row] for row in np.flatnonzero(classes == c)]
        assert max(class_uses) - min(class_uses) <= 1


def test_pk_takes_more_rows_of_few_classes_and_completes_a_batch_of_small_ones():
    classes = np.repeat(np.arange(3), [20, 100, 180])
    for batch in epoch(Grouped(single_tree(classes), 300, 16, k=2))[:-1]:
        assert sorted(Counter(classes[row] for row in batch).values()) == [5, 5, 6]
    classes = np.repeat(np.arange(30), [1, 2, 3] * 10)
    for batch in epoch(Grouped(single_tree(classes), 60, 16, k=4))[:-1]:
        class_counts = Counter(classes[row] for row in batch)
        whole_classes = [c for c, n in class_counts.items() if n == (1, 2, 3)[c % 3]]
        assert len(batch) == 16
        assert len(whole_classes) >= len(class_counts) - 1  # the last class is cut where the batch ends


def test_pk_has_k_rows_of_each_of_p_labels():
    rng = np.random.default_rng(1)
    sets = [sorted(set(rng.choice(60, rng.integers(1, 4)).tolist())) for _ in range(300)]
    label_counts = Counter(label for labels in sets for label in labels)

    def whole_labels(batch):
        batch_counts = Counter(label for row in batch for label in sets[row])
        return sum(n >= min(4, label_counts[label]) for label, n in batch_counts.items())

    assert all(whole_labels(batch) >= 4 for batch in epoch(Grouped(set_tree(sets), 300, 16, k=4))[:-1])
    assert max(whole_labels(range(start, start + 16)) for start in range(0, 288, 16)) < 4


def test_hierarchical_has_positives_at_every_level():
    fine_classes = np.repeat(np.arange(24), 10)
    paths = np.stack([fine_classes // 6, fine_classes // 2, fine_classes], axis=1)  # 4, 12 and 24 classes
    order = Grouped(tree(paths, np.arange(240)), 240, 16, k=2, branches=2)
    for batch in epoch(order):
        for depth, (rows, child_count) in enumerate([(8, 2), (4, 2), (2, 2)]):
            class_counts = Counter(paths[row, depth] for row in batch)
            assert set(class_counts.values()) == {rows}
            children = {tuple(paths[row, depth : depth + 2]) for row in batch}
            assert depth == 2 or set(Counter(parent for parent, _ in children).values()) == {child_count}


def test_hierarchical_gives_every_coarse_class_its_turn():
    fine_classes = np.repeat([0, 1, 2, 3, 4, 5, 6, 7], [2, 60, 4, 30, 30, 30, 50, 34])
    paths = np.stack([fine_classes // 2, fine_classes], axis=1)
    order = Grouped(tree(paths, np.arange(240)), 240, 8, k=2, branches=2)
    class_counts = Counter(fine_classes[row] // 2 for batch in epoch(order, size=8) for row in batch)
    assert max(class_counts.values()) - min(class_counts.values()) <= 4


def test_a_draw_takes_every_set_of_members_alike():
    groups = Groups.of(np.array([0] * 5 + [2]), np.arange(10, 16), 3)
    rng = np.random.default_rng(0)
    draws = groups.draw(np.array([0, 2, -1, 0] * 500), 2, rng)
    assert (draws[2::4] == -1).all()
    assert (draws[1::4] == [15, -1]).all()
    pairs = [tuple(sorted(pair)) for pair in np.concatenate([draws[0::4], draws[3::4]]).tolist()]
    assert len(set(pairs)) == 10
    assert chisquare(list(Counter(pairs).values())).pvalue > 0.01


def test_a_draw_goes_through_a_group_before_it_repeats():
    groups = Groups.of(np.zeros(6, dtype=np.int64), np.arange(6), 1)
    draws = groups.draw(np.zeros(30, dtype=np.int64), 2, np.random.default_rng(1))
    rounds = [draws[start : start + 3].ravel().tolist() for start in range(0, 30, 3)]
    assert all(sorted(draw_round) == list(range(6)) for draw_round in rounds)
    assert all(a != b for a, b in pairwise(rounds))


def test_the_tree_has_the_classes_that_have_rows():
    paths = np.array([[0, 3], [0, 5], [2, -1], [0, 3], [-1, 3]])
    top, middle, rows = tree(paths, np.arange(5))
    assert top.sizes.tolist() == [3]  # classes -1, 0 and 2
    assert middle.sizes.tolist() == [1, 2, 1]
    assert [rows.members[a:b].tolist() for a, b in pairwise(rows.offsets)] == [[4], [0, 3], [1], [2]]
