import math

import pytest
import torch
from sklearn import metrics as sk

from mlcl.errors import UserError
from mlcl.evaluation import Metric, evaluate, metric_names
from mlcl.evaluation.scores import aspect_metric
from mlcl.labels import LabelRows

RANKING = ("coverage_error", "ndcg", "r_precision", "ranking_loss")


def test_metrics_that_rank_labels_are_a_group():
    base_names = set(metric_names("multi_label"))
    assert set(metric_names("multi_label", groups=["ranking"])) - base_names == {*RANKING}
    assert not set(metric_names("multi_label", n_labels=1, groups=["ranking"])) & {*RANKING}
    assert "precision_at_8" not in metric_names("multi_label", n_labels=7)


def test_no_positive_at_all():
    metrics = evaluate("multi_label", torch.full((2, 3), 0.9), LabelRows.from_lists([[], []], 3))
    assert (metrics["micro_f1"], metrics["macro_f1"], metrics["macro_f1_caml"]) == (0, 0, 0)
    assert metrics["hamming_loss"] == 1
    assert metrics["labels_scored"] == 0
    assert all(math.isnan(metrics[name]) for name in ("map", "macro_auc", "micro_auc"))
    ranking = evaluate("multi_label", torch.rand(2, 3), LabelRows.from_lists([[], []], 3), only=RANKING)
    assert [math.isnan(value) for value in ranking.values()] == [True] * 4
    scores = evaluate("multi_label", torch.full((2, 3), 0.1), LabelRows.from_lists([[], []], 3))
    assert (scores["subset_accuracy"], scores["hamming_loss"], scores["micro_f1"]) == (1, 0, 0)


@pytest.mark.parametrize("predicted", [[0, 2, 1, 0], [0, 0, 0, 0], [3, 3, 2, 2]])
def test_macro_f1_of_all_models_is_over_the_classes_that_have_a_row(predicted):
    p = torch.nn.functional.one_hot(torch.tensor(predicted), 5).float()
    metrics = evaluate("single", p, torch.tensor([0, 0, 1, -1]), only=["macro_f1", "macro_f1_predicted"])
    rows = [0, 0, 1], predicted[:3]
    assert metrics["macro_f1"] == pytest.approx(sk.f1_score(*rows, labels=[0, 1], average="macro"))
    assert metrics["macro_f1_predicted"] == pytest.approx(sk.f1_score(*rows, average="macro"))


def test_aspects():
    p = torch.tensor([[[0.9, 0.1], [0.2, 0.8]], [[0.9, 0.1], [0.7, 0.3]], [[0.4, 0.6], [0.5, 0.5]]])
    target = torch.tensor([[0, 1], [1, -1], [1, -1]])
    metrics = evaluate("aspects", p, target, aspects=["Service", "Room view"])
    assert metrics["accuracy_service"] == pytest.approx(2 / 3)
    assert metrics["accuracy_room_view"] == 1
    assert metrics["accuracy"] == pytest.approx((2 / 3 + 1) / 2)
    first_f1 = sk.f1_score([0, 1, 1], [0, 0, 1], average="macro")
    assert metrics["macro_f1"] == pytest.approx((first_f1 + 1) / 2)
    assert set(metrics) == set(metric_names("aspects", aspects=["Service", "Room view"]))


def test_aspects_that_read_alike_are_refused():
    with pytest.raises(ValueError, match="would have one name; found: A b, a-b"):
        evaluate("aspects", torch.full((1, 2, 2), 0.5), torch.tensor([[0, 1]]), aspects=["A b", "a-b"])


def test_aspects_in_any_script_have_metrics_of_their_own():
    names = [aspect_metric("accuracy", aspect) for aspect in ("Еда", "味道", "Größe & Café", "room_view")]
    assert names == ["accuracy_еда", "accuracy_味道", "accuracy_größe_café", "accuracy_room_view"]


@pytest.mark.parametrize(
    ("p", "true", "expected"),
    [([0.25] * 4, [0], 0),
     ([0.25] * 4, [], 0.25),
     ([0.25, 0.25, 0.75, 0.75], [2], (0.5 + 0.5) / 4),
     ([0.41, 0.46], [0], (0.59 - 0.46) / 2),
     ([0.39, 0.46], [0], (0.61 + 0.46) / 2),
     ([6 / 15, math.nextafter(6 / 15, 1)], [0], 0.5),
     ([0, 0.05], [1], 0.475),
     ([0, 1], [1], 0),
     ([0, 1], [0], 1)],
)  # fmt: skip
def test_calibration_error(p, true, expected):
    """Probabilities above and below the truth offset each other within a bin, but not across bins."""
    p = torch.tensor(p, dtype=torch.float64)
    rows = torch.isin(torch.arange(len(p)), torch.tensor(true, dtype=torch.int64))
    for shape in ((-1, 1), (1, -1)):
        labels = LabelRows.from_dense(rows.reshape(shape))
        metrics = evaluate("multi_label", p.reshape(shape), labels, only=["calibration_error"])
        assert metrics["calibration_error"] == pytest.approx(expected, abs=1e-15)


