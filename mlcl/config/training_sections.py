"""The sections `objective` and `train` of a job: losses and classifier, batches and optimiser."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, model_validator
from typing_extensions import Self

from mlcl.config.section import Fraction, Name, NonNegative, PluginName, Positive, Section
from mlcl.plugins import registry

LossName = Annotated[str, PluginName("losses")]
Balance = Literal["none", "sqrt", "balanced"]


class ProjectionConfig(Section):
    """The projection head between the encoder and a loss."""

    kind: Literal["mlp", "linear", "identity", "logits"] = Field(
        "mlp", description="mlp has one hidden layer; logits: the classifier's, in place of the embedding"
    )
    dim: int = Field(128, ge=1, description="output size of mlp and linear")
    hidden: int | None = Field(None, ge=1, description="hidden size of the mlp; default: the encoder's")
    normalize_input: bool = Field(False, description="scale the embedding to unit length before it")


class TemperatureSchedule(Section):
    """A temperature that changes during training."""

    schedule: Literal["cosine", "linear"]
    start: Positive
    end: Positive


class LearnedTemperatureConfig(Section):
    """A temperature that is trained, given by its initial value."""

    learned: Positive


def _temperature_kind(value: Any) -> str:
    """Returns the tag of the form in which a temperature is written, so that errors name only this form."""
    if isinstance(value, Mapping):
        return "<learned>" if any(str(key).startswith("learn") for key in value) else "<schedule>"
    if isinstance(value, (TemperatureSchedule, LearnedTemperatureConfig)):
        return "<learned>" if isinstance(value, LearnedTemperatureConfig) else "<schedule>"
    return "<number>"


TemperatureConfig = Annotated[
    Annotated[Positive, Tag("<number>")]
    | Annotated[TemperatureSchedule, Tag("<schedule>")]
    | Annotated[LearnedTemperatureConfig, Tag("<learned>")],
    Discriminator(_temperature_kind),
]


class HeadConfig(Section):
    """A contrastive head: a loss on a projection of the embeddings, and the label space that it reads."""

    loss: LossName = Field(description="or one from outside, see `mlcl losses`")
    labels: str | None = Field(None, description="label space; simclr takes none")
    temperature: TemperatureConfig = Field(0.1, description="a number, {schedule, start, end} or {learned}")
    weight: NonNegative = Field(1.0, description="its share of the objective (alpha; gamma for knn)")
    projection: ProjectionConfig = ProjectionConfig()
    normalize: bool | None = Field(
        None, description="unit length before the loss; default: all but those by distance, such as knn"
    )
    reduction: Literal["mean", "sum", "mean_valid"] = Field("mean", description="over anchors")
    queue: int | None = Field(None, ge=1, description="rows of past batches that are further candidates")
    options: dict[str, Any] = Field(default_factory=dict, description="the loss's own options")

    @model_validator(mode="after")
    def _check_labels(self) -> Self:
        spec = registry("losses").get(self.loss)
        if spec is None:  # a loss of a plugin file that was not run
            return self
        label_free = spec.labels == "none"
        if label_free != (self.labels is None):
            raise ValueError(f"{self.loss} takes no labels" if label_free else f"{self.loss} needs labels")
        return self

    @property
    def unit_length(self) -> bool:
        """Whether embeddings are scaled to unit length before this head's loss."""
        if self.normalize is None:
            return bool(registry("losses")[self.loss].similarity == "dot")
        return self.normalize


OF_ONE_LOSS = {
    "pos_weight": "bce",
    "class_weight": "cross_entropy",
    **dict.fromkeys(("gamma_pos", "gamma_neg", "clip"), "asl"),
    "distortion": "guided",
}
"""Keys of the classifier that only one loss reads; with other losses they must have their defaults."""


class ClassifierConfig(Section):
    """The linear classifier on the encoder. With weight 0, a linear probe is trained after pre-training."""

    loss: Literal["cross_entropy", "bce", "asl", "zlpr", "guided"] = Field(
        description="bce, asl: of each label (asl: asymmetric, Ridnik et al. 2021); zlpr: of a row's labels "
        "(Su et al. 2022); guided: prototypes whose distances follow the class tree (Landrieu and "
        "Garnot 2021)"
    )
    labels: str = Field(description="label space; guided takes the finest level of a hierarchy")
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
    def _check_loss_options(self) -> Self:
        for key, loss in OF_ONE_LOSS.items():
            if self.loss != loss and getattr(self, key) != type(self).model_fields[key].default:
                raise ValueError(f"{key} is for {loss}, not for {self.loss}")
        return self

    @property
    def of_labels(self) -> bool:
        """Whether the classifier predicts any number of labels a row, and not one class."""
        return self.loss in ("bce", "asl", "zlpr")


