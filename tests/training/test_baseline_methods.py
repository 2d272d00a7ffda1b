"""Tests of each baseline against scikit-learn, class by class, and against slow loops."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

from mlcl.labels import LabelRows
from mlcl.training.baselines import BASELINES, Fitted, Problem
from mlcl.training.baselines.baseline import best_of
from mlcl.training.baselines.jobs import join_features
from mlcl.training.baselines.linear import DenseLogistic
from mlcl.training.baselines.methods.nearest_neighbours import KS, neighbours

TASKS = ("single", "multi_label", "aspects")
N, M, F, C, A = 60, 20, 12, 4, 3


def rows(count, seed, *, sparse):
    values = np.random.default_rng(seed).normal(size=(count, F)).astype(np.float32)
    values[np.abs(values) < 0.7] = 0
    return csr_array(values) if sparse else values


def targets(task):
    """Returns targets that follow from the first features; the last class or label never occurs."""
    x = rows(N, 0, sparse=False)
    if task == "multi_label":
        has_label = x[:, :C] > 0.5
        has_label[:, -1] = False
        return LabelRows.from_dense(torch.from_numpy(has_label))
    class_NA = torch.from_numpy(np.stack([x[:, a : a + C - 1].argmax(1) for a in range(A)], axis=1))
    class_NA[::7] = -1
    return class_NA if task == "aspects" else class_NA[:, 0]


def problem(task, *, sparse=False, score=lambda _: 0.0):
    x, v = rows(N, 0, sparse=sparse), rows(M, 1, sparse=sparse)
    return Problem(task, C, x, targets(task), v, score)


def sparse_for(name):
    return "tfidf" in BASELINES[name].reads


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize(
    "name",
    [
        name
        for name, baseline in BASELINES.items()
        if name.startswith(("maj", "tfidf", "text", "enc", "words")) and not baseline.hierarchical
    ],
)
def test_probabilities_have_the_shape_of_the_task(name, task):
    data = problem(task, sparse=sparse_for(name))
    fitted = BASELINES[name].fit(data)
    p = fitted.probabilities(data.validation)
    assert p.dtype == torch.float32
    assert p.shape == {"single": (M, C), "multi_label": (M, C), "aspects": (M, A, C)}[task]
    assert ((p >= 0) & (p <= 1)).all()
    if task != "multi_label":
        torch.testing.assert_close(p.sum(-1), torch.ones(p.shape[:-1]))
    if name.endswith("logreg") or name == "majority":
        assert float(p[..., -1].max()) < 1e-2  # a class without a row


@pytest.mark.parametrize("task", TASKS)
def test_the_baselines_learn(task):
    def score(p):
        v = rows(M, 1, sparse=False)
        if task == "multi_label":
            return float(((p[:, : C - 1] >= 0.5).numpy() == (v[:, : C - 1] > 0.5)).mean())
        p_first = p[:, 0] if task == "aspects" else p
        return float((p_first.argmax(1).numpy() == v[:, : C - 1].argmax(1)).mean())

    for name in ("tfidf_svm", "tfidf_logreg", "tfidf_logreg_balanced", "encoder_logreg"):
        data = problem(task, sparse=sparse_for(name), score=score)
        chance = score(BASELINES["majority"].fit(data).probabilities(data.validation))
        accuracy = score(BASELINES[name].fit(data).probabilities(data.validation))
        assert 1 - accuracy < 0.7 * (1 - chance), name


@pytest.mark.parametrize("task", TASKS)
def test_svm_is_one_machine_a_column(task):
    data = problem(task, sparse=True, score=lambda _: 0.0)
    fitted = BASELINES["tfidf_svm"].fit(data)
    assert fitted.chosen == {"C": 0.1}
    y = data.targets.dense().numpy() if task == "multi_label" else data.targets.reshape(N, -1).numpy()
    score = np.empty((M, y.shape[1] if task == "multi_label" else y.shape[1] * C))
    for column in range(score.shape[1]):
        aspect, class_index = divmod(column, C)
        known_rows = np.arange(N) if task == "multi_label" else np.flatnonzero(y[:, aspect] >= 0)
        is_positive = y[:, column] > 0 if task == "multi_label" else y[known_rows, aspect] == class_index
        if not is_positive.any():
            score[:, column] = -20
            continue
        x_train, x_validation = (x.toarray().astype(float) for x in (data.rows[known_rows], data.validation))
        machine = LinearSVC(C=0.1, tol=0.1, random_state=0).fit(x_train, is_positive)
        score[:, column] = machine.decision_function(x_validation)
    if task == "multi_label":
        expected = 1 / (1 + np.exp(-score))
    else:
        exp_score = np.exp(score.reshape(M, -1, C))
        expected = exp_score / exp_score.sum(-1, keepdims=True)
    actual = fitted.probabilities(data.validation).numpy().reshape(expected.shape)
    np.testing.assert_allclose(actual, expected, atol=1e-5)


def test_neighbours_of_sparse_and_dense_rows_are_those_of_a_loop():
    dense_rows, queries = rows(N, 0, sparse=False), rows(M, 1, sparse=False)
    unit_rows, unit_queries = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (dense_rows, queries))
    distance = np.array([[np.sqrt(((q - x) ** 2).sum()) for x in unit_rows] for q in unit_queries])
    order = distance.argsort(1, kind="stable")[:, :5]
    for x, q in ((dense_rows, queries), (csr_array(dense_rows), csr_array(queries))):
        nearest = neighbours(x, q, 5)
        assert (nearest.index.numpy() == order).all()
        np.testing.assert_allclose(nearest.distance, np.take_along_axis(distance, order, 1), atol=1e-5)
        assert neighbours(x[:3], q, max(KS)).index.shape == (M, 3)  # only three rows exist


def test_the_majority_is_the_share_of_the_rows():
    data = problem("multi_label")
    p = BASELINES["majority"].fit(data).probabilities(data.validation)
    np.testing.assert_allclose(p[0], data.targets.dense().mean(0))
    assert (p == p[0]).all()


def test_the_search_ends_with_the_first_value_that_is_worse():
    values = []

    def fit(value):
        values.append(value)
        return Fitted(lambda _: torch.tensor(-abs(value - 3)))

    fitted = best_of(problem("single", score=float), [1.0, 3.0, 5.0, 7.0], "C", fit)
    assert fitted.chosen == {"C": 3.0}
    assert values == [1.0, 3.0, 5.0]


def test_a_stop_ends_a_fit():
    def stop():
        raise KeyboardInterrupt

    for name in ("tfidf_svm", "encoder_logreg", "tfidf_knn"):
        data = problem("multi_label", sparse=sparse_for(name))
        with pytest.raises(KeyboardInterrupt):
            BASELINES[name].fit(Problem(**{**vars(data), "check_stop": stop}))


def unknown_problem(*, sparse):
    """Returns a problem of which a fifth of the entries and the last label are unknown, and a known mask."""
    data = problem("multi_label", sparse=sparse)
    known_NC = torch.rand(N, C, generator=torch.Generator().manual_seed(0)) >= 0.2
    known_NC[:, -1] = False
    rows = LabelRows.from_dense((data.targets.dense() > 0) & known_NC)
    return replace(data, targets=replace(rows, unknown=LabelRows.from_dense(~known_NC))), known_NC.numpy()


@pytest.mark.parametrize("name", ["tfidf_svm", "tfidf_logreg", "majority"])
def test_a_label_is_fitted_to_the_rows_that_tell_it(name):
    data, known_NC = unknown_problem(sparse=sparse_for(name))
    actual = BASELINES[name].fit(data).probabilities(data.validation).numpy()
    labels = data.targets.dense().numpy()
    for label in range(C - 1):
        rows_n = np.flatnonzero(known_NC[:, label])
        label_problem = replace(
            data,
            n_classes=1,
            rows=data.rows[rows_n],
            targets=LabelRows.from_dense(torch.from_numpy(labels[rows_n, label : label + 1])),
        )
        expected = BASELINES[name].fit(label_problem).probabilities(data.validation).numpy()
        np.testing.assert_allclose(actual[:, label], expected[:, 0], atol=5e-3)


@pytest.mark.parametrize("task", [*TASKS, "unknown entries"])
def test_dense_logistic_regression_is_that_of_scikit_learn(task):
    if task == "unknown entries":
        data, known_NC = unknown_problem(sparse=False)
    else:
        data, known_NC = problem(task), np.ones((N, C), bool)
    x_train, x_validation = ((x - data.rows.mean(0)) / data.rows.std(0) for x in (data.rows, data.validation))
    model = DenseLogistic.of(data)
    for value in (0.01, 1.0):  # the second fit begins where the first ended
        actual = model.fit(value).probabilities(data.validation).numpy()
    if data.task == "multi_label":
        y_true, tolerance = data.targets.dense().numpy(), 5e-3
        columns = [
            (known_NC[:, c], y_true[:, c], np.stack([1 - actual[:, c], actual[:, c]], 1))
            for c in range(C - 1)
        ]
    else:
        y, tolerance = data.targets.reshape(N, -1).numpy(), 2e-2
        p = actual.reshape(M, -1, C)[..., : C - 1]
        columns = [(y[:, aspect] >= 0, y[:, aspect], p[:, aspect]) for aspect in range(y.shape[1])]
    for n, class_N, p in columns:
        reference = LogisticRegression(C=1.0, tol=1e-8, max_iter=1000).fit(x_train[n], class_N[n])
        np.testing.assert_allclose(p, reference.predict_proba(x_validation), atol=tolerance)


def test_constant_features_have_scale_1_and_small_ones_their_own():
    # In float32, the mean and the deviation of many 0.1 are not exact.
    x_NF = np.full((20_000, 4), 0.1, np.float32)
    x_NF[:, 1], x_NF[::2, 2], x_NF[::2, 3] = 0, np.nextafter(np.float32(0.1), np.float32(1)), 1e-8
    x_NF[1::2, 3] = 3e-8
    data = replace(problem("single"), rows=x_NF, targets=torch.arange(len(x_NF)) % 2)
    model = DenseLogistic.of(data)
    np.testing.assert_allclose(model.scale, [1, 1, 1, 1e-8], rtol=1e-5)
    assert model.x[:, :3].abs().max() < 1e-6


@pytest.mark.parametrize("name", ["encoder_logreg", "words_logreg"])
def test_rows_of_unit_length_are_read_as_they_are(name):
    """Tests that C is searched from .1 to 100, and that the model is scikit-learn's without scaling."""
    data = problem("single", score=lambda p: -float(p.square().sum()))
    unit_data = replace(data, rows=_unit(data.rows), validation=_unit(data.validation))
    scores = []
    fitted = BASELINES[name].fit(replace(unit_data, score=lambda p: scores.append(0) or float(len(scores))))
    assert fitted.chosen == {"C": 100.0}
    assert len(scores) == 4  # C = .1, 1, 10, 100
    known_rows = data.targets >= 0
    reference = LogisticRegression(C=100.0, tol=1e-8, max_iter=5000).fit(
        unit_data.rows[known_rows], data.targets[known_rows]
    )
    actual = fitted.probabilities(unit_data.validation)[:, : C - 1]
    np.testing.assert_allclose(actual, reference.predict_proba(unit_data.validation), atol=2e-2)


