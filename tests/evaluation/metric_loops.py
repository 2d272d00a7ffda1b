"""Slow versions of every metric of predictions: loops over rows and labels, written from the definitions.

The labels of a row are a set, and so are its known labels; a class is an integer. Label l is in the band
l mod 3. NaN stands for a label or row that a mean leaves out.
"""

import itertools
import math
from dataclasses import replace

from mlcl.evaluation.tasks import BANDS
from mlcl.labels import LabelRows
from mlcl.testing.metrics import FACTS


def with_unknown(true, known):
    """Returns label rows whose entries outside the mask `known` (N, L) are unknown."""
    return replace(LabelRows.from_dense(true & known), unknown=LabelRows.from_dense(~known))


def divide(part, whole):
    return part / whole if whole else 0.0


def mean(values):
    values = [value for value in values if not math.isnan(value)]
    return math.fsum(values) / len(values) if values else math.nan


def first_highest(values):
    return values.index(max(values))


def columns_of(p, y, known):
    """Returns the known cells of each label, as pairs (probability, true)."""
    return [
        [
            (q[label], label in labels)
            for q, labels, known_labels in zip(p, y, known, strict=True)
            if label in known_labels
        ]
        for label in range(len(p[0]))
    ]


def counts_of(columns, threshold):
    """Yields the numbers of right, predicted and true cells of each label."""
    for column in columns:
        predicted = [is_true for q, is_true in column if q >= threshold]
        yield sum(predicted), len(predicted), sum(is_true for _, is_true in column)


def of_counts(name, columns, threshold):
    counts = list(counts_of(columns, threshold))
    n_right, n_predicted, n_true = map(sum, zip(*counts, strict=True))
    if name == "micro_f1":
        return divide(2 * n_right, n_predicted + n_true)
    if name == "macro_f1":
        return mean(divide(2 * r, p + t) for r, p, t in counts)
    if name == "hamming_loss":
        return (n_predicted + n_true - 2 * n_right) / sum(map(len, columns))
    precision, recall = mean(divide(r, p) for r, p, _ in counts), mean(divide(r, t) for r, _, t in counts)
    return divide(2 * precision * recall, precision + recall)


COUNTED = ("micro_f1", "macro_f1", "macro_f1_caml", "hamming_loss")


def value_of(name, predicted, true, known):
    """Returns a metric of counts for masks (N, L) of predicted, true and known entries; more is better."""
    masks = zip(*(mask.T.tolist() for mask in (predicted, true, known)), strict=True)
    columns = [[(p, y) for p, y, is_known in zip(*column, strict=True) if is_known] for column in masks]
    value = of_counts(name, columns, 0.5)
    return -value if name == "hamming_loss" else value


def average_precision(column):
    """Returns the mean, over true cells, of the precision among the cells that score as high or higher."""
    return mean(
        sum(target for q, target in column if q >= threshold) / sum(q >= threshold for q, _ in column)
        for threshold, is_true in column
        if is_true
    )


def auc(column):
    """Returns the share of pairs of a true and a false cell whose true one scores higher, ties as half."""
    positives, negatives = ([q for q, is_true in column if is_true is kind] for kind in (True, False))
    return mean((a > b) + (a == b) / 2 for a, b in itertools.product(positives, negatives))


def of_row(name, q, y, threshold):
    """Returns the value of one row, from the probabilities and truths of its known labels in their order."""
    order = sorted(range(len(q)), key=lambda label: (-q[label], label))
    n = sum(y)
    if name.startswith("precision_at_"):
        k = int(name.rpartition("_")[2])
        return sum(y[label] for label in order[:k]) / k if len(q) >= k else math.nan
    if name == "subset_accuracy":
        return float([a >= threshold for a in q] == y) if q else math.nan
    if not n or (len(q) < 2 and name != "r_precision"):
        return math.nan
    if name == "r_precision":
        return sum(y[label] for label in order[:n]) / n
    positives, negatives = (
        [a for a, is_true in zip(q, y, strict=True) if is_true is kind] for kind in (True, False)
    )
    if name == "coverage_error":
        return float(sum(a >= min(positives) for a in q))
    if name == "ranking_loss":
        return divide(
            sum(b >= a for a, b in itertools.product(positives, negatives)), len(positives) * len(negatives)
        )
    assert name == "ndcg"
    gain = 0.0
    for a in positives:  # equally probable labels share the discounts of their ranks
        n_higher, n_tied = sum(b > a for b in q), sum(b == a for b in q)
        gain += math.fsum(1 / math.log2(2 + n_higher + rank) for rank in range(n_tied)) / n_tied
    return gain / math.fsum(1 / math.log2(2 + rank) for rank in range(n))


def calibration_error(cells):
    """Returns the difference of mean probability and share of true cells in 15 bins, weighted by bin size."""
    total = 0.0
    for m in range(1, 16):
        bin_cells = [
            (q, is_true) for q, is_true in cells if (q > (m - 1) / 15 or m == 1) and (q <= m / 15 or m == 15)
        ]
        if bin_cells:
            means = [math.fsum(column) / len(bin_cells) for column in zip(*bin_cells, strict=True)]
            total += len(bin_cells) / len(cells) * abs(means[1] - means[0])
    return total


