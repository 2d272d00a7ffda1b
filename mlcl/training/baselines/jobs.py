"""Makes the jobs of baselines: says which baselines fit a job, and which features they read.

Shapes: N rows, F features.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mlcl.config import JobConfig, dump_job, load_job
from mlcl.config.encoder_section import EncoderConfig
from mlcl.data import Dataset, DatasetInfo, Split
from mlcl.data.format import plural
from mlcl.errors import UserError
from mlcl.models.encoder import FeatureInput, InputName
from mlcl.models.encoders.features import (
    CharactersInput,
    ColumnInput,
    ImageInput,
    TfidfInput,
    TransformerInput,
    WordsInput,
)
from mlcl.models.encoders.resnet import ResNetConfig
from mlcl.models.pretrained import PretrainedKeys
from mlcl.training.baselines.baseline import BASELINES, Baseline, Part
from mlcl.training.features.cache import EXTRACTORS, FeatureCache
from mlcl.training.features.extractor import Matrix
from mlcl.training.features.inputs import sections
from mlcl.training.split_metrics import hierarchy_of
from mlcl.unit_rows import unit_rows

ENCODERS: dict[str, dict[str, Any]] = {
    "text": {"name": "cnn_text"},
    "image": {"name": "cnn_image"},
    "vectors": {"name": "features", "inputs": ["column"]},
}
"""An encoder for each modality: a job must name one, even though a baseline trains none."""
INPUTS: dict[Part, tuple[InputName, FeatureInput]] = {
    "tfidf": ("tfidf", TfidfInput(max_features=100_000)),
    "characters": ("characters", CharactersInput(max_features=100_000)),
    "words": ("words", WordsInput()),
    "pixels": ("image", ImageInput(image_size=16)),
    "column": ("column", ColumnInput()),
}
"""The frozen input for each feature that baselines read, but for `encoder`, which depends on the job."""
UNIT: tuple[Part, ...] = ("words", "encoder")
"""The features whose rows are scaled to unit length; rows of TF-IDF have unit length already."""
MOST_MODELS = 50_000_000
"""The largest number of rows times classes at which one model per class is fitted unasked: ten minutes."""


def baseline_job(job: JobConfig, name: str) -> JobConfig:
    """Returns the job that fits the baseline `name` to the data and labels of `job`, with its metric."""
    tree = dump_job(job)
    evaluation = tree["evaluation"]
    metric = "val/" + evaluation["metric"].rpartition("/")[2]
    tree["objective"] = {"classifier": {**tree["objective"]["classifier"], "weight": "remainder"}}
    unused = dict.fromkeys(("knn", "probe", "transfer_to", "ensemble"))
    tree["evaluation"] = {**evaluation, "metric": metric, **unused}
    tree["train"].pop("sampler")  # a baseline has no batches
    return load_job({**tree, "baseline": name})


def job_or_dataset(path: Path, overrides: Sequence[str], labels: str | None) -> JobConfig:
    """Loads the job file `path`, or the `dataset_job` of the data set in the folder `path`.

    Raises UserError if `labels` is given with a job file.
    """
    if path.is_dir():
        return load_job(dataset_job(path, labels), overrides)
    if labels is not None:
        raise UserError("goes with the folder of a data set", key="--labels", found=labels)
    return load_job(path, overrides)


def dataset_job(place: Path, labels: str | None = None) -> dict[str, Any]:
    """Returns, as plain data, a job on the prepared data set in a folder that predicts the space `labels`.

    Raises UserError if `labels` is None and the data set has several label spaces.
    """
    info = Dataset.open(place).info
    name = labels or _only_space_name(info, place)
    several = info.space(name).kind == "multi_label"
    loss, metric = ("bce", "val/micro_f1") if several else ("cross_entropy", "val/accuracy")
    return {
        "experiment": re.sub(r"[^A-Za-z0-9._-]+", "-", info.name).strip("-.") or "data",
        "data": {"path": str(place)},
        "encoder": ENCODERS[info.modality],
        "objective": {"classifier": {"loss": loss, "labels": name}},
        "train": {"epochs": 1, "batch_size": 2},
        "evaluation": {"metric": metric},
    }


def _only_space_name(info: DatasetInfo, folder: Path) -> str:
    hierarchies = [space for space in info.label_spaces.values() if space.kind == "hierarchy"]
    level_names = {level for space in hierarchies for level in space.levels}
    names = [
        name for name, s in info.label_spaces.items() if s.kind != "hierarchy" and name not in level_names
    ]
    names = [*dict.fromkeys([*names, *(space.levels[-1] for space in hierarchies)])]
    if len(names) > 1:
        raise UserError("several label spaces", file=folder, key="--labels", allowed=names)
    return names[0]


def inputs_of(baseline: Baseline, job: JobConfig) -> dict[Part, tuple[InputName, FeatureInput]]:
    """Returns the name and section of the frozen input for each feature that the baseline reads.

    The feature `encoder` is missing if the job's encoder is not pretrained.
    """
    inputs = {
        part: _frozen_input(job.encoder) if part == "encoder" else INPUTS[part] for part in baseline.reads
    }
    return {part: entry for part, entry in inputs.items() if entry is not None}


def _frozen_input(section: EncoderConfig) -> tuple[InputName, FeatureInput] | None:
    if isinstance(section, PretrainedKeys):
        # A frozen model reads a text whole, also where the encoder reads it in chunks.
        length: int = min(section.max_length, getattr(section, "chunk_length", section.max_length))
        return "transformer", TransformerInput(model=section.model, max_length=length)
    for name, input_section in sections(section).items():
        if name == "transformer" or (
            isinstance(input_section, ImageInput) and input_section.network != "pixels"
        ):
            return name, input_section
    if isinstance(section, ResNetConfig) and section.weights is not None:
        image = ImageInput(network=section.name, weights=section.weights, image_size=section.image_size)
        return "image", image
    return None


def unfit_reason(baseline: Baseline, job: JobConfig, info: DatasetInfo) -> str:
    """Returns the reason why a baseline cannot be used with a job, or an empty string if it can."""
    inputs = inputs_of(baseline, job)
    if len(inputs) < len(baseline.reads):
        return f"the job's encoder, {job.encoder.name}, is not a pretrained one"
    if "encoder" in inputs and isinstance(job.encoder, ResNetConfig):
        if job.encoder.stem != "imagenet":
            return f"reads images by the stem imagenet, the job's encoder by the stem {job.encoder.stem}"
        if job.encoder.stretch:
            return "reads the centres of images, the job's encoder reads them whole: encoder.stretch"
    for _, section in inputs.values():
        if section.modality != info.modality:
            return f"reads {plural(section.modality)}, the data set {info.name} holds {plural(info.modality)}"
    if not _has_levels(baseline, job, info):
        return f"{job.objective.classifier.labels} has no coarser levels of single classes"
    try:
        if "words" in inputs:
            EXTRACTORS["words"].state(inputs["words"][1])
    except UserError as error:
        return f"{error.problem}: {error.allowed}"
    return ""


def _has_levels(baseline: Baseline, job: JobConfig, info: DatasetInfo) -> bool:
    """Whether the job's classes have coarser levels, or the baseline needs none."""
    labels = job.objective.classifier.labels
    single = info.space(labels).kind == "single"
    return not baseline.hierarchical or (single and hierarchy_of(info, labels) is not None)


