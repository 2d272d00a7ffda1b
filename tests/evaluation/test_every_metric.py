"""Every built-in metric, by being registered, equals a loop in plain Python."""

import math

from mlcl.evaluation import METRICS
from mlcl.testing.metrics import MetricTestCase


class TestEveryMetric(MetricTestCase):
    names = tuple(METRICS)

    def loop(self, name, probabilities, targets, threshold):
        if name.startswith("precision_at_"):
            return precision_at(int(name.removeprefix("precision_at_")), probabilities, targets)
        if isinstance(targets[0], int):
            return CLASS_LOOPS[name](probabilities, targets)
        return LABEL_LOOPS[name](probabilities, targets, threshold)


def divide(part, whole):
    return part / whole if whole else 0.0


def mean(values):
    values = list(values)
    return math.fsum(values) / len(values) if values else math.nan


def accuracy(probabilities, targets):
    return mean(first_highest(p) == y for p, y in zip(probabilities, targets, strict=True))


def first_highest(values):
    return values.index(max(values))


def macro_f1_of_classes(probabilities, targets):
    predicted = [first_highest(p) for p in probabilities]
    return mean(
        divide(
            2 * sum(c == p == y for p, y in zip(predicted, targets, strict=True)),
            predicted.count(c) + targets.count(c),
        )
        for c in {*predicted, *targets}
    )


def counted(probabilities, targets, threshold):
    """For each label the rows that have it right, predicted and true."""
    for label in range(len(probabilities[0])):
        predicted = {row for row, p in enumerate(probabilities) if p[label] >= threshold}
        true = {row for row, labels in enumerate(targets) if label in labels}
        yield len(predicted & true), len(predicted), len(true)


def micro_f1(probabilities, targets, threshold):
    right, predicted, true = map(sum, zip(*counted(probabilities, targets, threshold), strict=True))
    return divide(2 * right, predicted + true)


def macro_f1(probabilities, targets, threshold):
    return mean(divide(2 * r, p + t) for r, p, t in counted(probabilities, targets, threshold))


def macro_f1_caml(probabilities, targets, threshold):
    counts = list(counted(probabilities, targets, threshold))
    precision, recall = mean(divide(r, p) for r, p, _ in counts), mean(divide(r, t) for r, _, t in counts)
    return divide(2 * precision * recall, precision + recall)


def predicted_sets(probabilities, threshold):
    return [{label for label, value in enumerate(p) if value >= threshold} for p in probabilities]


def hamming_loss(probabilities, targets, threshold):
    wrong = [a ^ b for a, b in zip(predicted_sets(probabilities, threshold), targets, strict=True)]
    return sum(map(len, wrong)) / (len(targets) * len(probabilities[0]))


def subset_accuracy(probabilities, targets, threshold):
    return mean(a == b for a, b in zip(predicted_sets(probabilities, threshold), targets, strict=True))


def average_precision(scores, true):
    """Mean over the true rows of the precision among the rows that score as high or higher."""
    return mean(
        sum(t for s, t in zip(scores, true, strict=True) if s >= score) / sum(s >= score for s in scores)
        for score, is_true in zip(scores, true, strict=True)
        if is_true
    )


def auc(scores, true):
    """The share of pairs of a true and another row in which the true one scores higher; ties count half."""
    pairs = [
        (a > b) + (a == b) / 2
        for a, one in zip(scores, true, strict=True)
        for b, other in zip(scores, true, strict=True)
        if one and not other
    ]
    return mean(pairs)


def by_label(measure, probabilities, targets):
    """A label's scores measured; those that cannot be are left out."""
    for label in range(len(probabilities[0])):
        value = measure([p[label] for p in probabilities], [label in labels for labels in targets])
        if not math.isnan(value):
            yield value


def micro_auc(probabilities, targets, _):
    cells = [
        (score, n in labels)
        for p, labels in zip(probabilities, targets, strict=True)
        for n, score in enumerate(p)
    ]
    return auc(*zip(*cells, strict=True))


def precision_at(k, probabilities, targets):
    first = [sorted(range(len(p)), key=lambda label, p=p: (-p[label], label))[:k] for p in probabilities]
    return mean(len(labels & set(top)) / k for top, labels in zip(first, targets, strict=True))


CLASS_LOOPS = {"accuracy": accuracy, "macro_f1": macro_f1_of_classes}
LABEL_LOOPS = {
    "micro_f1": micro_f1,
    "macro_f1": macro_f1,
    "macro_f1_caml": macro_f1_caml,
    "hamming_loss": hamming_loss,
    "subset_accuracy": subset_accuracy,
    "map": lambda p, y, _: mean(by_label(average_precision, p, y)),
    "macro_auc": lambda p, y, _: mean(by_label(auc, p, y)),
    "micro_auc": micro_auc,
    "labels_scored": lambda p, y, _: len(list(by_label(average_precision, p, y))),
    "labels_scored_auc": lambda p, y, _: len(list(by_label(auc, p, y))),
}
