"""Every built-in metric, by being registered, equals a loop in plain Python."""

import itertools
import math

from mlcl.evaluation import METRICS
from mlcl.evaluation.tasks import BANDS
from mlcl.testing.metrics import FACTS, MetricTestCase


class TestEveryMetric(MetricTestCase):
    names = tuple(METRICS)

    def loop(self, name, probabilities, targets, threshold):
        if name.startswith("precision_at_"):
            return precision_at(int(name.removeprefix("precision_at_")), probabilities, targets)
        band, _, rest = name.partition("_")
        if band in BANDS:
            return in_band(BANDS.index(band), rest, probabilities, targets, threshold)
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


def in_band(band, name, probabilities, targets, threshold):
    """F1 or accuracy of the labels whose band it is; of classes all are counted, and those averaged."""
    width = len(probabilities[0])
    inside = [label for label in range(width) if FACTS.band[label] == band]
    if not isinstance(targets[0], int):
        whole = list(counted(probabilities, targets, threshold))
        counts = [whole[label] for label in inside]
        if name == "macro_f1":
            return mean(divide(2 * r, p + t) for r, p, t in counts)
        right, predicted, true = map(sum, zip(*counts, strict=True))
        return divide(2 * right, predicted + true)
    pairs = list(zip([first_highest(p) for p in probabilities], targets, strict=True))
    if name == "accuracy":
        return mean(p == y for p, y in pairs if y in inside)
    counts = [
        (sum(p == y == c for p, y in pairs), sum(p == c for p, _ in pairs) + sum(y == c for _, y in pairs))
        for c in inside
    ]
    counts = [(right, size) for right, size in counts if size]
    if name == "macro_f1":
        return mean(2 * right / size for right, size in counts)
    return 2 * sum(r for r, _ in counts) / sum(s for _, s in counts) if counts else math.nan


def labelled(measure):
    """The mean over rows with a label of a measure of the probabilities and the set of true labels."""
    return lambda p, y, _=None: mean(measure(row, labels) for row, labels in zip(p, y, strict=True) if labels)


def r_precision(p, true):
    ordered = sorted(range(len(p)), key=lambda label: (-p[label], label))
    return len(true & set(ordered[: len(true)])) / len(true)


def ndcg(p, true):
    """Equally probable labels share the discounts of their places."""
    discounts = [1 / math.log2(place + 2) for place in range(len(p))]
    gain, first = 0.0, 0
    for _, group in itertools.groupby(sorted(range(len(p)), key=lambda n: -p[n]), key=lambda n: p[n]):
        group = list(group)
        places = discounts[first : first + len(group)]
        gain += len(true & set(group)) * sum(places) / len(places)
        first += len(group)
    return gain / sum(discounts[: len(true)])


def coverage_error(p, true):
    return sum(value >= min(p[label] for label in true) for value in p)


def ranking_loss(p, true):
    others = set(range(len(p))) - true
    wrong = sum(p[other] >= p[own] for own in true for other in others)
    return wrong / (len(true) * len(others)) if others else 0.0


def above(labels):
    """The labels with all that is above them, as pairs of a level and a class there."""
    return {(level, int(node)) for label in labels for level, node in enumerate(FACTS.path[label])}


def hierarchical(name):
    def value(probabilities, targets, threshold=None):
        if isinstance(targets[0], int):
            sets = [{first_highest(p)} for p in probabilities]
            targets = [{y} for y in targets]
        else:
            sets = predicted_sets(probabilities, threshold)
        pairs = [(above(p), above(y)) for p, y in zip(sets, targets, strict=True)]
        right = sum(len(p & y) for p, y in pairs)
        precision = divide(right, sum(len(p) for p, _ in pairs))
        recall = divide(right, sum(len(y) for _, y in pairs))
        f1 = divide(2 * precision * recall, precision + recall)
        return {"precision": precision, "recall": recall, "f1": f1}[name]

    return value


def lca_distance(probabilities, targets):
    def levels_up(p, y):
        shared = [level for level in range(3) if FACTS.path[p][level] == FACTS.path[y][level]]
        return 2 - max(shared, default=-1)

    return mean(levels_up(first_highest(p), y) for p, y in zip(probabilities, targets, strict=True))


def level_sums(p):
    """For each level the probability of each of its classes."""
    nodes = [sorted({int(FACTS.path[c][level]) for c in range(len(p))}) for level in range(3)]
    return [
        [sum(p[c] for c in range(len(p)) if FACTS.path[c][level] == node) for node in nodes[level]]
        for level in range(3)
    ]


def level_consistency(probabilities, _):
    return mean(
        [first_highest(level) for level in level_sums(p)] == FACTS.path[first_highest(p)].tolist()
        for p in probabilities
    )


def path_accuracy(probabilities, targets):
    def decoded(p):
        logs = [[math.log(v) if v else -math.inf for v in level] for level in level_sums(p)]
        return first_highest([sum(logs[n][FACTS.path[c][n]] for n in range(3)) for c in range(len(p))])

    return mean(decoded(p) == y for p, y in zip(probabilities, targets, strict=True))


HIERARCHICAL = {f"hierarchical_{name}": hierarchical(name) for name in ("precision", "recall", "f1")}
CLASS_LOOPS = {
    "accuracy": accuracy,
    "macro_f1": macro_f1_of_classes,
    "lca_distance": lca_distance,
    "level_consistency": level_consistency,
    "path_accuracy": path_accuracy,
    **HIERARCHICAL,
}
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
    "r_precision": labelled(r_precision),
    "ndcg": labelled(ndcg),
    "coverage_error": labelled(coverage_error),
    "ranking_loss": labelled(ranking_loss),
    **HIERARCHICAL,
}
