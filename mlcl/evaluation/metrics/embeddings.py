"""Metrics of embeddings: retrieval of similar rows, and agreement of clusters with classes.

The class of a row is its label set: rows with equal label sets are in one class.

In retrieval each row of a split is a query for the other rows, see `EmbeddedRows.gains`. g_qi is the
relevance of the i-th nearest item of query q, the Jaccard coefficient of the two label sets; g*_qi is the
relevance of the i-th most relevant item. Values are means over the queries that share a label with any other
row, NaN if there is no such query.

k-means makes as many clusters as there are classes, see `EmbeddedRows.clusters`. NMI and ARI are NaN if label
sets have unknown entries, since it is not known whether two such sets are equal.

Shapes: Q queries, K nearest items.
"""

from collections.abc import Callable

import numpy as np

from mlcl.evaluation.embedded_rows import EmbeddedRows
from mlcl.evaluation.metric import EmbeddingMetric
from mlcl.evaluation.tasks import Array


def clustering_metric(name: str, summary: str, function: str) -> EmbeddingMetric:
    """Returns a metric that applies a function of `sklearn.metrics` to classes and clusters.

    The metric is NaN without rows.
    """

    def value(rows: EmbeddedRows) -> float:
        if not len(rows.labels):
            return float("nan")
        from sklearn import metrics  # imported late: most commands do not need it

        return float(getattr(metrics, function)(rows.classes, rows.clusters))

    return EmbeddingMetric(
        name=name,
        summary=f"{summary} of k-means clusters and classes (distinct label sets)",
        source=f"scikit-learn, {function}",
        group="clustering",
        of_rows=value,
    )


def retrieval_metric(
    k: int, kind: str, summary: str, source: str, total: Callable[[Array], Array]
) -> EmbeddingMetric:
    """Returns the metric `retrieval_<kind>_at_<k>`: the mean of total(g_q) / total(g*_q) over queries q.

    `total` combines the relevances (Q, k) of the first k items to one number for each query (Q,).
    """

    def value(rows: EmbeddedRows) -> float:
        found_Q, ideal_Q = (total(gain_QK[:, :k]) for gain_QK in (rows.gains.found, rows.gains.ideal))
        return float((found_Q / ideal_Q).mean()) if len(ideal_Q) else float("nan")

    return EmbeddingMetric(
        name=f"retrieval_{kind}_at_{k}",
        summary=summary,
        source=source,
        group="retrieval",
        masked=True,
        of_rows=value,
    )


def graded_precision(gain_QK: Array) -> Array:
    """Returns A(g) = sum_i g_i (g_1 + ... + g_i) / i for each query (Q,).

    If every row has one label, the relevance is 0 or 1, and A(g) / A(g*) is the average precision at k: the
    sum of the precisions at the ranks of relevant items / min(k, number of relevant items).
    """
    ranks = np.arange(1, gain_QK.shape[1] + 1)
    return np.asarray((gain_QK * gain_QK.cumsum(axis=1) / ranks).sum(axis=1))


def recall_at(k: int) -> EmbeddingMetric:
    """Returns the metric `retrieval_recall_at_<k>`: (g_q1 + ... + g_qk) / (g*_q1 + ... + g*_qk).

    If every row has one label, this is the number of relevant items among the k nearest / min(k, number of
    relevant items).
    """
    summary = f"relevance of the {k} nearest rows, by the Jaccard of label sets, over the best possible"
    source = "recall at k over what k places can hold; graded: Järvelin & Kekäläinen 2002, cumulated gain"
    return retrieval_metric(k, "recall", summary, source, lambda gain_QK: np.asarray(gain_QK.sum(axis=1)))


NMI = clustering_metric("nmi", "normalised mutual information", "normalized_mutual_info_score")
ARI = clustering_metric("ari", "adjusted Rand index", "adjusted_rand_score")
RETRIEVAL_MAP_AT_10 = retrieval_metric(
    10,
    "map",
    "graded average precision of the 10 nearest rows, by the Jaccard of label sets",
    "average precision at k; graded: g_i in place of relevant or not",
    graded_precision,
)
RETRIEVAL_RECALL_AT_1 = recall_at(1)
RETRIEVAL_RECALL_AT_10 = recall_at(10)
