import math

import pytest
import torch
from sklearn import metrics as sk

from mlcl.errors import UserError
from mlcl.evaluation import Decision, Metric, evaluate, metric_names
from mlcl.labels import LabelRows

RANKING = ("coverage_error", "ndcg", "r_precision", "ranking_loss")


def test_metrics_that_rank_labels_are_a_group():
    plain = set(metric_names("multi_label"))
    assert set(metric_names("multi_label", groups=["ranking"])) - plain == {*RANKING}
    assert not set(metric_names("multi_label", n_labels=1, groups=["ranking"])) & {*RANKING}


def test_precision_ties_go_to_the_lower_label():
    y = LabelRows.from_lists([[4], [5], []], 7)
    got = evaluate("multi_label", torch.full((3, 7), 0.25), y)
    assert got["precision_at_5"] == pytest.approx(1 / 15)
    assert "precision_at_8" not in got


def test_no_positive_at_all():
    got = evaluate("multi_label", torch.full((2, 3), 0.9), LabelRows.from_lists([[], []], 3))
    assert (got["micro_f1"], got["macro_f1"], got["macro_f1_caml"]) == (0, 0, 0)
    assert got["hamming_loss"] == 1
    assert got["labels_scored"] == 0
    assert all(math.isnan(got[name]) for name in ("map", "macro_auc", "micro_auc"))
    ranking = evaluate("multi_label", torch.rand(2, 3), LabelRows.from_lists([[], []], 3), only=RANKING)
    assert [math.isnan(value) for value in ranking.values()] == [True] * 4
    quiet = evaluate("multi_label", torch.full((2, 3), 0.1), LabelRows.from_lists([[], []], 3))
    assert (quiet["subset_accuracy"], quiet["hamming_loss"], quiet["micro_f1"]) == (1, 0, 0)


def test_a_label_is_predicted_from_the_threshold_on():
    y, p = LabelRows.from_lists([[0]], 2), torch.tensor([[0.3, 0.29]])
    for dtype in (torch.float32, torch.float64):
        assert evaluate("multi_label", p.to(dtype), y, Decision.fixed(0.3))["micro_f1"] == 1


def test_of_equal_classes_the_lower_is_predicted():
    p = torch.full((2, 3), 1 / 3)
    assert evaluate("single", p, torch.tensor([0, 1]))["accuracy"] == 0.5


@pytest.mark.parametrize("predicted", [[0, 2, 1, 0], [0, 0, 0, 0], [3, 3, 2, 2]])
def test_macro_f1_of_all_models_is_over_the_classes_that_have_a_row(predicted):
    p = torch.nn.functional.one_hot(torch.tensor(predicted), 5).float()
    got = evaluate("single", p, torch.tensor([0, 0, 1, -1]), only=["macro_f1", "macro_f1_predicted"])
    rows = [0, 0, 1], predicted[:3]
    assert got["macro_f1"] == pytest.approx(sk.f1_score(*rows, labels=[0, 1], average="macro"))
    assert got["macro_f1_predicted"] == pytest.approx(sk.f1_score(*rows, average="macro"))


def test_aspects():
    p = torch.tensor([[[0.9, 0.1], [0.2, 0.8]], [[0.9, 0.1], [0.7, 0.3]], [[0.4, 0.6], [0.5, 0.5]]])
    target = torch.tensor([[0, 1], [1, -1], [1, -1]])
    got = evaluate("aspects", p, target, aspects=["Service", "Room view"])
    assert got["accuracy_service"] == pytest.approx(2 / 3)
    assert got["accuracy_room_view"] == 1
    assert got["accuracy"] == pytest.approx((2 / 3 + 1) / 2)
    first = sk.f1_score([0, 1, 1], [0, 0, 1], average="macro")
    assert got["macro_f1"] == pytest.approx((first + 1) / 2)
    assert set(got) == set(metric_names("aspects", aspects=["Service", "Room view"]))


def test_an_aspect_without_targets_is_left_out_of_the_mean():
    p = torch.tensor([[[0.9, 0.1], [0.2, 0.8]]])
    got = evaluate("aspects", p, torch.tensor([[0, -1]]))
    assert got == {"accuracy": 1.0, "macro_f1": 1.0, "accuracy_0": 1.0}


def test_bad_input():
    p, y = torch.tensor([[0.5, 0.5]]), torch.tensor([0])
    with pytest.raises(ValueError, match="not finite"):
        evaluate("single", p * math.nan, y)
    with pytest.raises(ValueError, match="1 rows of probabilities for 2"):
        evaluate("single", p, torch.tensor([0, 1]))
    with pytest.raises(ValueError, match="no row has a target"):
        evaluate("single", p, torch.tensor([-1]))
    with pytest.raises(ValueError, match="2 columns of probabilities for 3 labels"):
        evaluate("multi_label", p, LabelRows.from_lists([[0]], 3))
    with pytest.raises(TypeError, match="label rows"):
        evaluate("multi_label", p, y)
    with pytest.raises(UserError, match=r"accuracyy.*accuracy, .*macro_f1"):
        evaluate("single", p, y, only=["accuracyy"])


def test_without_blocks_stands_beside_labels():
    with pytest.raises(ValueError, match="metric m has without_blocks; allowed: beside labels"):
        Metric(name="m", summary="", source="", hits=lambda right, known: right / known,
               without_blocks=lambda rows: rows.block)  # fmt: skip


def test_many_labels_are_quick_enough_to_validate_with():
    generator = torch.Generator().manual_seed(0)
    p = torch.rand(300, 8692, generator=generator)
    y = LabelRows.from_lists(torch.randint(0, 8692, (300, 16), generator=generator).tolist(), 8692)
    got = evaluate("multi_label", p, y)
    assert got["macro_auc"] == pytest.approx(0.5, abs=0.02)
    assert got["labels_scored"] == len(y.columns.unique())
