"""A loss that is one function, without a closed form, by which consecutive classes attract each other."""

from typing import Annotated

from mlcl.losses import Interval, LossSpec


def neighbouring(class_B, anchors, dtype, *, decay: Annotated[float, Interval(0)] = 1.0):
    distance_NB = (class_B[anchors, None] - class_B).abs().to(dtype)
    near_NB = (distance_NB <= 1) & (class_B >= 0) & (class_B[anchors, None] >= 0)
    return (-decay * distance_NB).exp() * near_NB


NEIGHBOURING = LossSpec(
    name="neighbouring",
    labels="class",
    summary="near classes attract",
    source="made for tests",
    dense=neighbouring,
)