def test_the_calibration_of_classes_is_that_of_the_most_probable_one():
    p = torch.tensor([[0.7, 0.2, 0.1], [0.1, 0.7, 0.2], [0.3, 0.3, 0.4], [0.9, 0.1, 0.0]]).double()
    targets = torch.tensor([0, 2, 2, -1])
    single_error = evaluate("single", p, targets, only=["calibration_error"])["calibration_error"]
    assert single_error == pytest.approx((2 * 0.7 - 1 + 1 - 0.4) / 3)
    aspect_targets = torch.stack([targets, torch.ones_like(targets)], 1)
    aspect_p = p[:, None].expand(-1, 2, -1)
    error = evaluate("aspects", aspect_p, aspect_targets, only=["calibration_error"])["calibration_error"]
    second_error = (abs(2 * 0.7 - 1) + 0.4 + 0.9) / 4
    assert error == pytest.approx((single_error + second_error) / 2)


@pytest.mark.parametrize(
    ("task", "targets"),
    [("single", torch.tensor([0, 1])), ("multi_label", LabelRows.from_lists([[0], [0, 1]], 2))],
)
def test_probabilities_in_bfloat16_are_scored(task, targets):
    p = torch.tensor([[0.7, 0.3], [0.4, 0.6]]).bfloat16()
    assert evaluate(task, p, targets) == evaluate(task, p.float(), targets)


ONE, OF_CLASS = torch.tensor([[0.5, 0.5]]), torch.tensor([0])


@pytest.mark.parametrize(
    ("task", "p", "targets", "how", "error", "message"),
    [("single", ONE * math.nan, OF_CLASS, {}, ValueError, "not finite"),
     ("single", ONE, torch.tensor([0, 1]), {}, ValueError, "1 rows of probabilities for 2"),
     ("single", ONE, torch.tensor([-1]), {}, ValueError, "no row has a target"),
     ("single", ONE, OF_CLASS, {"only": ["accuracyy"]}, UserError, r"accuracyy.*accuracy, .*macro_f1"),
    ("single", ONE, OF_CLASS, {"only": "accuracy"}, TypeError, "only is a list of names; found: 'accuracy'"),
     ("multi_label", ONE, LabelRows.from_lists([[0]], 3), {}, ValueError, "2 columns .* for 3 labels"),
     ("multi_label", ONE, OF_CLASS, {}, TypeError, "label rows are needed, see mlcl.labels; found: Tensor"),
     ("single", ONE.tolist(), OF_CLASS, {}, TypeError, "not a tensor; found: list; allowed: torch.as_tensor"),
     ("single", ONE, OF_CLASS.numpy(), {}, TypeError, "a tensor of classes; found: ndarray"),
     ("multi_label", ONE, [[0]], {}, TypeError, "label rows are needed, see mlcl.labels; found: list"),
     ("single", ONE, torch.tensor([0.6]), {}, ValueError, "classes must be integers, .* found: float32"),
     ("single", ONE, torch.tensor([math.nan]), {}, ValueError, "must be integers, .* found: float32"),
     ("single", ONE, torch.tensor([-2]), {}, ValueError, "integers, -1 .unknown. or more; found: -2"),
     ("multi_label", ONE - 1, LabelRows.from_lists([[0]], 2), {}, ValueError, "0 and 1; found: -0.5 to -0.5"),
     ("single", ONE, OF_CLASS[:, None], {}, ValueError, r"\(1, 2\) and targets \(1, 1\) do not fit the task"),
     ("single", ONE[0, :1], OF_CLASS, {}, ValueError, r"probabilities \(1,\) and targets \(1,\) do not fit"),
     ("single", ONE, torch.tensor([2]), {"only": ["accuracy"]}, ValueError, "class 2 among .* of 2 classes"),
     ("aspects", ONE, OF_CLASS, {}, ValueError, r"probabilities \(1, 2\) and targets \(1,\) do not fit"),
     ("aspects", ONE[None], torch.zeros(1, 3).long(), {}, ValueError, r"targets \(1, 3\) do not fit"),
     ("aspect", ONE, OF_CLASS, {}, ValueError, "unknown task 'aspect'; allowed: single, multi")],
)  # fmt: skip
def test_bad_input(task, p, targets, how, error, message):
    with pytest.raises(error, match=message):
        evaluate(task, p, targets, **how)


def test_without_blocks_stands_beside_labels():
    with pytest.raises(ValueError, match="metric m has without_blocks; allowed: beside labels"):
        Metric(name="m", summary="", source="", hits=lambda right, known: right / known,
               without_blocks=lambda rows: rows.block)  # fmt: skip
