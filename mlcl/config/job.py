"""The sections of a job with the types, defaults and bounds of their keys, and the hash of a job."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, field_validator, model_validator
from typing_extensions import Self

from mlcl.config.cluster import Reference, check_url
from mlcl.config.encoder_section import EncoderSection
from mlcl.config.plugin_files import PluginFile, run_plugins
from mlcl.config.section import (
    ExperimentName,
    Fraction,
    NonNegative,
    PluginName,
    Positive,
    Section,
    ValidationMetric,
    exactly_one,
    metric_name,
)
from mlcl.config.training_sections import ObjectiveConfig, TrainConfig


class SubsetConfig(Section):
    """A stratified random subset of the training split. Validation and test splits are not reduced."""

    per_class: int | None = Field(None, ge=1, description="training samples of every class")
    n: int | None = Field(None, ge=1, description="training samples in all, classes in proportion")
    labels: str | None = Field(None, description="label space to stratify by; default: the classifier's")
    seed: int = Field(0, ge=0, description="which subset of that size")

    _check_one_size = exactly_one("per_class", "n")


class LabelNoiseConfig(Section):
    """Uniform label noise on the training split only."""

    rate: Fraction = Field(
        description="probability that a label is drawn anew from all C classes: rate (C-1)/C are wrong"
    )
    labels: str | None = Field(
        None, description="label space that gets it; default: the classifier's. Coarser levels follow"
    )
    seed: int = Field(0, ge=0, description="which labels change")


class HoldOutConfig(Section):
    """Classes that are removed from training and validation, and evaluated on the test split as unseen."""

    labels: str = Field(description="label space; of a hierarchy classes of the finest level leave")
    share: float = Field(
        0.2, gt=0, lt=1, description="of the classes with 5 training rows; of a hierarchy, of each parent's"
    )
    seed: int = Field(0, ge=0, description="which classes leave")


class AugmentConfig(Section):
    """The random changes that make the views of an image. Ignored for text, whose views differ by dropout."""

    crop: Fraction = Field(0.2, description="smallest share of the area that a random crop keeps; 1: no crop")
    flip: bool = Field(True, description="mirror half of the images left to right")
    jitter: Fraction = Field(0.4, description="strength of the brightness, contrast and saturation jitter")
    grayscale: Fraction = Field(0.2, description="probability of a gray image")


class _DataReference(Section):
    source: str | None = Field(None, description="a source, see `mlcl data sources`")
    path: str | None = Field(None, description="folder or URI of a prepared data set")
    options: dict[str, Any] = Field(default_factory=dict, description="the source's own options")

    _check_one_reference = exactly_one("source", "path")


class DataConfig(_DataReference):
    """The data set: the name of a source, which is prepared once, or the path of a prepared data set."""

    split_seed: int = Field(
        0, ge=0, description="seed of the train/validation/test split, where the source makes one"
    )
    validation_seed: int | None = Field(
        None, ge=0, description="draw validation anew from train and validation; null: as it is prepared"
    )
    subset: SubsetConfig | None = Field(None, description="train on a part")
    label_noise: LabelNoiseConfig | None = Field(None, description="train on labels some of which are wrong")
    hold_out: HoldOutConfig | None = Field(None, description="train without some classes")
    augment: AugmentConfig = AugmentConfig()

    @model_validator(mode="after")
    def _check_options(self) -> Self:
        if self.path is not None and self.options:
            raise ValueError("options go with source: a prepared data set has none")
        if self.hold_out is not None and self.label_noise is not None:
            raise ValueError("hold_out excludes label_noise, which draws from all classes")
        return self


class KnnGrid(Section):
    """The k-NN settings that are all scored on validation, from one retrieval of neighbours."""

    k: tuple[Annotated[int, Field(ge=1)], ...] = Field((1, 3, 5, 10, 20, 50), min_length=1)
    lambda_: tuple[Fraction, ...] = Field(tuple(i / 20 for i in range(21)), alias="lambda", min_length=1)
    temperature: tuple[Positive, ...] = Field((0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0), min_length=1)

    @field_validator("k", "lambda_", "temperature")
    @classmethod
    def _sort_values(cls, values: tuple[float, ...]) -> tuple[float, ...]:
        return tuple(sorted(set(values)))


class KnnConfig(Section):
    """The nearest neighbours at inference (kNN-MLTC Eq. 1), mixed with the classifier's prediction."""

    k: int = Field(5, ge=1, description="neighbours")
    lambda_: Fraction = Field(0.5, alias="lambda", description="share of the neighbours in the prediction")
    temperature: Positive = Field(1.0, description="of the neighbours' weights")
    grid: KnnGrid | None = Field(KnnGrid(), description="settings to score in addition; null: none")


