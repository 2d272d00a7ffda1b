"""The number of labels that instances share.

Shapes: N instances, V label entries.
"""

from __future__ import annotations

import numpy as np

from mlcl.evaluation.tasks import Array, array
from mlcl.labels import LabelRows


def label_similarity(query: LabelRows, others: LabelRows) -> Array:
    """C_qj = y_q . y_j (N,): how many labels each of `others` shares with the one row `query`.

    Raises ValueError for more than one query. Source: kNN-MLTC Eq. 3.
    """
    if len(query) != 1:
        raise ValueError(f"one query is compared with others, not {len(query)}")
    shared_V = np.isin(array(others.columns), array(query.columns))
    return np.bincount(array(others.row_index())[shared_V], minlength=len(others))
