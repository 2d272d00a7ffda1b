import math

import pytest
import torch

from mlcl.labels import LabelRows
from mlcl.losses import build_loss, positive_weights

CLASSES = torch.tensor([0, 1, 0, 2, 0, 1])


def weights(name, lists, width=4, **options):
    return positive_weights(name, LabelRows.from_lists(lists, width), **options)


def test_simclr_weighs_the_other_views():
    w = positive_weights("simclr", None, torch.tensor([7, 7, 3, 7, 4]))
    half = [[0, 0.5, 0, 0.5, 0], [0.5, 0, 0, 0.5, 0], [0.5, 0.5, 0, 0, 0]]
    assert w.tolist() == [half[0], half[1], [0] * 5, half[2], [0] * 5]


def test_two_orthogonal_views():
    """The rows are e1, e1, e2, so that the positive has the logit 1/tau and the other candidate 0."""
    z = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    terms = build_loss("supcon", temperature=0.5, reduction="none")(z, torch.tensor([0, 0, 1]))
    assert terms.tolist() == pytest.approx([math.log1p(math.exp(-2))] * 2 + [0], rel=1e-14)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("all", {}),
        ("any", {}),
        ("mulsupcon", {}),
        ("mulsupcon", {"normalization": "per_sample"}),
        ("simdis", {}),
        ("simdis", {"form": "printed"}),
        ("simdis", {"normalizer": "factors"}),
    ],
)
@pytest.mark.parametrize("as_rows", [True, False])
def test_one_hot_labels_reduce_to_supcon(name, options, as_rows):
    z = torch.randn(6, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    labels = LabelRows.from_classes(CLASSES, 3) if as_rows else CLASSES
    value = build_loss(name, temperature=0.2, **options)(z, labels)
    expected = build_loss("supcon", temperature=0.2)(z, CLASSES)
    assert value.item() == pytest.approx(expected.item(), rel=1e-13)


def test_sincere_is_supcon_where_anchors_have_one_positive():
    classes, z = torch.tensor([0, 1, 2, 0, 1, 2]), torch.randn(6, 4, dtype=torch.float64)
    value = build_loss("sincere", temperature=0.2)(z, classes)
    assert value.item() == pytest.approx(build_loss("supcon", temperature=0.2)(z, classes).item(), rel=1e-13)


@pytest.mark.parametrize("engine", ["dense", "tiled"])
def test_sincere_never_repels_a_positive(engine):
    """Row 0 lies on its positive 1 and far from 2; supcon repels row 1, sincere does not."""
    z = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]], dtype=torch.float64)
    labels = torch.tensor([0, 0, 0, 1])
    attractions = {}
    for name in ("supcon", "sincere"):
        rows = z.clone().requires_grad_()
        build_loss(name, temperature=0.1, engine=engine)(rows, labels).backward()
        attractions[name] = -(rows.grad[0] @ z[1]).item()
    assert attractions["supcon"] < -0.1
    assert attractions["sincere"] > 0


def test_a_decoupled_pair_is_compared_with_the_negatives_alone():
    """The rows are e1, e1, e2, so that the positive has the logit 1/tau and the one negative 0."""
    z = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    loss = build_loss("sincere", temperature=0.5, reduction="none", denominator="negatives")
    assert loss(z, torch.tensor([0, 0, 1])).tolist() == pytest.approx([-2, -2, 0])


def test_a_softmax_without_all_candidates_is_not_left_to_the_kernels(monkeypatch, rows):
    """Kernels take all rows as candidates."""
    calls = []
    monkeypatch.setattr("mlcl.losses.engine.serves", lambda similarities: not calls.append(similarities))
    value = build_loss("sincere", engine="tiled")(rows.z, rows.labels("sincere"))
    assert len(calls) == 1
    assert value.item() == pytest.approx(
        build_loss("sincere", engine="dense")(rows.z, rows.labels("any")).item()
    )


@pytest.mark.parametrize("denominator", ["pair", "negatives"])
@pytest.mark.parametrize("engine", ["dense", "tiled"])
def test_sincere_without_negatives_is_zero(engine, denominator):
    z = torch.randn(5, 3, requires_grad=True)
    loss = build_loss("sincere", temperature=0.1, engine=engine, denominator=denominator)
    value = loss(z, torch.zeros(5, dtype=torch.int64))
    value.backward()
    assert value == 0
    assert z.grad.abs().sum() == 0


