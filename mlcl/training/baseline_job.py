"""The jobs of baselines: what they keep of the job that they stand beside, or of a data set alone."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mlcl.config import JobConfig, dump_job, load_job
from mlcl.data import Dataset, DatasetInfo
from mlcl.errors import UserError

ENCODERS: dict[str, dict[str, Any]] = {
    "text": {"name": "cnn_text"},
    "image": {"name": "cnn_image"},
    "vectors": {"name": "features", "inputs": ["column"]},
}
"""An encoder that fits the modality: a job must name one, though a baseline trains none."""


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