class ObjectiveConfig(Section):
    """The objective: the weighted sum of the losses of contrastive heads and of a classifier."""

    heads: dict[Name, HeadConfig] = Field(default_factory=dict)
    classifier: ClassifierConfig

    @model_validator(mode="after")
    def _check_weights(self) -> Self:
        if "classifier" in self.heads:
            raise ValueError("a head may not be named classifier")
        total = math.fsum(head.weight for head in self.heads.values())
        if self.classifier.weight == "remainder" and total > 1 + 1e-9:
            raise ValueError(f"head weights add up to {total:g}: nothing remains for the classifier")
        if total == 0 and self.classifier_weight == 0:
            raise ValueError("all weights are 0: nothing would be trained")
        logit_heads = [
            name for name, head in self.heads.items() if head.weight and head.projection.kind == "logits"
        ]
        if logit_heads and self.classifier_weight == 0:
            raise ValueError(f"head {logit_heads[0]} reads logits, and a classifier of weight 0 has none")
        return self

    @property
    def classifier_weight(self) -> float:
        """The weight of the classifier as a number, also if it is `remainder`."""
        if self.classifier.weight == "remainder":
            rest = 1 - math.fsum(head.weight for head in self.heads.values())
            return 0.0 if abs(rest) < 1e-9 else rest
        return self.classifier.weight


USED_BY = {
    "labels": ("balanced", "pk", "hierarchical"),
    "k": ("pk", "hierarchical"),
    "branches": ("hierarchical",),
    "power": ("balanced",),
}
"""The names of the samplers that read each key."""


class SamplerConfig(Section):
    """The sampler, which chooses the rows of a batch. A name alone is short for `{name: NAME}`."""

    name: Literal["uniform", "balanced", "pk", "hierarchical"] = Field(
        "uniform", description="[what each is for](concepts.md#which-rows-are-in-a-batch)"
    )
    labels: str | None = Field(
        None, description="label space; default: the classifier's; hierarchical: the first head's hierarchy"
    )
    k: int | None = Field(
        None, ge=2, description="of pk and hierarchical: rows of a class in a batch; default: 4, and 2"
    )
    branches: int | None = Field(
        None, ge=1, description="of hierarchical: finer classes of a class in a batch; default: 2"
    )
    power: Fraction | None = Field(
        None,
        description="of balanced: a class is drawn by its rows to this power; 0 (default): all alike, "
        "0.5: by the square root, 1: as they come",
    )

    @model_validator(mode="before")
    @classmethod
    def _expand_short_form(cls, value: Any) -> Any:
        return {"name": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _check_keys(self) -> Self:
        for key, names in USED_BY.items():
            if getattr(self, key) is not None and self.name not in names:
                raise ValueError(f"{key} goes with {' and '.join(names)}, not with {self.name}")
        return self


class TrainConfig(Section):
    """The training: epochs, batches, optimiser and hardware."""

    epochs: int = Field(ge=1)
    batch_size: int = Field(ge=2, description="samples of one contrastive batch, over all workers")
    micro_batch_size: int | None = Field(
        None,
        ge=1,
        description="samples whose rows, one a view, a worker encodes at once; default: all that it has",
    )
    views: int | None = Field(
        None, ge=1, le=8, description="views of each sample; default: 2 with a contrastive head, else 1"
    )
    sampler: SamplerConfig = SamplerConfig()
    drop_last: bool = Field(False, description="leave out the epoch's last, smaller batch")
    optimizer: Literal["adamw", "adam", "sgd"] = "adamw"
    lr: Positive = Field(1e-3, description="peak learning rate")
    encoder_lr: Positive | None = Field(
        None, description="the encoder's own, such as 2e-5 for a pretrained one beside new heads; default: lr"
    )
    weight_decay: NonNegative = Field(0.01, description="not applied to biases and normalisation")
    momentum: float = Field(0.9, ge=0, lt=1, description="of sgd")
    schedule: Literal["cosine", "constant"] = Field("cosine", description="after the warm-up")
    warmup: Fraction = Field(0.05, description="share of the steps")
    clip_norm: Positive | None = Field(None, description="largest gradient norm")
    precision: Literal["float32", "bf16", "auto"] = Field(
        "float32",
        description="of the encoder; logits stay float32. auto: bf16 where a step is faster in it on the "
        "command's machine, see docs/performance.md; the run's own job names what it took",
    )
    channels_last: bool = Field(
        False,
        description="convolutions of images in this memory format on a CPU too, as on a GPU: faster, with "
        "other last digits",
    )
    products: Literal["exact", "tf32"] = Field(
        "exact", description="of the losses' float32 embeddings, on a GPU; those in bf16 are multiplied so"
    )
    compile: bool | Literal["graphs"] = Field(
        False,
        description="compile encoder and augmentation: a slow first step, faster ones after. graphs: the "
        "encoder also as CUDA graphs, one for each shape of its inputs",
    )
    deterministic: bool = Field(
        False,
        description="the same bits every time on a GPU too, and so after a stop; slower. An encoder with an "
        "operation that cannot ends with its name",
    )
    patience: Annotated[int, Field(ge=1)] | Literal["auto"] | None = Field(
        "auto",
        description="validations without a better evaluation.metric that end the training; the best weights "
        "are kept. auto: a quarter of the run's validations, 10 at least; null: the last epoch's weights",
    )
    log_gradients: bool = Field(
        False,
        description="log the norm of the gradient that each head and the classifier send to the encoder's "
        "output, once a logging window",
    )
    checkpoint_every: int | None = Field(
        None,
        ge=1,
        description="epochs between checkpoints; default: at the end of an epoch, 5 seconds apart at least",
    )
    seed: int = Field(0, ge=0)
    workers: int = Field(1, ge=1, description="processes; more than one are started through Ray")
    device: Literal["auto", "cpu", "cuda"] = "auto"
    threads: int | None = Field(
        None, ge=1, le=1024, description="CPU threads of a worker; default: the machine's"
    )
