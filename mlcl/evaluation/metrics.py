"""What a prediction is worth: all metrics of a task from probabilities and targets.

Shapes: N rows, C classes, L labels, A aspects, P true entries.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

import numpy as np
from sklearn.metrics import f1_score
from torch import Tensor

from mlcl.errors import UserError
from mlcl.evaluation.counts import COUNT_METRICS, Counts
from mlcl.evaluation.ranking import micro_auc, position, rank_labels
from mlcl.evaluation.tasks import Array, Targets, Task, array, as_classes, as_rows
from mlcl.labels import LabelRows

PRECISION_AT = (5, 8, 15)
RANKING_METRICS = ("map", "macro_auc", "labels_scored", "labels_scored_auc")
METRIC_NAMES: dict[Task, tuple[str, ...]] = {
    "single": ("accuracy", "macro_f1"),
    "multi_label": (
        *COUNT_METRICS,
        "subset_accuracy",
        *RANKING_METRICS,
        "micro_auc",
        *(f"precision_at_{k}" for k in PRECISION_AT),
    ),
    "aspects": ("accuracy", "macro_f1"),
}
"""Names that `evaluate` gives; `metric_names` adds an aspect's own and drops precisions at more than L."""


def metric_names(
    task: Task, aspects: Sequence[str] | None = None, n_labels: int | None = None
) -> tuple[str, ...]:
    """The metrics of a task, so that a job's choice can be checked before the start."""
    names = METRIC_NAMES[task]
    if task == "aspects":
        return names + tuple(aspect_metric(aspect) for aspect in aspects or ())
    if task == "multi_label" and n_labels is not None:
        return tuple(name for name in names if not _too_many(name, n_labels))
    return names


def aspect_metric(aspect: str) -> str:
    """An aspect's accuracy by name: `accuracy_` and the aspect in lower case, other signs as `_`."""
    return "accuracy_" + re.sub(r"[^a-z0-9]+", "_", aspect.lower()).strip("_")


def evaluate(
    task: Task,
    probabilities: Tensor,
    targets: Targets,
    threshold: float = 0.5,
    aspects: Sequence[str] | None = None,
    only: Collection[str] | None = None,
) -> dict[str, float]:
    """All metrics of a task, or those named in `only`.

    `probabilities` (N, C), (N, L) or (N, A, C), float; `targets` classes (N,), label rows, or classes (N, A),
    where -1 is left out. A label is predicted from `threshold` (as float32) on; of equal classes the lower
    one is. `aspects` names the A aspects, by default their numbers.

    single: `accuracy` (micro-F1 equals it), `macro_f1` (over classes that occur or are predicted).
    multi_label: `micro_f1`, `macro_f1` (mean per-label F1) and `macro_f1_caml` (F1 of macro precision and
    recall), `hamming_loss`, `subset_accuracy`, `micro_auc`, `precision_at_k`, and `map` and `macro_auc` over
    the labels that can be scored, whose numbers are `labels_scored` and `labels_scored_auc` (NaN for none).
    aspects: `accuracy` (mean over aspects), `accuracy_<aspect>`, `macro_f1` (mean over aspects).

    Raises ValueError for probabilities that are not finite, shapes that disagree and targets that are all
    missing, and UserError for an unknown name in `only`.
    """
    p = array(probabilities)
    if len(p) != len(targets) or not len(p):
        raise ValueError(f"{len(p)} rows of probabilities for {len(targets)} of targets")
    if not np.isfinite(p).all():
        raise ValueError("probabilities are not finite")
    _check_names(task, only, aspects, p.shape)
    if task == "multi_label":
        values = _multi_label(p, as_rows(targets), threshold, only)
    elif task == "single":
        values = _single(p, as_classes(targets), only)
    else:
        values = _aspects(p, as_classes(targets), aspects or _numbers(p.shape[1]), only)
    return {name: value for name, value in values.items() if _wanted(only, name)}


def _single(p_NC: Array, target_N: Array, only: Collection[str] | None) -> dict[str, float]:
    known_N = target_N >= 0
    if not known_N.any():
        raise ValueError("no row has a target")
    target, predicted = target_N[known_N], p_NC[known_N].argmax(1)
    values = {"accuracy": float((target == predicted).sum() / len(target))}
    if _wanted(only, "macro_f1"):
        values["macro_f1"] = float(f1_score(target, predicted, average="macro", zero_division=0))
    return values


