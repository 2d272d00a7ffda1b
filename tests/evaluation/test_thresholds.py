"""Tests of decisions that are chosen on validation, against loops over all thresholds."""

import itertools
import json

import numpy as np
import pytest
import torch
from evaluation.metric_loops import COUNTED, value_of, with_unknown

from mlcl.evaluation.decision import Decision, choose
from mlcl.evaluation.metric import METRICS
from mlcl.evaluation.thresholds import LabelCandidates, SortedScores
from mlcl.labels import LabelRows


def scene(seed, rows=40, labels=5, tied=False, dtype=torch.float32):
    g = torch.Generator().manual_seed(seed)
    y = torch.rand(rows, labels, generator=g) < torch.linspace(0.05, 0.6, labels)
    p = torch.rand(rows, labels, generator=g, dtype=dtype) * 0.6 + 0.3 * y * torch.rand(rows, 1, generator=g)
    return ((p * 8).round() / 8 if tied else p), y


def candidates_of(scores, true, metric):
    return LabelCandidates.of(SortedScores.of(scores, true), metric)


def every_threshold(scores):
    """Returns one threshold from each interval in which the prediction does not change."""
    return [*np.unique(scores[np.isfinite(scores)]), 3.0]


def known_of(y, unknown):
    g = torch.Generator().manual_seed(9)
    return torch.rand(y.shape, generator=g) >= 0.25 if unknown else torch.ones_like(y)


@pytest.mark.parametrize("unknown", [False, True])
@pytest.mark.parametrize("at_least_one", [False, True])
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("name", COUNTED)
def test_the_global_threshold_is_the_best_of_all(name, tied, at_least_one, unknown):
    p, y = scene(3, tied=tied)
    known_NL = known_of(y, unknown)
    p[~known_NL] = torch.where(p[~known_NL] > 0.5, 0.99, 0.01)
    result = choose(p, with_unknown(y, known_NL), "global", name, at_least_one=at_least_one)

    def value(decision):
        return value_of(name, decision.predict(p.numpy()), y, known_NL)

    thresholds = every_threshold(p.double().numpy())
    best = max(value(Decision("global", (t,), None, at_least_one)) for t in thresholds)
    assert value(result) == pytest.approx(best, abs=1e-12)
    assert (result.mode, len(result.thresholds), result.at_least_one) == ("global", 1, at_least_one)


@pytest.mark.parametrize("name", ["micro_f1", "macro_f1", "hamming_loss"])
@pytest.mark.parametrize("seed", range(4))
def test_plain_thresholds_by_label_are_the_best_of_all(name, seed):
    """No combination of thresholds is better at n0 = 0, also for micro-F1."""
    p, y = scene(seed, rows=7, labels=3)
    scores, y_true = p.double().numpy(), y.numpy()
    thresholds = candidates_of(scores, y_true, METRICS[name]).best_thresholds(0.0)
    combinations = itertools.product(*(every_threshold(column) for column in scores.T))
    known_NL = np.ones_like(y_true)
    best = max(
        value_of(name, scores >= np.array(combination), y_true, known_NL) for combination in combinations
    )
    assert value_of(name, scores >= thresholds, y_true, known_NL) == pytest.approx(best, abs=1e-12)


def test_a_label_is_joined_by_the_average_one():
    """The threshold of each label is the best one by the equation of its objective, for one n0."""
    p, y = scene(1)
    scores, y_true, n0 = p.double().numpy(), y.numpy(), 4.0
    candidates = candidates_of(scores, y_true, METRICS["macro_f1"])
    thresholds = candidates.best_thresholds(n0)
    for label in range(scores.shape[1]):

        def own(t, label=label):
            share = n0 / y_true.sum()
            n_right = (y_true & (scores >= t))[:, label].sum() + share * (y_true & (scores >= t)).sum()
            size = (scores >= t)[:, label].sum() + share * (scores >= t).sum()
            return 2 * n_right / (size + y_true[:, label].sum() + n0)

        candidate_thresholds = np.append(candidates.threshold[candidates.threshold > 0], candidates.common)
        true_scores = np.unique(scores[:, label][y_true[:, label]])
        lower_scores = [scores[:, label][scores[:, label] < v].max(initial=0) for v in true_scores]
        allowed_thresholds = [
            candidates.common,
            *((v + b) / 2 for v, b in zip(true_scores, lower_scores, strict=True)),
            2.0,
        ]
        assert np.isin(np.array(allowed_thresholds[:-1]), candidate_thresholds).all()
        assert own(thresholds[label]) == pytest.approx(max(map(own, allowed_thresholds)), abs=1e-12)


