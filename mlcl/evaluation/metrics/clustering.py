"""Clusters of the embeddings against the rows' label sets, each distinct set a class: NMI and ARI.

k-means makes as many clusters as there are classes, see `EmbeddedRows.clusters`. Both are NaN where label
sets have unknown entries: whether two such sets are equal is not known.
"""

from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

from mlcl.evaluation.embedded_rows import EmbeddedRows
from mlcl.evaluation.metric import EmbeddingMetric


def nmi(rows: EmbeddedRows) -> float:
    """I(clusters; classes) over the mean of their entropies; NaN without rows."""
    if not len(rows.labels):
        return float("nan")
    return float(normalized_mutual_info_score(rows.classes, rows.clusters))


def ari(rows: EmbeddedRows) -> float:
    """The Rand index of clusters and classes, 0 for chance and 1 for equal; NaN without rows."""
    return float(adjusted_rand_score(rows.classes, rows.clusters)) if len(rows.labels) else float("nan")


NMI = EmbeddingMetric(
    name="nmi",
    summary="normalised mutual information of k-means clusters and classes (distinct label sets)",
    source="scikit-learn, normalized_mutual_info_score",
    group="clustering",
    of_rows=nmi,
)
ARI = EmbeddingMetric(
    name="ari",
    summary="adjusted Rand index of k-means clusters and classes (distinct label sets)",
    source="scikit-learn, adjusted_rand_score",
    group="clustering",
    of_rows=ari,
)
