"""Tests that every registered metric equals a loop in plain Python."""

from evaluation.metric_loops import of_classes, of_labels

from mlcl.evaluation import METRICS
from mlcl.testing.metrics import MetricTestCase


class TestEveryMetric(MetricTestCase):
    names = tuple(METRICS)

    def loop(self, name, probabilities, targets, threshold):
        if isinstance(targets[0], int):
            return of_classes(name, probabilities, targets)
        known_labels = [set(range(len(p))) for p in probabilities]
        return of_labels(name, probabilities, targets, known_labels, threshold)
