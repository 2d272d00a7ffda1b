"""The section `train` of a job: how batches are drawn and how the objective is optimised."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from mlcl.config.section import Fraction, NonNegative, Positive, Section

USED_BY = {
    "labels": ("balanced", "pk", "hierarchical"),
    "k": ("pk", "hierarchical"),
    "branches": ("hierarchical",),
    "power": ("balanced",),
}
"""The samplers that read a key."""


class SamplerConfig(Section):
    """How the rows of a batch are chosen. A name alone stands for `{name: NAME}`."""

    name: Literal["uniform", "balanced", "pk", "hierarchical"] = Field(
        "uniform", description="[what each is for](concepts.md#which-rows-are-in-a-batch)"
    )
    labels: str | None = Field(
        None,
        description="label space; default: the classifier's; hierarchical: the first head's hierarchy",
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
    def _short_form(cls, value: Any) -> Any:
        return {"name": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _keys_fit(self) -> Self:
        for key, names in USED_BY.items():
            if getattr(self, key) is not None and self.name not in names:
                raise ValueError(f"{key} goes with {' and '.join(names)}, not with {self.name}")
        return self


class TrainConfig(Section):
    """How the objective is optimised."""

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
    precision: Literal["float32", "bf16"] = Field(
        "float32", description="of the encoder; logits stay float32"
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
    threads: int | None = Field(None, ge=1, description="CPU threads of a worker; default: the machine's")