def test_infinite_strength_is_the_global_threshold():
    p, y = scene(2)
    scores, y_true = p.double().numpy(), y.numpy()
    candidates = candidates_of(scores, y_true, METRICS["micro_f1"])
    expected = choose(p, LabelRows.from_dense(y), "global", "micro_f1").thresholds
    assert set(candidates.best_thresholds(np.inf)) == set(expected)
    assert np.abs(candidates.best_thresholds(1e9) - expected).max() < 0.05


@pytest.mark.parametrize("unknown", [False, True])
@pytest.mark.parametrize("name", COUNTED)
@pytest.mark.parametrize("tied", [False, True])
def test_top_k_is_the_best_number_of_labels(name, tied, unknown):
    p, y = scene(5, tied=tied)
    known_NL = known_of(y, unknown)
    decision = choose(p, with_unknown(y, known_NL), "top_k", name)

    def looped(k):
        order = [sorted(range(5), key=lambda label: (-row[label], label))[:k] for row in p.tolist()]
        return np.array([[label in top_labels for label in range(5)] for top_labels in order])

    max_k = int((y & known_NL).sum(1).max())
    values = [value_of(name, looped(k), y, known_NL) for k in range(1, max_k + 1)]
    assert decision.k == int(np.argmax(np.round(values, 12))) + 1
    assert (decision.predict(p.numpy()) == looped(decision.k)).all()


@pytest.mark.parametrize("mode", [0.3, "global", "per_label"])
def test_at_least_one_predicts_the_most_probable(mode):
    p, y = scene(4)
    p[0], y[0] = torch.tensor([0.0, 0.01, 0.02, 0.02, 0.0]), False
    predictions = choose(p, LabelRows.from_dense(y), mode, "micro_f1", at_least_one=True).predict(p.numpy())
    assert predictions[0].tolist() == [False, False, True, False, False]
    assert predictions[np.arange(len(p)), p.numpy().argmax(1)].all()


def test_a_given_threshold_is_taken_as_float32():
    p, y = scene(0)
    decision = choose(p, LabelRows.from_dense(y), 0.3, "micro_f1")
    assert decision == Decision.fixed(0.3)
    for dtype in (np.float32, np.float64):
        assert Decision.fixed(0.3).predict(np.full((1, 2), 0.3, np.float32).astype(dtype)).all()


def test_equal_thresholds_go_to_the_one_closest_to_one_half():
    """Any threshold between 0.1 and 0.7 separates the first rows; two thresholds are best for the others."""
    y = LabelRows.from_lists([[0], [], [0]], 1)
    decision = choose(torch.tensor([[0.9], [0.1], [0.7]]), y, "global", "micro_f1")
    assert decision.thresholds == pytest.approx((0.4,))
    # One prediction, which is right, and four of which two are right have the same F1 of 2/3.
    p = torch.tensor([[0.9], [0.8], [0.3], [0.2]])
    y = LabelRows.from_lists([[0], [], [], [0]], 1)
    assert choose(p, y, "global", "micro_f1").thresholds == pytest.approx((0.85,))


@pytest.mark.parametrize("mode", ["global", "per_label", "top_k"])
def test_without_a_true_entry_it_is_one_half_or_the_first_label(mode):
    decision = choose(torch.rand(8, 3), LabelRows.from_lists([[]] * 8, 3), mode, "micro_f1")
    assert decision.k == 1 if mode == "top_k" else set(decision.thresholds) == {0.5}


def test_a_saturated_probability_can_be_left_out():
    """The Hamming loss is lowest without predictions, though every probability is 1."""
    decision = choose(torch.ones(9, 2), LabelRows.from_lists([[0]] + [[]] * 8, 2), "global", "hamming_loss")
    assert not decision.predict(np.ones((1, 2))).any()


def test_neighbouring_doubles_are_told_apart():
    low = 0.3
    high = np.nextafter(low, 1)
    p = torch.tensor([[high], [low]], dtype=torch.float64)
    decision = choose(p, LabelRows.from_lists([[0], []], 1), "global", "micro_f1")
    assert decision.predict(p.numpy()).tolist() == [[True], [False]]