def of_labels(name, p, y, known, threshold=0.5):
    """Returns a metric of label sets."""
    if name.startswith("hierarchical_"):
        predicted = [{label for label, q in enumerate(row) if q >= threshold} for row in p]
        return hierarchical(name, predicted, y)
    columns = columns_of(p, y, known)
    band, _, metric = name.partition("_")
    if band in BANDS:
        band_columns = [column for label, column in enumerate(columns) if label % 3 == BANDS.index(band)]
        present_columns = [column for column in band_columns if any(is_true for _, is_true in column)]
        if not present_columns:
            return math.nan
        return of_counts(metric, present_columns if metric == "macro_f1" else band_columns, threshold)
    if name in COUNTED:
        return of_counts(name, columns, threshold)
    if name == "calibration_error":
        return calibration_error([cell for column in columns for cell in column])
    if name == "micro_auc":
        return auc([cell for column in columns for cell in column])
    if name in ("map", "labels_scored", "macro_auc", "labels_scored_auc"):
        values = list(map(auc if name.endswith("auc") else average_precision, columns))
        return float(sum(not math.isnan(v) for v in values)) if name.startswith("labels") else mean(values)
    rows = [(q, labels, sorted(known_labels)) for q, labels, known_labels in zip(p, y, known, strict=True)]
    return mean(
        of_row(name, [q[n] for n in known_labels], [n in y for n in known_labels], threshold)
        for q, y, known_labels in rows
    )


def of_classes(name, p, targets):
    """Returns a metric of classes."""
    pairs = list(zip([first_highest(q) for q in p], targets, strict=True))
    band, _, metric = name.partition("_")
    if band in BANDS:
        band_classes = [c for c in range(len(p[0])) if c % 3 == BANDS.index(band)]
        if metric == "accuracy":
            return mean(a == y for a, y in pairs if y in band_classes)
        present_classes = [c for c in band_classes if c in targets]
        if metric == "macro_f1":
            return mean(f1_of_class(pairs, c) for c in present_classes)
        n_right, size = map(sum, zip(*(class_counts(pairs, c) for c in band_classes), strict=True))
        return 2 * n_right / size if present_classes else math.nan
    if name == "accuracy":
        return mean(a == y for a, y in pairs)
    if name == "calibration_error":
        return calibration_error([(max(q), a == y) for q, (a, y) in zip(p, pairs, strict=True)])
    if name == "macro_f1":
        return mean(f1_of_class(pairs, c) for c in set(targets))
    if name == "macro_f1_predicted":
        return mean(f1_of_class(pairs, c) for c in {c for pair in pairs for c in pair})
    if name == "lca_distance":
        return mean(levels_up(a, y) for a, y in pairs)
    if name == "level_consistency":
        return mean([first_highest(level) for level in level_sums(q)] == path(first_highest(q)) for q in p)
    if name == "path_accuracy":
        return mean(best_path(q) == y for q, y in zip(p, targets, strict=True))
    return hierarchical(name, [{a} for a, _ in pairs], [{y} for _, y in pairs])


def f1_of_class(pairs, c):
    n_right, size = class_counts(pairs, c)
    return 2 * n_right / size


def class_counts(pairs, c):
    return sum(a == y == c for a, y in pairs), sum(a == c for a, _ in pairs) + sum(y == c for _, y in pairs)


def path(label):
    return FACTS.path[label].tolist()


def hierarchical(name, predicted, true):
    def above(labels):
        return {(level, node) for label in labels for level, node in enumerate(path(label))}

    pairs = [(above(a), above(y)) for a, y in zip(predicted, true, strict=True)]
    n_right = sum(len(a & y) for a, y in pairs)
    sizes = [sum(len(a) for a, _ in pairs), sum(len(y) for _, y in pairs)]
    precision, recall = (divide(n_right, size) for size in sizes)
    f1 = divide(2 * precision * recall, precision + recall)
    return {"precision": precision, "recall": recall, "f1": f1}[name.removeprefix("hierarchical_")]


def levels_up(a, y):
    shared_levels = [level for level in range(3) if path(a)[level] == path(y)[level]]
    return 2 - max(shared_levels, default=-1)


def level_sums(q):
    """Returns the probability of each class of each level."""
    paths = [path(c) for c in range(len(q))]
    nodes = [sorted({class_path[level] for class_path in paths}) for level in range(3)]
    return [
        [
            sum(q[c] for c, class_path in enumerate(paths) if class_path[level] == node)
            for node in nodes[level]
        ]
        for level in range(3)
    ]


def best_path(q):
    logs = [[math.log(v) if v else -math.inf for v in level] for level in level_sums(q)]
    return first_highest([sum(logs[n][path(c)[n]] for n in range(3)) for c in range(len(q))])
