"""The jobs of baselines: which ones a job can have, what they read, and what they keep of the job."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np

from mlcl.baselines import BASELINES, Baseline
from mlcl.config import JobConfig, dump_job, load_job
from mlcl.config.encoder_section import EncoderConfig
from mlcl.data import Dataset, DatasetInfo, Split
from mlcl.data.format import plural
from mlcl.errors import UserError
from mlcl.models.encoders.resnet import ResNetConfig
from mlcl.models.feature_inputs import (
    ColumnInput,
    FeatureInput,
    ImageInput,
    InputName,
    TfidfInput,
    TransformerInput,
)
from mlcl.models.pretrained_section import PretrainedKeys
from mlcl.training.extractors import Matrix
from mlcl.training.feature_cache import FeatureCache
from mlcl.training.features import sections

ENCODERS: dict[str, dict[str, Any]] = {
    "text": {"name": "cnn_text"},
    "image": {"name": "cnn_image"},
    "vectors": {"name": "features", "inputs": ["column"]},
}
"""An encoder that fits the modality: a job must name one, though a baseline trains none."""
TERMS = 100_000
"""Most words and word pairs of TF-IDF."""
PIXELS = 16
"""Side of the images whose pixels are read: 768 numbers a row."""
MOST_MODELS = 50_000_000
"""Training rows times classes up to which one model a class is fitted unasked: about ten minutes."""
OF = {"tfidf": "text", "pixels": "image", "column": "vectors"}
"""The modality of what is read."""


def baseline_job(job: JobConfig, name: str) -> JobConfig:
    """The job of a baseline on a job's data, labels and metric: equal for jobs that differ in their losses.

    Raises UserError for an unknown name.
    """
    tree = dump_job(job)
    evaluation = tree["evaluation"]
    metric = "val/" + evaluation["metric"].rpartition("/")[2]
    tree["objective"] = {"classifier": {**tree["objective"]["classifier"], "weight": "remainder"}}
    tree["evaluation"] = {**evaluation, "metric": metric, "knn": None, "probe": None, "transfer_to": None}
    return load_job({**tree, "baseline": name})


def dataset_job(place: Path, labels: str | None = None) -> dict[str, Any]:
    """A job on a prepared data set, as plain data: of the label space `labels`, or of the only one there is.

    Of a hierarchy that is the finest level. Raises UserError where several are left.
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


Input = tuple[InputName, FeatureInput]


def input_of(baseline: Baseline, job: JobConfig) -> Input | None:
    """The extractor whose rows the baseline reads; None where the job has no pretrained encoder."""
    inputs: dict[str, Input] = {
        "tfidf": ("tfidf", TfidfInput(max_features=TERMS)),
        "pixels": ("image", ImageInput(image_size=PIXELS)),
        "column": ("column", ColumnInput()),
    }
    return _frozen(job.encoder) if baseline.reads == "encoder" else inputs[baseline.reads]


def _frozen(section: EncoderConfig) -> Input | None:
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
    """Why a job cannot have the baseline; empty where it can."""
    if baseline.reads == "nothing":
        return ""
    found = input_of(baseline, job)
    if found is None:
        return f"the job's encoder, {job.encoder.name}, is not a pretrained one"
    wanted = found[1].modality
    same = wanted == info.modality
    return "" if same else f"reads {plural(wanted)}, the data set {info.name} holds {plural(info.modality)}"


def fitting_baselines(job: JobConfig, info: DatasetInfo) -> tuple[list[str], dict[str, str]]:
    """The names of the baselines that a job can have, and why it cannot have others for its kind of data.

    One model for each of very many classes is left out, since it takes hours.
    """
    names, reasons = list[str](), dict[str, str]()
    classes = info.space(job.objective.classifier.labels).n_classes
    for name, baseline in BASELINES.items():
        if OF.get(baseline.reads, info.modality) != info.modality:
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
    """The features (N, F) of a split; (N, 0) for a baseline that reads none."""
    if baseline.reads == "nothing":
        return np.zeros((len(split), 0), dtype=np.float32)
    found = input_of(baseline, job)
    assert found is not None
    return cache.rows(*found, split)