def _aspects(
    p_NAC: Array, target_NA: Array, aspects: Sequence[str], only: Collection[str] | None
) -> dict[str, float]:
    inner = None if _wanted(only, "macro_f1") else ("accuracy",)
    scored = {
        aspect: _single(p_NAC[:, a], target_NA[:, a], inner)
        for a, aspect in enumerate(aspects)
        if (target_NA[:, a] >= 0).any()
    }
    if not scored:
        raise ValueError("no row has a target")
    names = next(iter(scored.values()))
    means = {name: float(np.mean([values[name] for values in scored.values()])) for name in names}
    return means | {aspect_metric(aspect): values["accuracy"] for aspect, values in scored.items()}


def _multi_label(
    p_NL: Array, targets: LabelRows, threshold: float, only: Collection[str] | None
) -> dict[str, float]:
    if p_NL.shape[1] != targets.width:
        raise ValueError(f"{p_NL.shape[1]} columns of probabilities for {targets.width} labels")
    row_P, label_P = array(targets.row_index()), array(targets.columns)
    values: dict[str, float] = {}
    if _wanted(only, *COUNT_METRICS, "subset_accuracy"):
        values |= _thresholded(p_NL >= np.float32(threshold), row_P, label_P)
    if _wanted(only, *RANKING_METRICS):
        values |= _ranked(p_NL, row_P, label_P)
    if _wanted(only, "micro_auc"):
        values["micro_auc"] = micro_auc(p_NL, row_P, label_P)
    ks = [k for k in PRECISION_AT if k <= p_NL.shape[1] and _wanted(only, f"precision_at_{k}")]
    if ks:
        position_P = position(p_NL, row_P, label_P, max(ks))
        values |= {f"precision_at_{k}": float((position_P < k).sum() / (k * len(p_NL))) for k in ks}
    return values


def _thresholded(predicted_NL: Array, row_P: Array, label_P: Array) -> dict[str, float]:
    n, n_labels = predicted_NL.shape
    right_P = predicted_NL[row_P, label_P]
    counts = Counts(
        right=np.bincount(label_P[right_P], minlength=n_labels),
        predicted=predicted_NL.sum(0),
        true=np.bincount(label_P, minlength=n_labels),
        cells=n * n_labels,
    )
    missed_N = np.bincount(row_P[~right_P], minlength=n)
    exact_N = (missed_N == 0) & (predicted_NL.sum(1) == np.bincount(row_P[right_P], minlength=n))
    values = {name: float(metric(counts)) for name, metric in COUNT_METRICS.items()}
    return values | {"subset_accuracy": float(exact_N.mean())}


def _ranked(p_NL: Array, row_P: Array, label_P: Array) -> dict[str, float]:
    ranking = rank_labels(p_NL, row_P, label_P)
    return {
        "map": _known_mean(ranking.average_precision),
        "macro_auc": _known_mean(ranking.auc),
        "labels_scored": float(np.isfinite(ranking.average_precision).sum()),
        "labels_scored_auc": float(np.isfinite(ranking.auc).sum()),
    }


def _known_mean(values_L: Array) -> float:
    known = values_L[np.isfinite(values_L)]
    return float(known.mean()) if len(known) else float("nan")


def _wanted(only: Collection[str] | None, *names: str) -> bool:
    return only is None or any(name in only for name in names)


def _check_names(
    task: Task, only: Collection[str] | None, aspects: Sequence[str] | None, shape: tuple[int, ...]
) -> None:
    if task == "aspects" and aspects is not None and len(aspects) != shape[1]:
        raise ValueError(f"{len(aspects)} names for {shape[1]} aspects")
    allowed = metric_names(task, aspects or (_numbers(shape[1]) if task == "aspects" else None), shape[1])
    unknown = [name for name in only or () if name not in allowed]
    if unknown:
        raise UserError("no such metric for this task", found=unknown, allowed=allowed)


def _numbers(n: int) -> list[str]:
    return [str(i) for i in range(n)]


def _too_many(name: str, n_labels: int) -> bool:
    return name.startswith("precision_at_") and int(name.rpartition("_")[2]) > n_labels