class ProbeConfig(Section):
    """The linear probe on the frozen encoder. All pairs of `lr` and `weight_decay` are trained at once."""

    lr: tuple[Positive, ...] = Field((1e-3, 3e-3, 1e-2, 3e-2, 1e-1), min_length=1)
    weight_decay: tuple[NonNegative, ...] = Field((0.0, 1e-4, 1e-2), min_length=1)
    epochs: int = Field(100, ge=1)
    batch_size: int = Field(512, ge=1)


class TransferConfig(_DataReference):
    """Another data set, on which a linear probe of the frozen encoder is trained and tested."""

    split_seed: int = Field(0, ge=0, description="seed of the split, where the source makes one")
    labels: str = Field(description="label space that is predicted")
    metric: Annotated[str, BeforeValidator(metric_name)] = Field(
        "accuracy", pattern=r"^\w+$", description="what selects the probe, on validation"
    )


MARGIN = 0.005
"""The default of `evaluation.margin`: differences of the metric up to it do not matter."""


class EvaluationConfig(Section):
    """The metrics that are measured. The test split is read only once, at the end."""

    metric: ValidationMetric = Field(
        "val/accuracy", description="what selects; default of several labels a row: val/micro_f1"
    )
    every: int = Field(1, ge=1, description="epochs between validations")
    batch_size: int = Field(1024, ge=1)
    knn: KnnConfig | None = None
    probe: ProbeConfig | None = Field(
        None, description="also probe a jointly trained encoder; two-phase jobs always probe"
    )
    ensemble: str | None = Field(
        None,
        description="a baseline whose logits are averaged with the classifier's; validation chooses its "
        "weight, see [ensembles](concepts.md#ensembles)",
    )
    transfer_to: TransferConfig | None = Field(
        None, description="also probe the frozen encoder on another data set"
    )
    threshold: Annotated[float, Field(gt=0, lt=1)] | Literal["global", "per_label", "top_k"] = Field(
        "global",
        description="from which probability several labels are predicted; a word: validation chooses",
    )
    at_least_one: bool = Field(False, description="of several labels, always predict the most probable one")
    metrics: tuple[str, ...] = Field(
        (), description="groups of metrics to measure in addition, see `mlcl metrics`"
    )
    margin: float = Field(
        MARGIN,
        ge=0,
        allow_inf_nan=False,
        description="of verdicts: differences of the metric up to this do not matter",
    )
    bands: tuple[Annotated[int, Field(ge=0)], Annotated[int, Field(ge=0)]] = Field(
        (20, 100),
        description="of the group bands: a label with fewer training rows than the first number is in the "
        "tail, one with more than the second in the head",
    )

    @field_validator("metrics")
    @classmethod
    def _sort_groups(cls, groups: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(sorted(set(groups)))

    @field_validator("bands")
    @classmethod
    def _check_bands(cls, bands: tuple[int, int]) -> tuple[int, int]:
        if bands[0] > bands[1] + 1:
            raise ValueError("a label would be in the tail and in the head: the first number is too large")
        return bands


Keep = Literal["best", "confirmed", "all"]
"""The trainings of a sweep that keep model and embeddings."""


class TrackingConfig(Section):
    """Settings of the log and of the kept files; these keys do not change a job's hash."""

    system_metrics: bool = Field(False, description="load and memory of processor and GPU, in MLflow's pages")
    notify: Annotated[str, AfterValidator(check_url)] | Reference | None = Field(
        None,
        description="URL that gets the end of a sweep or table as JSON, with its verdicts; a secret one as "
        "`env: VARIABLE` or `file: FILE`",
    )
    keep: Keep = Field(
        "confirmed",
        description="trainings of a sweep that keep [model and embeddings](sweeps.md#on-disk): its best; "
        "confirmed: those on fresh seeds, too; or all",
    )


def _reject_value(value: Any) -> Any:
    """Returns the value if it is empty, else raises ValueError, since `read_job` removes this key."""
    if value:
        raise ValueError("belongs in a job file")
    return value


class JobConfig(Section):
    """One experiment."""

    base: Annotated[str | None, BeforeValidator(_reject_value)] = Field(
        None,
        exclude=True,
        description="job file, relative to this one, that this one changes: mappings are merged; lists and "
        "single values, null among them, replace the base's",
    )
    drop: Annotated[tuple[str, ...], BeforeValidator(_reject_value)] = Field(
        (), exclude=True, description="dotted keys of the base that are left out, such as a head"
    )
    experiment: ExperimentName
    data: DataConfig
    encoder: EncoderSection
    objective: ObjectiveConfig
    train: TrainConfig
    evaluation: EvaluationConfig = EvaluationConfig()
    tracking: TrackingConfig = TrackingConfig()
    baseline: Annotated[str, PluginName("baselines")] | None = Field(
        None, description="fit this in place of the network, see `mlcl baselines`"
    )
    plugins: tuple[PluginFile, ...] = Field(
        (), description="Python files that declare losses, encoders and other plugins; they are run"
    )

    @model_validator(mode="after")
    def _set_default_metric(self) -> Self:
        """Sets the default metric of a classifier that predicts several labels per row."""
        if "metric" not in self.evaluation.model_fields_set and self.objective.classifier.of_labels:
            evaluation = self.evaluation.model_copy(update={"metric": "val/micro_f1"})
            evaluation.model_fields_set.discard("metric")
            object.__setattr__(self, "evaluation", evaluation)  # the section is frozen
        return self

    @model_validator(mode="after")
    def _set_default_views(self) -> Self:
        """Sets the default number of views, so that the number is logged and hashed, and not null."""
        if self.train.views is None:
            contrastive = any(head.weight > 0 for head in self.objective.heads.values())
            train = self.train.model_copy(update={"views": 2 if contrastive else 1})
            train.model_fields_set.discard("views")
            object.__setattr__(self, "train", train)  # the section is frozen
        return self

    @property
    def views(self) -> int:
        """The number of views of each sample in a batch."""
        assert self.train.views is not None
        return self.train.views

    @property
    def epochs(self) -> int:
        """The largest number of epochs of a training; 0 for a fitted baseline."""
        return self.train.epochs if self.baseline is None else 0

    @model_validator(mode="before")
    @classmethod
    def _run_plugins(cls, tree: Any) -> Any:
        if isinstance(tree, Mapping):
            run_plugins(tree.get("plugins"))
        return tree


def dump_job(job: JobConfig) -> dict[str, Any]:
    """Returns the resolved job as a nested dict with the keys of a job file.

    The plugin files are in it with their texts.
    """
    return job.model_dump(mode="json", by_alias=True)


def covers(outer: str, key: str) -> bool:
    """Whether the dotted `key` is `outer` or is in the section `outer`."""
    return key == outer or key.startswith(f"{outer}.")


def flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Returns nested mappings as a dict with dotted keys: `{"a": {"b": 1}}` gives `{"a.b": 1}`."""
    leaves: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, Mapping) and value:
            leaves.update(flatten(value, f"{prefix}{key}."))
        else:
            leaves[prefix + key] = value
    return leaves


def job_hash(job: JobConfig) -> str:
    """Returns the hash of a job: sixteen hexadecimal digits that are equal for equal jobs.

    The section `tracking` and the names of the plugin files do not change it.
    """
    tree = dump_job(job)
    tree.pop("tracking", None)
    if job.plugins:
        tree["plugins"] = [plugin.sha256 for plugin in job.plugins]
    text = json.dumps(tree, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
