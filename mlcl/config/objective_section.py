"""The objective of a job: its contrastive heads and its classifier."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Discriminator, Field, Tag, model_validator

from mlcl.config.section import Name, NonNegative, PluginName, Positive, Section
from mlcl.plugins import registry

LossName = Annotated[str, PluginName("losses")]
Balance = Literal["none", "sqrt", "balanced"]


class ProjectionConfig(Section):
    """The projection head between the encoder and a loss."""

    kind: Literal["mlp", "linear", "identity"] = Field("mlp", description="mlp has one hidden layer")
    dim: int = Field(128, ge=1, description="output size; identity keeps the encoder's")
    hidden: int | None = Field(None, ge=1, description="hidden size of the mlp; default: the encoder's")
    normalize_input: bool = Field(False, description="scale the embedding to unit length before it")


class TemperatureSchedule(Section):
    """A temperature that changes over training."""

    schedule: Literal["cosine", "linear"]
    start: Positive
    end: Positive


class LearnedTemperature(Section):
    """A temperature that is trained, from this value."""

    learned: Positive


def _temperature_kind(value: Any) -> str:
    """The alternative that a temperature is written as: errors are those of this one alone."""
    if isinstance(value, Mapping):
        return "<learned>" if any(str(key).startswith("learn") for key in value) else "<schedule>"
    if isinstance(value, (TemperatureSchedule, LearnedTemperature)):
        return "<learned>" if isinstance(value, LearnedTemperature) else "<schedule>"
    return "<number>"


TemperatureConfig = Annotated[
    Annotated[Positive, Tag("<number>")]
    | Annotated[TemperatureSchedule, Tag("<schedule>")]
    | Annotated[LearnedTemperature, Tag("<learned>")],
    Discriminator(_temperature_kind),
]


class HeadConfig(Section):
    """One contrastive head: a loss on a projection, over one label space."""

    loss: LossName = Field(description="or one from outside, see `mlcl losses`")
    labels: str | None = Field(None, description="label space; simclr takes none")
    temperature: TemperatureConfig = Field(0.1, description="a number, {schedule, start, end} or {learned}")
    weight: NonNegative = Field(1.0, description="its share of the objective (alpha; gamma for knn)")
    projection: ProjectionConfig = ProjectionConfig()
    normalize: bool | None = Field(
        None, description="unit length before the loss; default: all but those by distance, such as knn"
    )
    reduction: Literal["mean", "sum", "mean_valid"] = Field("mean", description="over anchors")
    options: dict[str, Any] = Field(default_factory=dict, description="the loss's own options")

    @model_validator(mode="after")
    def _labels(self) -> Self:
        spec = registry("losses").get(self.loss)
        if spec is None:  # of a plugin file, where these are not run
            return self
        without = spec.labels == "none"
        if without != (self.labels is None):
            raise ValueError(f"{self.loss} takes no labels" if without else f"{self.loss} needs labels")
        return self

    @property
    def unit_length(self) -> bool:
        """Whether embeddings are normalised before this head's loss."""
        if self.normalize is None:
            return bool(registry("losses")[self.loss].similarity == "dot")
        return self.normalize


class ClassifierConfig(Section):
    """The linear classifier on the encoder. Weight 0: two phases, a linear probe after pre-training."""

    loss: Literal["cross_entropy", "bce", "asl", "guided"] = Field(
        description="bce, asl: of each label (asl: asymmetric, Ridnik et al. 2021); guided: prototypes whose "
        "distances follow the class tree (Landrieu and Garnot 2021)"
    )
    labels: str = Field(description="label space; guided takes a hierarchy, and predicts its finest level")
    weight: NonNegative | Literal["remainder"] = Field(
        "remainder", description="remainder: 1 less the heads' weights (MLCL Eq. 3)"
    )
    reduction: Literal["mean", "sum_labels"] = Field(
        "mean", description="over rows and labels (or aspects); sum_labels: over rows, of the sum over labels"
    )
    pos_weight: Balance = Field(
        "none",
        description="of bce, the weight of a label's positives: balanced is negatives / positives among the "
        "rows that are trained on, sqrt its root",
    )
    class_weight: Balance = Field(
        "none",
        description="of cross_entropy, the weight of a class's rows, aspect by aspect: balanced is in "
        "proportion to 1 / rows of the class among those that are trained on, sqrt to its root; 1 on average",
    )
    gamma_pos: NonNegative = Field(0.0, description="of asl: focus on the hard positives")
    gamma_neg: NonNegative = Field(4.0, description="of asl: focus on the hard negatives")
    clip: float = Field(
        0.05, ge=0, lt=1, description="of asl: probability up to which negatives do not count"
    )
    distortion: NonNegative = Field(1.0, description="of guided: weight of its regulariser")

    @model_validator(mode="after")
    def _weighted(self) -> Self:
        for key, loss in (("pos_weight", "bce"), ("class_weight", "cross_entropy")):
            if getattr(self, key) != "none" and self.loss != loss:
                raise ValueError(f"{key} is for {loss}, not for {self.loss}")
        return self

    @property
    def of_labels(self) -> bool:
        """Whether it predicts any number of labels a row, not one class."""
        return self.loss in ("bce", "asl")


class ObjectiveConfig(Section):
    """Contrastive heads and a classifier, added up with their weights."""

    heads: dict[Name, HeadConfig] = Field(default_factory=dict)
    classifier: ClassifierConfig

    @model_validator(mode="after")
    def _weights(self) -> Self:
        if "classifier" in self.heads:
            raise ValueError("a head may not be named classifier")
        total = math.fsum(head.weight for head in self.heads.values())
        if self.classifier.weight == "remainder" and total > 1 + 1e-9:
            raise ValueError(f"head weights add up to {total:g}: nothing remains for the classifier")
        if total == 0 and self.classifier_weight == 0:
            raise ValueError("all weights are 0: nothing would be trained")
        return self

    @property
    def classifier_weight(self) -> float:
        """The classifier's weight as a number."""
        if self.classifier.weight == "remainder":
            rest = 1 - math.fsum(head.weight for head in self.heads.values())
            return 0.0 if abs(rest) < 1e-9 else rest
        return self.classifier.weight
