"""A loss in which rows that share labels attract by the Dice coefficient of their label sets."""

from torch import Tensor

from mlcl.losses import LabelCounts, OverlapRule, overlap_loss


def dice_rule() -> OverlapRule:
    """W_ip = K_ip / |P(i)|, K_ip = 2 |S & T| / (|S| + |T|). Source: Dice 1945."""

    def dice(counts: LabelCounts) -> Tensor:
        return 2 * counts.shared / (counts.anchor_size + counts.candidate_size).clamp(min=1)

    return OverlapRule(dice, symmetric=True)


DICE = overlap_loss("dice", dice_rule, summary="rows attract by their Dice coefficient", source="Dice 1945")