def test_sincere_reads_overlapping_or_equal_sets_as_positive():
    lists = [[0, 1], [0], [0, 1], [], []]
    assert weights("sincere", lists)[0].tolist() == [0, 0.5, 0.5, 0, 0]
    assert weights("sincere", lists, positives="equal")[0].tolist() == [0, 0, 1, 0, 0]
    assert weights("sincere", lists, positives="equal")[3].count_nonzero() == 0


def test_several_paths_share_the_deepest_level_that_any_two_share():
    """Rows 0 to 3 share level 0, except 1 and 3, and 0 and 3, so sharing is not transitive."""
    coarse_labels = LabelRows.from_lists([[0], [0], [0, 1], [1], []], 2)
    fine_labels = LabelRows.from_lists([[0, 1], [1], [2, 3], [], []], 4)
    w = positive_weights(
        "himulcon", LabelRows.of_levels([coarse_labels, fine_labels]), level_weights=[2.0, 6.0]
    )
    assert w[0].tolist() == pytest.approx([0, 1 / 2 + 3, 1 / 2, 0, 0])
    assert w[2].tolist() == pytest.approx([1 / 3, 1 / 3, 0, 1 / 3, 0])
    assert w[3].tolist() == pytest.approx([0, 0, 1, 0, 0])
    assert w[4].count_nonzero() == 0


def test_level_weights_must_fit_the_paths():
    with pytest.raises(ValueError, match="one number a level; found: 3; allowed: 2"):
        positive_weights("himulcon", torch.zeros(2, 2, dtype=torch.int64), level_weights=[1.0, 1.0, 1.0])


def test_a_missing_class_is_nobodys_positive_but_a_candidate():
    w = positive_weights("supcon", torch.tensor([-1, -1, 0, 0]))
    assert w.tolist() == [[0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 1], [0, 0, 1, 0]]
    z = torch.eye(4, dtype=torch.float64)
    terms = build_loss("supcon", temperature=1, reduction="none")(z, torch.tensor([-1, -1, 0, 0]))
    assert terms.tolist() == pytest.approx([0, 0, math.log(3), math.log(3)])


def test_a_missing_class_is_an_empty_row():
    w = positive_weights("any", torch.tensor([-1, -1, 0, 0]))
    assert torch.equal(w, weights("any", [[], [], [0], [0]]))


def test_classes_outside_and_rows_of_other_widths_are_refused():
    with pytest.raises(ValueError, match=r"class index outside -1\.\.2"):
        LabelRows.from_classes(torch.tensor([5, 0]), 3)
    with pytest.raises(ValueError, match=r"rows of different widths: \[3, 5\]"):
        LabelRows.cat([LabelRows.from_lists([[0]], width) for width in (3, 5)])


@pytest.mark.parametrize("z", [[[1.0, 0.0]], None, torch.eye(2).numpy(), torch.eye(2).to_sparse()])
def test_embeddings_are_a_dense_tensor(z):
    with pytest.raises(TypeError, match=r"embeddings must be a dense tensor \(B, D\)"):
        build_loss("supcon")(z, torch.tensor([0, 1]))


@pytest.mark.parametrize("ids", [[0, 0], torch.tensor([0, 0]).numpy(), torch.tensor([0, 0]).to_sparse()])
def test_sample_ids_are_a_dense_tensor(ids):
    with pytest.raises(TypeError, match=r"sample_ids must be a dense tensor \(B,\)"):
        build_loss("simclr")(torch.eye(2), sample_ids=ids)


def test_all_matches_empty_rows_unless_told_not_to():
    lists = [[], [], [0, 1], [0, 1], [0]]
    assert weights("all", lists)[0].tolist() == [0, 1, 0, 0, 0]
    assert weights("all", lists)[2].tolist() == [0, 0, 0, 1, 0]
    assert weights("all", lists, empty_match=False)[:2].count_nonzero() == 0
    assert weights("all", lists, empty_match=False)[2].tolist() == [0, 0, 0, 1, 0]


@pytest.mark.parametrize("name", ["any", "mulsupcon", "simdis", "knn", "jaccard"])
def test_empty_rows_have_no_positives(name):
    w = weights(name, [[], [], [0, 2], [0, 1, 2]])
    assert w[:2].count_nonzero() == 0
    assert w[:, :2].count_nonzero() == 0
    assert w[2, 3] > 0


