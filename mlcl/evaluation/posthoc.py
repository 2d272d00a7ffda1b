"""Every (k, lambda, temperature) of the neighbours, scored from one retrieval.

Shapes: S splits, K values of k, G lambdas, T temperatures.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from torch import Tensor

from mlcl.evaluation.decision import Decision
from mlcl.evaluation.scores import Scoring, evaluate
from mlcl.evaluation.setting_values import QueryRows, Question, Setting
from mlcl.evaluation.tasks import Array, Targets, Task
from mlcl.evaluation.vote_cells import Grid

logger = logging.getLogger(__name__)

FINALISTS = 3


@dataclass(frozen=True)
class PosthocResult:
    """The best setting and its decision, all metrics with it, and the searched metric at every setting.

    `table` is a structured array, ordered by its fields `k`, `lambda`, `temperature`; the last is the metric.
    `held_out` has the metric of other rows in the same order, if there were any.
    """

    best: Setting
    decision: Decision
    metrics: dict[str, float]
    table: Array
    held_out: Array | None


def search(
    rows: QueryRows,
    train_labels: Targets,
    *,
    task: Task,
    ks: Sequence[int],
    lambdas: Sequence[float],
    temperatures: Sequence[float],
    scoring: Scoring,
    held_out: QueryRows | None = None,
) -> PosthocResult:
    """The best of all settings for one metric of `rows` with its decision, and all settings.

    Each value equals `evaluate` of `blend` of `knn_probabilities` at that setting. Metrics of `counts` or
    `hits` (F1s, Hamming loss, accuracies) take one pass for each k and temperature, whatever the number of
    lambdas; other metrics are evaluated setting by setting. Of equal settings the one with the
    smallest k, then lambda, then temperature is best. A k beyond the neighbours at hand becomes their number,
    which is logged.

    Where labels are not predicted by a given threshold, a metric of `counts` is instead that of the best one
    threshold on probabilities that are rounded, see `quantised_sweep`. For the `FINALISTS` best pairs of k
    and temperature, each with its best lambda, and for the model alone (lambda 0, if the grid has it) the
    decision is then chosen exactly, and the best one wins. With `per_label` these pairs are compared under
    one threshold, and the best of them and the model alone under those by label.

    `held_out` rows choose nothing; they are scored with the thresholds of `rows`.

    Raises ValueError for an empty or invalid grid and where no setting has a value, and UserError for a
    metric that the task does not have.
    """
    grid = _grid(rows.neighbours.index.shape[1], ks, lambdas, temperatures)
    splits = [rows] if held_out is None else [rows, held_out]
    question = Question(splits, train_labels, task, scoring).known()
    value_XSG = np.array(list(question.values(grid)))
    value_TKSG = value_XSG.reshape(len(grid.temperatures), len(grid.ks), len(splits), len(grid.lambda_G))
    value_SKGT = value_TKSG.transpose(2, 1, 3, 0)
    sign = 1 if scoring.mode == "max" else -1
    signed_KGT = np.where(np.isnan(value_SKGT[0]), -np.inf, sign * value_SKGT[0])
    if not np.isfinite(signed_KGT).any():
        raise ValueError(f"{scoring.metric} has no value at any setting")
    if question.is_rounded:
        settings = _finalists(question, grid, signed_KGT)
    else:
        settings = [_setting(grid, int(signed_KGT.argmax()))]
    best = max((_decided(question, scoring, setting) for setting in settings), key=lambda each: each.value)
    known = question.splits[0]
    metrics = evaluate(
        task, best.probabilities, known.targets, best.decision, scoring.aspects, facts=known.facts
    )
    tested = None if held_out is None else value_SKGT[1].reshape(-1)
    return PosthocResult(
        best.setting, best.decision, metrics, _table(grid, scoring.metric, value_SKGT[0]), tested
    )


def _grid(largest: int, ks: Sequence[int], lambdas: Sequence[float], temperatures: Sequence[float]) -> Grid:
    kept = sorted({min(k, largest) for k in ks})
    if max(ks, default=0) > largest:
        logger.warning("k up to %d instead of %d: there are no more neighbours", largest, max(ks))
    lambda_G = np.unique(np.asarray(lambdas, dtype=np.float64))
    if not kept or not len(lambda_G) or kept[0] < 1 or lambda_G[0] < 0 or lambda_G[-1] > 1:
        raise ValueError(f"the grid needs k of at least 1 and lambda from 0 to 1: {ks}, {lambdas}")
    return Grid(kept, lambda_G, sorted(set(temperatures)))


def _setting(grid: Grid, at: int) -> Setting:
    """The setting at a place of values (K, G, T)."""
    k, lambda_, t = np.unravel_index(at, (len(grid.ks), len(grid.lambda_G), len(grid.temperatures)))
    return Setting(grid.ks[k], float(grid.lambda_G[lambda_]), float(grid.temperatures[t]))


@dataclass(frozen=True)
class _Decided:
    """A setting with its decision, and the metric, signed so that more is better."""

    setting: Setting
    probabilities: Tensor
    decision: Decision
    value: float


def _decided(question: Question, scoring: Scoring, setting: Setting) -> _Decided:
    rows, name = question.splits[0], scoring.metric
    mixed = question.blended(rows, setting)
    decision = scoring.decide(question.task, mixed, rows.targets)
    found = evaluate(question.task, mixed, rows.targets, decision, scoring.aspects, [name], rows.facts)
    value = found[name]
    return _Decided(setting, mixed, decision, value if scoring.mode == "max" else -value)


def _finalists(question: Question, grid: Grid, signed_KGT: Array) -> list[Setting]:
    """The settings whose decisions are compared exactly; the model alone, then the smallest k first."""
    best_KT, value_KT = signed_KGT.argmax(axis=1), signed_KGT.max(axis=1)
    pairs = np.argsort(-value_KT, axis=None, kind="stable")[:FINALISTS]
    k, t = np.divmod(np.sort(pairs), len(grid.temperatures))
    places = np.ravel_multi_index((k, best_KT[k, t], t), signed_KGT.shape)
    settings = [_setting(grid, int(at)) for at in places]
    if question.scoring.threshold == "per_label":
        one = replace(question.scoring, threshold="global")
        settings = [max(settings, key=lambda setting: _decided(question, one, setting).value)]
    alone = [_setting(grid, 0)] if grid.lambda_G[0] == 0 else []
    return [*alone, *settings]


def _table(grid: Grid, metric: str, value_KGT: Array) -> Array:
    fields = [("k", np.int64), ("lambda", np.float64), ("temperature", np.float64), (metric, np.float64)]
    table = np.empty(value_KGT.size, dtype=fields)
    axes = np.meshgrid(grid.ks, grid.lambda_G, grid.temperatures, indexing="ij")
    for (name, _), column in zip(fields, [*axes, value_KGT], strict=True):
        table[name] = column.reshape(-1)
    return table
