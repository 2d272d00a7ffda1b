"""Makes the jobs of baselines: says which baselines fit a job, and which features they read."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mlcl.config import JobConfig, dump_job, load_job
from mlcl.config.encoder_section import EncoderConfig
from mlcl.data import Dataset, DatasetInfo, Split
from mlcl.data.format import plural
from mlcl.errors import UserError
from mlcl.models.encoder import FeatureInput, InputName
from mlcl.models.encoders.features import ColumnInput, ImageInput, TfidfInput, TransformerInput
from mlcl.models.encoders.resnet import ResNetConfig
from mlcl.models.pretrained import PretrainedKeys
from mlcl.training.baselines.baseline import BASELINES, Baseline
from mlcl.training.features.cache import FeatureCache
from mlcl.training.features.extractor import Matrix
from mlcl.training.features.inputs import sections

ENCODERS: dict[str, dict[str, Any]] = {
    "text": {"name": "cnn_text"},
    "image": {"name": "cnn_image"},
    "vectors": {"name": "features", "inputs": ["column"]},
}
"""An encoder for each modality: a job must name one, even though a baseline trains none."""
INPUTS: dict[str, tuple[InputName, FeatureInput]] = {
    "tfidf": ("tfidf", TfidfInput(max_features=100_000)),
    "pixels": ("image", ImageInput(image_size=16)),
    "column": ("column", ColumnInput()),
}
"""The extractors that baselines read, keyed by `Baseline.reads`; `encoder` depends on the job and is not
here."""
MOST_MODELS = 50_000_000
"""The largest product of training rows and classes for which one model per class is fitted by default.

Such a fit takes about ten minutes."""


def baseline_job(job: JobConfig, name: str) -> JobConfig:
    """Returns the job of a baseline on the data, labels and metric of a job; the losses do not matter."""
    tree = dump_job(job)
    evaluation = tree["evaluation"]
    metric = "val/" + evaluation["metric"].rpartition("/")[2]
    tree["objective"] = {"classifier": {**tree["objective"]["classifier"], "weight": "remainder"}}
    tree["evaluation"] = {**evaluation, "metric": metric, "knn": None, "probe": None, "transfer_to": None}
    return load_job({**tree, "baseline": name})


def job_or_dataset(what: Path, overrides: Sequence[str], labels: str | None) -> JobConfig:
    """Returns the job of a job file, or a job on the prepared data set in a folder, with overrides.

    Raises UserError for `labels` with a job file.
    """
    if what.is_dir():
        return load_job(dataset_job(what, labels), overrides)
    if labels is not None:
        raise UserError("goes with the folder of a data set", key="--labels", found=labels)
    return load_job(what, overrides)


def dataset_job(place: Path, labels: str | None = None) -> dict[str, Any]:
    """Returns a job on a prepared data set, as plain data.

    By default it predicts the only label space, or the finest level of the only hierarchy. Raises UserError
    if there are several and `labels` names none.
    """
    info = Dataset.open(place).info
    name = labels or _only_space(info, place)
    kind = info.space(name).kind
    return {
        "experiment": re.sub(r"[^A-Za-z0-9._-]+", "-", info.name).strip("-.") or "data",
        "data": {"path": str(place)},
        "encoder": ENCODERS[info.modality],
        "objective": {
            "classifier": {"loss": "bce" if kind == "multi_label" else "cross_entropy", "labels": name}
        },
        "train": {"epochs": 1, "batch_size": 2},
        "evaluation": {"metric": "val/micro_f1" if kind == "multi_label" else "val/accuracy"},
    }


def _only_space(info: DatasetInfo, place: Path) -> str:
    hierarchies = [space for space in info.label_spaces.values() if space.kind == "hierarchy"]
    inside = {level for space in hierarchies for level in space.levels}
    found = [name for name, s in info.label_spaces.items() if s.kind != "hierarchy" and name not in inside]
    found += [space.levels[-1] for space in hierarchies]
    if len(found) > 1:
        raise UserError("several label spaces", file=place, key="--labels", allowed=found)
    return found[0]


def input_of(baseline: Baseline, job: JobConfig) -> tuple[InputName, FeatureInput] | None:
    """Returns the extractor whose rows the baseline reads, as its name and section.

    Returns None if it reads the encoder's output and the job's encoder is not pretrained.
    """
    return _frozen(job.encoder) if baseline.reads == "encoder" else INPUTS[baseline.reads]


def _frozen(section: EncoderConfig) -> tuple[InputName, FeatureInput] | None:
    if isinstance(section, PretrainedKeys):
        length: int = section.max_length
        return "transformer", TransformerInput(model=section.model, max_length=length)
    for name, frozen in sections(section).items():
        if name == "transformer" or (isinstance(frozen, ImageInput) and frozen.network != "pixels"):
            return name, frozen
    if isinstance(section, ResNetConfig) and section.weights is not None:
        image = ImageInput(network=section.name, weights=section.weights, image_size=section.image_size)
        return "image", image
    return None


def unfit(baseline: Baseline, job: JobConfig, info: DatasetInfo) -> str:
    """Returns the reason why a baseline cannot be used with a job, or an empty string if it can."""
    if baseline.reads == "nothing":
        return ""
    found = input_of(baseline, job)
    if found is None:
        return f"the job's encoder, {job.encoder.name}, is not a pretrained one"
    wanted = found[1].modality
    same = wanted == info.modality
    return "" if same else f"reads {plural(wanted)}, the data set {info.name} holds {plural(info.modality)}"


def fitting_baselines(job: JobConfig, info: DatasetInfo) -> tuple[list[str], dict[str, str]]:
    """Finds the baselines that fit a job's data.

    Returns their names, and the reason for each other baseline of this modality. A baseline with one model
    per class is left out if fitting all models would take too long, see `MOST_MODELS`.
    """
    names, reasons = list[str](), dict[str, str]()
    classes = info.space(job.objective.classifier.labels).n_classes
    for name, baseline in BASELINES.items():
        if baseline.reads in INPUTS and INPUTS[baseline.reads][1].modality != info.modality:
            continue
        reason = unfit(baseline, job, info)
        if not reason and baseline.each_class and info.rows["train"] * classes > MOST_MODELS:
            reason = f"one model for each of {classes:,} classes takes too long"
        if reason:
            reasons[name] = reason
        else:
            names.append(name)
    return names, reasons


def read_rows(baseline: Baseline, job: JobConfig, cache: FeatureCache, split: Split) -> Matrix:
    """Reads the features (N, F) of a split; (N, 0) for a baseline that reads nothing."""
    if baseline.reads == "nothing":
        return np.zeros((len(split), 0), dtype=np.float32)
    found = input_of(baseline, job)
    assert found is not None
    return cache.rows(*found, split)
