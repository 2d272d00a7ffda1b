"""Tests of ensembles: the weighted mean of logits against a slow loop, and the weight from validation."""

import math

import pytest
import torch

from mlcl.evaluation import Ensemble, Scoring, choose_ensemble, evaluate
from mlcl.evaluation.ensemble import WEIGHTS
from mlcl.labels import LabelRows

TASKS = {"multi_label": "micro_f1", "single": "accuracy", "aspects": "accuracy"}
SHAPES = {"multi_label": (40, 5), "single": (40, 5), "aspects": (40, 3, 4)}


def drawn(task, seed, spread):
    z = spread * torch.randn(*SHAPES[task], generator=torch.Generator().manual_seed(seed))
    return z.sigmoid() if task == "multi_label" else z.softmax(-1)


def targets_of(task):
    generator = torch.Generator().manual_seed(9)
    if task == "multi_label":
        lists = [torch.randint(0, 5, (2,), generator=generator).unique().tolist() for _ in range(40)]
        return LabelRows.from_lists(lists, 5)
    return torch.randint(0, SHAPES[task][-1], SHAPES[task][:-1], generator=generator)


def near(task, targets, spread, seed):
    """Returns probabilities that are better than chance on the targets."""
    if isinstance(targets, LabelRows):
        one_hot = targets.dense().double()
    else:
        one_hot = torch.nn.functional.one_hot(targets, SHAPES[task][-1]).double()
    noise = torch.randn(one_hot.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    z = spread * (one_hot + noise)
    return (z.sigmoid() if task == "multi_label" else z.softmax(-1)).float()


def slow_logits(task, row):
    if task == "multi_label":
        return [math.log(p / (1 - p)) for p in row]
    logs = [math.log(p) for p in row]
    return [z - sum(logs) / len(logs) for z in logs]


def slow(task, first, second, weight, scale, shift):
    """Returns the ensemble of one list of probabilities, computed from the equation."""
    pairs = zip(slow_logits(task, first), slow_logits(task, second), strict=True)
    z = [(1 - weight) * a + weight * (scale * b + shift) for a, b in pairs]
    if task == "multi_label":
        return [1 / (1 + math.exp(-logit)) for logit in z]
    return [math.exp(logit) / sum(map(math.exp, z)) for logit in z]


@pytest.mark.parametrize("task", TASKS)
def test_probabilities_are_those_of_the_equation(task):
    first, second = drawn(task, 0, 2.0), drawn(task, 1, 0.3)
    probabilities = Ensemble(0.3, 2.5, -0.4 if task == "multi_label" else 0.0)(task, first, second)
    assert probabilities.dtype == torch.float32
    assert probabilities.shape == first.shape
    width = first.shape[-1]
    rows = zip(first.reshape(-1, width).tolist(), second.reshape(-1, width).tolist(), strict=True)
    shift = -0.4 if task == "multi_label" else 0.0
    expected = torch.tensor([slow(task, *row, 0.3, 2.5, shift) for row in rows])
    torch.testing.assert_close(probabilities.reshape(-1, width), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("task", TASKS)
def test_weight_0_is_the_first_model_and_weight_1_orders_as_the_second(task):
    first, second = drawn(task, 0, 2.0), drawn(task, 1, 0.3)
    assert Ensemble(0.0, 7.0, 1.0)(task, first, second) is first
    probabilities = Ensemble(1.0, 3.0, 0.5)(task, first, second)
    if task == "multi_label":
        assert torch.equal(probabilities.flatten().argsort(), second.flatten().argsort())
    assert torch.equal(probabilities.argmax(-1), second.argmax(-1))


@pytest.mark.parametrize("task", TASKS)
def test_the_weight_is_the_smallest_of_the_best_ones_on_these_rows(task):
    targets = targets_of(task)
    first, second = near(task, targets, 2.0, 0), near(task, targets, 0.1, 1)
    scoring = Scoring(TASKS[task], "max", "global")
    ensemble = choose_ensemble(task, first, second, targets, scoring)
    scores = []
    for weight in WEIGHTS:
        probabilities = Ensemble(weight, ensemble.scale, ensemble.shift)(task, first, second)
        decision = scoring.decide(task, probabilities, targets)
        scores.append(evaluate(task, probabilities, targets, decision)[TASKS[task]])
    assert ensemble.weight == WEIGHTS[scores.index(max(scores))]
    assert 0 < ensemble.weight < 1
    assert max(scores) > max(scores[0], scores[-1])


def test_the_second_models_logits_get_the_deviation_and_mean_of_the_firsts():
    targets = targets_of("multi_label")
    first, second = near("multi_label", targets, 2.0, 0), near("multi_label", targets, 0.1, 1)
    ensemble = choose_ensemble("multi_label", first, second, targets, Scoring("micro_f1", "max", "global"))
    rescaled_logits = ensemble.scale * second.double().logit() + ensemble.shift
    assert float(rescaled_logits.std()) == pytest.approx(float(first.double().logit().std()))
    assert float(rescaled_logits.mean()) == pytest.approx(float(first.double().logit().mean()))
    classes, scoring = (drawn("single", 0, 2.0), drawn("single", 1, 0.1)), Scoring("accuracy", "max")
    assert choose_ensemble("single", *classes, targets_of("single"), scoring).shift == 0


def test_a_second_model_that_does_not_help_has_no_weight():
    targets = targets_of("single")
    good_p = torch.nn.functional.one_hot(targets, 5).float() * 0.8 + 0.04
    scoring = Scoring("accuracy", "max")
    assert choose_ensemble("single", good_p, drawn("single", 3, 1.0), targets, scoring).weight == 0
    assert choose_ensemble("single", good_p, torch.full((40, 5), 0.2), targets, scoring) == Ensemble(0.0)
    random_p = drawn("single", 3, 1.0)
    assert choose_ensemble("single", torch.full((40, 5), 0.2), good_p, targets, scoring).weight == 0.1
    assert choose_ensemble("single", random_p, good_p, targets, scoring).weight > 0


def test_a_metric_of_which_less_is_better_and_one_without_a_value():
    targets = targets_of("multi_label")
    first, second = near("multi_label", targets, 2.0, 0), near("multi_label", targets, 0.1, 1)
    scoring = Scoring("hamming_loss", "min", "global")
    ensemble = choose_ensemble("multi_label", first, second, targets, scoring)
    first_metrics = evaluate("multi_label", first, targets, scoring.decide("multi_label", first, targets))
    probabilities = ensemble("multi_label", first, second)
    ensemble_metrics = evaluate(
        "multi_label", probabilities, targets, scoring.decide("multi_label", probabilities, targets)
    )
    assert ensemble_metrics["hamming_loss"] < first_metrics["hamming_loss"]
    no_labels = LabelRows.from_lists([[]] * 40, 5)
    assert choose_ensemble("multi_label", first, second, no_labels, Scoring("map", "max")) == Ensemble(0.0)
    first, second, targets = drawn("aspects", 0, 2.0), drawn("aspects", 1, 1.0), targets_of("aspects")
    targets[:, 1] = -1
    scoring = Scoring("accuracy_b", "max", aspects=("a", "b", "c"))
    assert choose_ensemble("aspects", first, second, targets, scoring) == Ensemble(0.0)


def test_certain_probabilities_stay_finite_and_shapes_must_agree():
    probabilities = torch.tensor([[0.0, 1.0], [1.0, 0.0]])
    for task in ("multi_label", "single"):
        result = Ensemble(0.5)(task, probabilities, 1 - probabilities)
        torch.testing.assert_close(result, torch.full((2, 2), 0.5))
    with pytest.raises(ValueError, match=r"probabilities \(2, 2\) and \(2, 3\)"):
        choose_ensemble(
            "single", probabilities, torch.ones(2, 3) / 3, torch.tensor([0, 1]), Scoring("accuracy", "max")
        )