@pytest.mark.parametrize("mode", [0.3, "global", "per_label", "top_k"])
def test_json_gives_the_same_decision(mode):
    p, y = scene(0)
    decision = choose(p, LabelRows.from_dense(y), mode, "macro_f1", at_least_one=mode != "top_k")
    assert Decision.from_json(json.loads(json.dumps(decision.to_json()))) == decision


def test_other_metrics_are_served_by_micro_f1():
    p, y = scene(0)
    rows = LabelRows.from_dense(y)
    assert choose(p, rows, "global", "map") == choose(p, rows, "global", "micro_f1")


def test_shapes_that_disagree():
    with pytest.raises(ValueError, match="probabilities"):
        choose(torch.rand(3, 2), LabelRows.from_lists([[0]], 2), "global", "micro_f1")
    with pytest.raises(ValueError, match="2 thresholds for 3 labels"):
        Decision("per_label", (0.5, 0.5)).predict(np.ones((1, 3)))


@pytest.mark.parametrize(
    ("p", "mode", "message"),
    [
        (
            torch.rand(1, 2),
            "perlabel",
            "unknown threshold 'perlabel'; allowed: a number, global, per_label, top_k",
        ),
        (torch.rand(1, 2), True, "unknown threshold True"),
        (torch.rand(1, 2), float("nan"), "unknown threshold nan"),
        (torch.tensor([[0.5, float("nan")]]), "global", "probabilities are not finite"),
        (torch.tensor([[0.5, 1.5]]), 0.5, "not within 0 and 1; found: 0.5 to 1.5"),
    ],
)
def test_an_unknown_mode_and_numbers_that_are_no_probabilities_are_refused(p, mode, message):
    with pytest.raises(ValueError, match=message):
        choose(p, LabelRows.from_lists([[0]], 2), mode, "micro_f1")


def rare_scene(seed, shift):
    """Returns probabilities and truths of 60 labels with about 2 true validation entries and 10 with many.

    Validation is the first 400 rows. Probabilities are calibrated, except that each label's logit is moved by
    `shift` times a normal deviate.
    """
    rng = np.random.default_rng(seed)
    rate = np.append(np.full(60, 2 / 400), np.full(10, 0.15))
    logit = np.log(rate / (1 - rate)) + 2.5 * rng.normal(size=(2400, 70)) - 2
    y = rng.random(logit.shape) < 1 / (1 + np.exp(-logit))
    return 1 / (1 + np.exp(-logit - shift * rng.normal(size=70))), y


def gains(shift, metric, labels_of):
    """Returns the gains in micro-F1 on new rows over one threshold, shrunk and plain, for each seed."""
    differences = []
    for seed in range(6):
        p, y = rare_scene(seed, shift)
        data = torch.from_numpy(p[:400]), LabelRows.from_dense(torch.from_numpy(y[:400]))
        labels = labels_of(y[:400])
        plain_thresholds = candidates_of(p[:400], y[:400], METRICS[metric]).best_thresholds(0.0)
        choices = [choose(*data, mode, metric).thresholds for mode in ("global", "per_label")]
        y_true, known_NL = y[400:][:, labels], np.ones_like(y[400:][:, labels])
        global_score, shrunk_score, plain_score = (
            value_of("micro_f1", (p[400:] >= np.asarray(thresholds))[:, labels], y_true, known_NL)
            for thresholds in (*choices, plain_thresholds)
        )
        differences.append((shrunk_score - global_score, plain_score - global_score))
    return np.array(differences).T


@pytest.mark.parametrize("metric", ["micro_f1", "macro_f1"])
def test_rare_labels_do_not_lose_on_new_rows(metric):
    """Labels with 1 to 3 true validation entries lose at most a standard error, unlike plain thresholds."""
    shrunk_gains, plain_gains = gains(0.0, metric, lambda y: np.isin(y.sum(0), (1, 2, 3)))
    assert np.mean(shrunk_gains) >= -np.std(shrunk_gains, ddof=1) / np.sqrt(len(shrunk_gains))
    assert np.mean(plain_gains) < -0.02


def test_labels_that_are_scaled_differently_gain_on_new_rows():
    shrunk_gains, _ = gains(1.5, "micro_f1", lambda y: np.arange(y.shape[1]))
    assert np.mean(shrunk_gains) > 0.05