def test_features_are_joined_and_those_of_an_encoder_get_unit_length():
    x = rows(5, 3, sparse=False)
    sparse = csr_array(rows(5, 4, sparse=False))
    assert join_features({"tfidf": sparse}, 5) is sparse
    assert join_features({"column": x}, 5) is x
    assert join_features({}, 5).shape == (5, 0)
    np.testing.assert_allclose(join_features({"encoder": x}, 5), _unit(x), rtol=1e-6)
    features = join_features({"tfidf": sparse, "characters": 2 * sparse, "encoder": x}, 5)
    np.testing.assert_allclose(
        features.toarray(), np.hstack([sparse.toarray(), 2 * sparse.toarray(), _unit(x)]), rtol=1e-6
    )
    assert features.dtype == np.float32


def _unit(x):
    return x / np.linalg.norm(x, axis=1, keepdims=True)


@pytest.mark.parametrize("name", ["tfidf_svm", "encoder_logreg", "majority"])
def test_rows_that_tell_all_are_fitted_as_before(name):
    data = problem("multi_label", sparse=sparse_for(name))
    known_data = replace(data, targets=replace(data.targets, unknown=LabelRows.from_lists([[]] * N, C)))
    predictions = [
        BASELINES[name].fit(fit_data).probabilities(data.validation) for fit_data in (data, known_data)
    ]
    assert torch.equal(*predictions)
