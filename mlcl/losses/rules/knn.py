"""kNN-MLTC: the more labels two rows share, the more they attract."""

from torch import Tensor

from mlcl.losses.relations import LabelCounts
from mlcl.losses.spec import overlap_loss
from mlcl.losses.weights.overlap import OverlapRule


def knn_rule(*, dynamic: bool = True) -> OverlapRule:
    """W_ip = beta_ip = C_ip / sum_{k != i} C_ik, C_ip = y_i . y_p; 0 where no label is shared.

    `dynamic=False` sets every C above 1 to 1: the ablation without beta of Table 5.
    The similarity is minus the Euclidean distance. Source: kNN-MLTC Eq. 2 and 3.
    """

    def shared_labels(counts: LabelCounts) -> tuple[Tensor, Tensor]:
        return counts.shared > 0, counts.shared if dynamic else counts.shared.clamp(max=1)

    return OverlapRule(shared_labels, normalizer="factors", symmetric=True)


KNN = overlap_loss(
    "knn",
    knn_rule,
    summary="the more labels two rows share, the more they attract, by their distance",
    source="kNN-MLTC Eq. 2 and 3",
    year=2022,
    similarity="euclidean",
)
