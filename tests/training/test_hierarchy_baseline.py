"""Tests of the baseline of a hierarchy against a loop over parents, and of the jobs that it fits."""

import math
from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest
import torch
from builders import text_dataset, tiny_job, tree_dataset
from scipy.sparse import csr_array
from sklearn.linear_model import LogisticRegression
from stored_runs import TASKS, run

from mlcl.data import Dataset
from mlcl.errors import UserError
from mlcl.training.baselines import BASELINES, Problem
from mlcl.training.baselines.jobs import baseline_job, fitting_baselines, unfit_reason
from mlcl.training.baselines.linear import NEVER

BASELINE = BASELINES["tfidf_hierarchy"]
PATHS = np.array([[0, 0, 0], [0, 0, 1], [0, 1, 2], [1, 0, 3], [1, 0, 4], [1, 0, 5], [2, 2, 6]])
"""The path of each class. Two nodes of the second level share a number; two nodes have one child."""
EMPTY = 5
"""The class without a training row."""
N, M, F = 90, 20, 10


def problem(score=lambda _: 0.0):
    rng = np.random.default_rng(0)
    x, v = (
        rng.normal(size=(count, F)).astype(np.float32) * (rng.random((count, F)) < 0.6) for count in (N, M)
    )
    target_N = x[:, : len(PATHS)].argmax(1)
    target_N[(target_N == EMPTY) | (np.arange(N) % 9 == 0)] = -1
    return Problem(
        "single", len(PATHS), csr_array(x), torch.from_numpy(target_N), csr_array(v), score, path=PATHS
    )


def looped(given, c):
    """Returns probabilities (M, C) by loops over paths, with each child of a node against its siblings."""
    x, v = given.rows.toarray().astype(float), given.validation.toarray().astype(float)
    paths = [tuple(path) for path in PATHS.tolist()]
    targets = given.targets.tolist()
    children = defaultdict(set)
    for path in paths:
        for level in range(3):
            children[path[:level]].add(path[: level + 1])
    p_given_parent = {}
    for prefix, siblings in children.items():
        rows = [n for n, t in enumerate(targets) if t >= 0 and paths[t][: len(prefix)] == prefix]
        scores = {}
        for child in siblings:
            labels = [paths[targets[n]][: len(child)] == child for n in rows]
            if all(labels) or not any(labels):
                scores[child] = np.full(M, NEVER if labels and all(labels) else -NEVER)
                continue
            machine = LogisticRegression(C=c, tol=0.1, solver="liblinear", dual=True, random_state=0)
            scores[child] = machine.fit(x[rows], labels).decision_function(v)
        for m in range(M):
            total = math.fsum(math.exp(score[m]) for score in scores.values())
            for child, score in scores.items():
                p_given_parent[m, child] = math.exp(score[m]) / total
    return np.array(
        [[math.prod(p_given_parent[m, path[: n + 1]] for n in range(3)) for path in paths] for m in range(M)]
    )


def test_a_probability_is_the_product_along_the_path_of_softmaxes_among_siblings():
    data = problem()
    fitted = BASELINE.fit(data)
    assert fitted.chosen == {"C": 1.0}
    p = fitted.probabilities(data.validation)
    assert p.dtype == torch.float32
    np.testing.assert_allclose(p.numpy(), looped(data, 1.0), atol=1e-5)
    torch.testing.assert_close(p.sum(1), torch.ones(M))
    assert float(p[:, EMPTY].max()) < 1e-6
    predict = BASELINE.restore("single", len(PATHS), fitted.tensors)
    assert torch.equal(predict(data.validation), p)


@pytest.mark.filterwarnings("ignore:Liblinear failed to converge")
def test_validation_chooses_c_and_it_learns():
    v = problem().validation.toarray()[:, : len(PATHS)]
    targets = torch.from_numpy(np.where(np.arange(len(PATHS)) == EMPTY, -np.inf, v).argmax(1))
    data = problem(score=lambda p: float((p.argmax(1) == targets).float().mean()))
    fitted = BASELINE.fit(data)
    probabilities = fitted.probabilities(data.validation)
    np.testing.assert_allclose(probabilities.numpy(), looped(data, fitted.chosen["C"]), atol=1e-5)
    assert data.score(probabilities) >= data.score(torch.from_numpy(looped(data, 1.0)))
    majority = BASELINES["majority"].fit(data).probabilities(data.validation)
    assert data.score(probabilities) > data.score(majority) + 0.2


def test_classes_without_parents_are_one_softmax():
    """Tests that classes without parents give the probabilities of `tfidf_logreg`."""
    data = replace(problem(), path=PATHS[:, 2:])
    actual, expected = (
        BASELINES[name].fit(data).probabilities(data.validation)
        for name in ("tfidf_hierarchy", "tfidf_logreg")
    )
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-6)


def test_it_fits_single_classes_with_coarser_levels_alone(tmp_path):
    folder = text_dataset(tmp_path / "data")
    job, info = tiny_job(folder), Dataset.open(folder).info
    assert "tfidf_hierarchy" in fitting_baselines(job, info)[0]
    assert "tfidf_hierarchy" not in fitting_baselines(job, info, in_sweeps=True)[0]
    metrics = run(baseline_job(job, "tfidf_hierarchy"), tmp_path, tmp_path / "run")[1]
    assert metrics["test/accuracy"] > 0.9
    tree = tree_dataset(tmp_path / "tree")
    multi_label = TASKS["multi_label"]
    for data, overrides in ((folder, multi_label), (folder, TASKS["aspects"]), (tree, multi_label)):
        other_job, other_info = tiny_job(data, *overrides), Dataset.open(data).info
        assert "no coarser levels of single classes" in unfit_reason(BASELINE, other_job, other_info)
        fitting, reasons = fitting_baselines(other_job, other_info)
        assert "tfidf_hierarchy" not in [*fitting, *reasons]
    coarse = tiny_job(folder, "objective.classifier.labels=topic")
    assert unfit_reason(BASELINE, coarse, info) == "topic has no coarser levels of single classes"
    with pytest.raises(UserError, match="no coarser levels"):
        run(baseline_job(coarse, "tfidf_hierarchy"), tmp_path, tmp_path / "coarse")
    with pytest.raises(ValueError, match="needs the hierarchy"):
        BASELINE.fit(Problem("single", 2, None, torch.zeros(1), None, lambda _: 0.0))
