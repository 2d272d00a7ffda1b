"""t-SNE: embeddings as points of a plane, for plots.

Shapes: N rows, D embedding.
"""

from __future__ import annotations

import numpy as np
from sklearn.manifold import TSNE
from threadpoolctl import threadpool_limits

from mlcl.evaluation.tasks import Array

FEWEST = 4
"""The fewest rows that can be projected."""


def project(x_ND: Array, seed: int = 0, perplexity: float = 30.0) -> Array:
    """t-SNE of embeddings (N, D) as points (N, 2) float32, started from their principal components.

    The perplexity is at most (N - 1) / 3. The same embeddings and seed give the same points. Equal embeddings
    are all at 0.

    Raises ValueError for fewer than `FEWEST` rows and embeddings that are not finite.
    """
    x_ND = np.asarray(x_ND, dtype=np.float64)
    if len(x_ND) < FEWEST:
        raise ValueError(f"{len(x_ND)} rows are too few to project, {FEWEST} are needed")
    if not np.isfinite(x_ND).all():
        raise ValueError("embeddings are not finite")
    x_ND = x_ND - x_ND.mean(axis=0)
    if not np.ptp(x_ND, axis=0).any():
        # The library divides by the first component's deviation, and the process crashes.
        return np.zeros((len(x_ND), 2), np.float32)
    # t-SNE does not depend on the scale, but float32 overflows. Two components need two columns.
    x_ND = x_ND / np.abs(x_ND).max()
    x_ND = np.pad(x_ND, ((0, 0), (0, max(0, 2 - x_ND.shape[1])))).astype(np.float32)
    method = TSNE(init="pca", random_state=seed, perplexity=min(perplexity, (len(x_ND) - 1) / 3))
    # Several threads would add up a normaliser in any order, and every step would enlarge the difference.
    with threadpool_limits(limits=1):
        points_N2: Array = method.fit_transform(x_ND)
    return points_N2
