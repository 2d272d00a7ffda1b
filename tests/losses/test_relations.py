from itertools import combinations

import pytest
import torch
from losses.oracles import factor

from mlcl.labels import LabelRows
from mlcl.losses import dissimilarity_factor, label_counts, positive_weights, relation, similarity_factor
from mlcl.losses.sets import LabelSets

UNIVERSE = [set(c) for size in range(6) for c in combinations(range(5), size)]
"""All 32 label sets over five labels, on whose pairs the theorems are checked."""


@pytest.fixture(scope="module")
def counts():
    return label_counts(LabelRows.from_lists([sorted(s) for s in UNIVERSE], 5))


@pytest.fixture(scope="module")
def factors(counts):
    return similarity_factor(counts) * dissimilarity_factor(counts)


def test_figure_1():
    """The anchor has three labels; the candidates are those of Similarity-Dissimilarity, section 2.5."""
    anchor = LabelRows.from_lists([[0, 1, 2]], 8)
    candidates = LabelRows.from_lists([[3, 4, 5], [0, 1, 2], [0, 3, 4], [0, 1], [0, 1, 2, 3, 4]], 8)
    counts = label_counts(anchor, candidates)
    assert relation(counts).tolist() == [[1, 2, 3, 4, 5]]
    assert counts.shared.tolist() == [[0, 3, 1, 2, 3]]
    assert counts.extra.tolist() == [[3, 0, 2, 0, 2]]
    s, d = similarity_factor(counts)[0], dissimilarity_factor(counts)[0]
    assert s.tolist() == pytest.approx([0, 1, 1 / 3, 2 / 3, 1])
    assert d.tolist() == pytest.approx([1 / 4, 1, 1 / 3, 1, 1 / 3])
    assert (s * d).tolist() == pytest.approx([0, 1, 1 / 9, 2 / 3, 1 / 3])


def test_figure_1_as_weights():
    rows = [[0, 1, 2], [3, 4, 5], [0, 1, 2], [0, 3, 4], [0, 1], [0, 1, 2, 3, 4]]
    w = positive_weights("simdis", LabelRows.from_lists(rows, 8))
    assert w[0].tolist() == pytest.approx([0, 0, 1 / 4, 1 / 36, 1 / 6, 1 / 12])


def test_relations_are_a_partition(counts):
    for i, s in enumerate(UNIVERSE):
        for p, t in enumerate(UNIVERSE):
            conditions = [
                not s & t,
                bool(s & t) and s == t,
                bool(s & t) and not s <= t and not t <= s,
                bool(s & t) and s > t,
                bool(s & t) and s < t,
            ]
            assert sum(conditions) == 1
            assert relation(counts)[i, p] == 1 + conditions.index(True)


def test_factors_equal_the_oracle(factors):
    expected = [[factor(s, t) for t in UNIVERSE] for s in UNIVERSE]
    assert torch.allclose(factors, torch.tensor(expected, dtype=torch.float64), rtol=0, atol=1e-15)


def test_theorems_1_to_3(counts, factors):
    kind = relation(counts)
    assert (factors[kind == 1] == 0).all()
    assert (factors[kind == 2] == 1).all()
    partial_factors = factors[kind >= 3]
    assert ((partial_factors > 0) & (partial_factors < 1)).all()


def test_relation_1_is_the_complement_of_any(counts):
    overlap = positive_weights("any", LabelRows.from_lists([sorted(s) for s in UNIVERSE], 5)) > 0
    off_diagonal = ~torch.eye(len(UNIVERSE), dtype=torch.bool)
    assert torch.equal((relation(counts) == 1)[off_diagonal], ~overlap[off_diagonal])


@pytest.mark.parametrize("theorem", [4, 5])
def test_theorems_4_and_5(theorem, counts, factors):
    """Relation 4 has a larger factor than 3 at equal sizes, and relation 5 with no more additional labels."""
    kind, size = relation(counts), counts.candidate_size[0]
    pair_count = 0
    for i in range(len(UNIVERSE)):
        for p3 in (kind[i] == 3).nonzero().flatten().tolist():
            for p in (kind[i] == theorem).nonzero().flatten().tolist():
                if size[p] == size[p3] if theorem == 4 else counts.extra[i, p] <= counts.extra[i, p3]:
                    assert factors[i, p] > factors[i, p3]
                    pair_count += 1
    assert pair_count > 100


def test_exponential_penalty():
    counts = label_counts(torch.tensor([[1, 0, 0]]), torch.tensor([[1, 1, 1]]))
    assert dissimilarity_factor(counts, "exponential", 0.5).item() == pytest.approx(0.36787944117144233)
    with pytest.raises(ValueError, match="needs a rate"):
        dissimilarity_factor(counts, "exponential")


def test_label_rows_must_have_one_width():
    with pytest.raises(ValueError, match=r"anchors \(1, 2\), candidates \(1, 3\)"):
        label_counts(torch.ones(1, 2), torch.ones(1, 3))


def test_labels_that_cannot_be_counted_are_named():
    for labels, type_name in (
        ([[1, 0]], "list"),
        (torch.ones(1, 2).numpy(), "ndarray"),
        (1j * torch.ones(1, 2), "c"),
    ):
        with pytest.raises(TypeError, match=rf"a tensor \(N, L\) or LabelRows; found: .*{type_name}"):
            label_counts(labels)
    for value in (float("nan"), float("inf"), -1.0):
        with pytest.raises(ValueError, match="finite and 0 or more; found other values"):
            label_counts(torch.ones(1, 2), torch.tensor([[value, 1.0]]))


def test_ratings_that_share_no_aspect_share_nothing():
    ratings = torch.rand(40, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    ratings[:20, :3] = ratings[20:, 3:] = 0
    overlaps = LabelSets.of_ratings(ratings).count_shared(slice(0, 40), slice(0, 40), torch.float64)
    assert not overlaps[:20, 20:].any()
    expected = torch.minimum(ratings[:, None], ratings).sum(2)
    torch.testing.assert_close(overlaps, expected, rtol=1e-12, atol=1e-12)
