"""Tests of the nearest neighbour and the probe from few rows, against loops over scikit-learn."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, f1_score

from mlcl.evaluation import FewShot
from mlcl.labels import LabelRows


@pytest.fixture
def scene():
    """Returns 60 rows to learn from and 20 queries, of 3 classes of which two overlap."""
    rng = np.random.default_rng(0)
    y = np.arange(80) % 3
    x = np.array([[4, 0], [0, 4], [0, 5]])[y] + rng.normal(size=(80, 2))
    return torch.from_numpy(x.astype(np.float32)), torch.from_numpy(y)


def unit(x):
    return x.double().numpy() / np.linalg.norm(x.double().numpy(), axis=1, keepdims=True)


def test_the_nearest_row_gives_its_class(scene):
    x, y = scene
    metrics = FewShot(x[:60], y[:60], "single", 3).nearest(x[60:], y[60:])
    predicted = [int(y[:60][((x[:60] - q) ** 2).sum(1).argmin()]) for q in x[60:]]
    assert metrics["accuracy"] == pytest.approx(accuracy_score(y[60:], predicted), abs=1e-12)
    assert metrics["macro_f1"] == pytest.approx(f1_score(y[60:], predicted, average="macro"), abs=1e-12)
    assert 0.5 < metrics["accuracy"] < 1


def test_the_probe_is_the_mean_over_draws_of_a_regression(scene):
    x, y = scene
    rows = FewShot(x[:60], y[:60], "single", 3)
    metrics = rows.probe(x[60:], y[60:], shots=5, draws=4, seed=7)
    values = []
    for draw in range(4):
        rng = np.random.default_rng([7, draw])
        shot_rows = sorted(row for c in range(3) for row in rng.permutation(np.flatnonzero(y[:60] == c))[:5])
        assert np.bincount(y[shot_rows]).tolist() == [5, 5, 5]
        model = LogisticRegression(max_iter=1000).fit(unit(x[shot_rows]), y[shot_rows])
        values.append(accuracy_score(y[60:], model.predict(unit(x[60:]))))
    assert metrics["accuracy"] == pytest.approx(np.mean(values), abs=1e-12)
    assert metrics == rows.probe(x[60:], y[60:], shots=5, draws=4, seed=7)
    assert metrics != rows.probe(x[60:], y[60:], shots=2, draws=4, seed=7)


def test_several_labels_have_a_regression_each(scene):
    x, y = scene
    sets = LabelRows.from_lists([[int(c)] if row % 4 else sorted({int(c), 0}) for row, c in enumerate(y)], 3)
    index = torch.arange(80)
    rows = FewShot(x[:60], sets.take(index[:60]), "multi_label", 3)
    metrics = rows.probe(x[60:], sets.take(index[60:]), shots=3, draws=2, seed=1)
    y_true, values = sets.dense().numpy().astype(int), []
    for draw in range(2):
        rng = np.random.default_rng([1, draw])
        shot_rows = sorted({r for c in range(3) for r in rng.permutation(np.flatnonzero(y_true[:60, c]))[:3]})
        p = np.stack(
            [
                LogisticRegression(max_iter=1000, class_weight="balanced")
                .fit(unit(x[shot_rows]), y_true[shot_rows, c])
                .predict_proba(unit(x[60:]))[:, 1]
                for c in range(3)
            ],
            axis=1,
        )
        predicted = (p >= 0.5) | (p == p.max(1, keepdims=True))
        values.append(f1_score(y_true[60:], predicted, average="micro"))
    assert metrics["micro_f1"] == pytest.approx(np.mean(values), abs=1e-12)
    nearest = rows.nearest(x[60:], sets.take(index[60:]))
    nearest_labels = [y_true[:60][((x[:60] - q) ** 2).sum(1).argmin()] for q in x[60:]]
    assert nearest["macro_f1"] == pytest.approx(
        f1_score(y_true[60:], nearest_labels, average="macro"), abs=1e-12
    )


@pytest.mark.filterwarnings("error")
def test_a_label_that_all_drawn_rows_have_is_always_predicted(scene):
    x, y = scene
    sets = LabelRows.from_lists([sorted({int(c), 0}) for c in y], 3)
    rows = FewShot(x, sets, "multi_label", 3)
    metrics = rows.probe(x, sets, shots=2, draws=2, seed=0)
    assert 0 < metrics["micro_f1"] <= 1


def test_rows_without_a_target_are_refused(scene):
    x, y = scene
    with pytest.raises(ValueError, match="80 embeddings for 60 targets"):
        FewShot(x, y[:60], "single", 3)


@pytest.mark.parametrize(("shots", "draws"), [(0, 1), (1, 0)])
def test_a_probe_needs_a_shot_and_a_draw(scene, shots, draws):
    x, y = scene
    with pytest.raises(ValueError, match=f"must be 1 or more; found: {shots} and {draws}"):
        FewShot(x, y, "single", 3).probe(x, y, shots=shots, draws=draws, seed=0)


@pytest.mark.parametrize("task", ["single", "multi_label"])
def test_a_probe_needs_two_classes_or_labels(scene, task):
    x, _ = scene
    y = torch.zeros(len(x), dtype=torch.long)
    targets = y if task == "single" else LabelRows.from_classes(y, 1)
    with pytest.raises(ValueError, match="two classes or labels"):
        FewShot(x, targets, task, 1).probe(x, targets, shots=1, draws=1, seed=0)