def test_mulsupcon_by_hand():
    # P_0(0) = {1, 2}, P_1(0) = {1}; label 3 has one row alone. sum |y| = 7, valid terms 5.
    lists = [[0, 1], [0, 1], [0], [3, 2]]
    terms = torch.tensor([[0, 1.5, 0.5, 0], [1.5, 0, 0.5, 0], [0.5, 0.5, 0, 0], [0, 0, 0, 0]]).double()
    assert torch.allclose(weights("mulsupcon", lists), terms * 4 / 7)
    valid_weights = weights("mulsupcon", lists, normalization="paper_valid")
    assert torch.allclose(valid_weights, terms * 4 / 5)
    sample_weights = weights("mulsupcon", lists, normalization="per_sample")
    assert torch.allclose(sample_weights, terms / torch.tensor([[2], [2], [1], [2]]))


def test_simdis_printed_has_the_gradient_of_any(rows):
    z = rows.z.clone().requires_grad_()
    options = {"form": "printed", "penalty": "exponential", "rate": 2.0}
    printed_value = build_loss("simdis", **options)(z, rows.labels("simdis"))
    plain_value = build_loss("any")(z, rows.labels("any"))
    difference = torch.autograd.grad(printed_value - plain_value, z)[0]
    assert printed_value > plain_value
    assert difference.abs().max() < 1e-15


def test_simdis_survives_a_vanishing_factor():
    """exp(-rate |T - S|) underflows, so the weighted form is 0 and the printed one a finite constant."""
    z = torch.eye(2, dtype=torch.float64)
    labels = LabelRows.from_lists([[0], [0, 1, 2]], 3)
    printed_loss = build_loss("simdis", form="printed", penalty="exponential", rate=500.0, reduction="none")
    assert printed_loss(z, labels).tolist() == pytest.approx([1000, math.log(3)])
    weighted_loss = build_loss(
        "simdis", normalizer="factors", penalty="exponential", rate=500.0, reduction="none"
    )
    assert weighted_loss(z, labels).tolist() == [0, 0]


def test_jaccard_by_hand():
    ratings = torch.tensor([[3.0, 1.0, 0.0], [3.0, 3.0, 0.0], [1.0, 0.0, 3.0], [0.0, 0.0, 0.0]])
    # s_01 = 4/6, s_02 = 1/7, s_12 = 1/9
    w = positive_weights("jaccard", ratings, threshold=0.12)
    assert w[0].tolist() == pytest.approx([0, 1 / 3, 1 / 14, 0])
    assert w[1].tolist() == pytest.approx([2 / 3, 0, 0, 0])
    assert w[3].count_nonzero() == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("strict", "expected"), [(True, 0), (False, 2)])
def test_jaccard_at_the_threshold(dtype, strict, expected):
    ratings = torch.tensor([[1.0, 0.0], [3.0, 0.0]], dtype=dtype)
    loss = build_loss("jaccard", threshold=1 / 3, strict=strict)
    loss(torch.eye(2, dtype=dtype), ratings)
    assert loss.stats.positives_per_anchor * 2 == expected


def test_jaccard_compares_in_float64_even_for_float32_embeddings():
    """The next number above 1/3 in float64 is 1/3 itself in float32."""
    loss = build_loss("jaccard", threshold=math.nextafter(1 / 3, 1), strict=False)
    loss(torch.eye(2), LabelRows.from_lists([[0], [0, 1, 2]], 3))
    assert loss.stats.positives_per_anchor == 0


def test_jaccard_reads_label_rows_as_zero_and_one():
    lists = [[0, 1], [1, 2], [3]]
    w = weights("jaccard", lists, threshold=0.0)
    assert w[0].tolist() == pytest.approx([0, 1 / 3, 0])
    assert torch.equal(w, positive_weights("jaccard", LabelRows.from_lists(lists, 4).dense(), threshold=0.0))


def test_knn_by_hand():
    lists = [[0, 1, 2], [0, 1], [2], [3]]
    assert weights("knn", lists)[0].tolist() == pytest.approx([0, 2 / 3, 1 / 3, 0])
    assert weights("knn", lists, dynamic=False)[0].tolist() == [0, 0.5, 0.5, 0]


@pytest.mark.parametrize("name", ["all", "any", "mulsupcon", "simdis", "knn", "jaccard"])
def test_dense_labels_equal_label_rows(name, rows):
    sparse = LabelRows.from_lists([sorted(s) for s in rows.sets], rows.width)
    for dense in (sparse.dense(), sparse.dense().bool(), sparse.dense().long()):
        assert torch.equal(positive_weights(name, sparse), positive_weights(name, dense))
