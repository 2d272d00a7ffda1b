"""The metrics of a split's embeddings."""

from __future__ import annotations

from collections.abc import Collection

from torch import Tensor

from mlcl.evaluation.embedded_rows import EmbeddedRows
from mlcl.evaluation.metric import METRICS, EmbeddingMetric
from mlcl.labels import LabelRows


def embedding_metrics(groups: Collection[str]) -> list[EmbeddingMetric]:
    """The metrics of these groups that are of embeddings."""
    return [each for each in METRICS.values() if isinstance(each, EmbeddingMetric) and each.group in groups]


def evaluate_embeddings(embeddings: Tensor, labels: LabelRows, groups: Collection[str]) -> dict[str, float]:
    """Their values for embeddings (N, D) float32 with the label sets of the N rows, by name.

    Rows without a label are left out. Where others have unknown entries, metrics that are not `masked` are
    NaN. Raises ValueError for embeddings that are not finite.
    """
    wanted = embedding_metrics(groups)
    rows = EmbeddedRows.of(embeddings, labels)
    whole = rows.labels.known() is None
    return {
        metric.name: metric.of_rows(rows) if whole or metric.masked else float("nan") for metric in wanted
    }