def fitting_baselines(
    job: JobConfig, info: DatasetInfo, *, in_sweeps: bool = False
) -> tuple[list[str], dict[str, str]]:
    """Returns the names of the baselines that fit a job's data, and why others do not, keyed by name.

    Baselines of another modality, or of a hierarchy that the classes lack, are in neither. With `in_sweeps`
    only baselines are considered that sweeps fit without being asked: those with `Baseline.in_sweeps`, and
    those that read nothing but inputs of the job's network. A baseline with one model per class does not fit
    if fitting all models would take too long, see `MOST_MODELS`.
    """
    names, reasons = list[str](), dict[str, str]()
    of_network = set(getattr(job.encoder, "inputs", ()))
    classes = info.space(job.objective.classifier.labels).n_classes
    for name, baseline in BASELINES.items():
        modalities = {INPUTS[part][1].modality for part in baseline.reads if part in INPUTS}
        considered = baseline.in_sweeps or bool(baseline.reads and of_network.issuperset(baseline.reads))
        unsuitable = modalities - {info.modality} or not _has_levels(baseline, job, info)
        if unsuitable or (in_sweeps and not considered):
            continue
        reason = unfit_reason(baseline, job, info)
        # A text has about ten times as many sequences of characters as of words.
        limit = MOST_MODELS // 10 if "characters" in baseline.reads else MOST_MODELS
        if not reason and baseline.each_class and info.rows["train"] * classes > limit:
            reason = f"one model for each of {classes:,} classes takes too long"
        if reason:
            reasons[name] = reason
        else:
            names.append(name)
    return names, reasons


def read_rows(baseline: Baseline, job: JobConfig, cache: FeatureCache, split: Split) -> Matrix:
    """Reads or computes the features (N, F) of a split that a baseline reads, see `join_features`."""
    inputs = inputs_of(baseline, job)
    return join_features({part: cache.rows(*entry, split) for part, entry in inputs.items()}, len(split))


def join_features(parts: Mapping[Part, Matrix], rows: int) -> Matrix:
    """Returns the `rows` rows (N, F) of all kinds of features side by side; of several kinds as a CSR array.

    Rows of the features in `UNIT` are scaled to unit length. Without features the result is (N, 0).
    """
    matrices = [
        unit_rows(torch.from_numpy(np.array(matrix, np.float32))).numpy() if part in UNIT else matrix
        for part, matrix in parts.items()
    ]
    if not matrices:
        return np.zeros((rows, 0), dtype=np.float32)
    if len(matrices) == 1:
        return matrices[0]
    from scipy.sparse import csr_array, hstack

    return csr_array(hstack([csr_array(matrix) for matrix in matrices], format="csr"))
