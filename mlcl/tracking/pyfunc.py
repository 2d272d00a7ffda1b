"""Exported models as pyfunc models in MLflow's registry: the exported folder, and code that loads it."""

from __future__ import annotations

import io
import logging
import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

# Set before MLflow reads them: no progress bars, and no lock files of the working folder.
os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
os.environ.setdefault("MLFLOW_UV_AUTO_DETECT", "false")

import mlflow.pyfunc
import numpy as np
import pandas as pd
from mlflow.entities.model_registry import ModelVersion
from mlflow.exceptions import MlflowException
from mlflow.models import ModelSignature
from mlflow.types.schema import Array, ColSpec, DataType, ParamSchema, ParamSpec, Schema
from PIL import Image

from mlcl.errors import UserError
from mlcl.models import ENCODERS
from mlcl.tracking.artifacts import replace_artifacts
from mlcl.tracking.tracker import Tracker
from mlcl.training.export import Index
from mlcl.training.export.model_index import INDEX
from mlcl.training.export.readme import describe

ARTIFACT = "pyfunc"
"""The artifact with the model."""
CODE = Path(__file__).with_name("pyfunc_code.py")
URI = re.compile(r"models:/(?P<name>[^@/]+)(@(?P<alias>[^@/]+)|/(?P<version>\d+))")
ALIAS = re.compile(r"(?!(?i:latest|v\d+)$)[\w-]+")
KINDS: Mapping[str, Any] = {
    "text": DataType.string,
    "image": DataType.binary,
    "vectors": Array(DataType.double),
}
"""MLflow's type of what a model reads, by modality."""
MAX_DESCRIPTION = 5000
"""Longest description, in characters, that MLflow's store keeps."""
NEEDED = ("mlcl", "torch", "numpy", "pandas", "pyarrow", "pydantic", "faiss-cpu", "safetensors", "tokenizers")

logging.getLogger("mlflow.pyfunc").setLevel(logging.WARNING)


def check_name(name: str, alias: str) -> None:
    """Raises UserError for a name or an alias that MLflow or a URI cannot have."""
    if not name.strip() or set(name) & set("/:@"):
        raise UserError("no name of a model", key="--register", found=name, allowed="a name without / : @")
    if ALIAS.fullmatch(alias) is None:
        raise UserError(
            "no alias",
            key="--alias",
            found=alias,
            allowed="letters, digits, _ and -, but neither latest nor a version such as v1",
        )


def register_export(
    tracker: Tracker, run_id: str, folder: Path, index: Index, encoder: str, name: str, alias: str
) -> str:
    """Registers an exported folder, and sets `alias` to the version; a line for the user.

    Raises UserError where MLflow does not take it.
    """
    try:
        tracker.make_model(name)  # a name that MLflow refuses leaves no files behind
        log_model(tracker, run_id, folder, index, encoder)
        version = register_version(tracker, run_id, index, name)
        tracker.client.set_registered_model_alias(name, alias, version)
    except MlflowException as error:
        reason = tracker.safe(str(error)).splitlines()[0]
        raise UserError(
            "MLflow does not take it", key="--register", found=f"{name}@{alias} ({reason})"
        ) from None
    return f"models:/{name}@{alias} (version {version})"


def register_version(tracker: Tracker, run_id: str, index: Index, name: str, more: str = "") -> str:
    """Registers a run's logged model as a version of the model `name`, once a run; returns the version.

    The version's description is that of the index, and `more`. Raises MlflowException.
    """
    client, source = tracker.client, _source(tracker, run_id)
    version = tracker.versions(run_id, source).get(name)
    if version is None:
        tracker.make_model(name)
        tags = {"way": index.best, "metric": index.metric}
        text = f"{describe(index)}\n\n{more}"[:MAX_DESCRIPTION]
        made = client.create_model_version(name, source, run_id, tags=tags, description=text)
        version = str(made.version)
    return version


def fetch_registered(tracker: Tracker, uri: str, to: Path) -> Path:
    """Downloads the exported folder of `models:/NAME@ALIAS` or `models:/NAME/VERSION` to a folder below `to`.

    Raises UserError where there is none, and for a version that is not an export.
    """
    parts = URI.fullmatch(uri)
    if parts is None:
        raise UserError(
            "names no model", key="MODEL", found=uri, allowed="models:/NAME@ALIAS, models:/NAME/1"
        )
    try:
        version = _find_version(tracker, parts)
        found: Iterable[Path] = ()
        if str(version.source).endswith(f"/{version.run_id}/artifacts/{ARTIFACT}"):
            place = f"{ARTIFACT}/artifacts"
            held = Path(tracker.client.download_artifacts(str(version.run_id), place, str(to)))
            # MLflow keeps the name of the folder that was exported.
            found = held.glob(f"*/{INDEX}")
    except (MlflowException, OSError) as error:
        reason = tracker.safe(str(error)).splitlines()[0]
        raise UserError("no such registered model", key="MODEL", found=f"{uri} ({reason})") from None
    for file in found:
        return file.parent
    raise UserError("not an exported model", key="MODEL", found=uri, allowed=f"mlcl export {version.run_id}")


def _find_version(tracker: Tracker, parts: re.Match[str]) -> ModelVersion:
    if parts["alias"] is not None:
        return tracker.client.get_model_version_by_alias(parts["name"], parts["alias"])
    return tracker.client.get_model_version(parts["name"], parts["version"])


def _source(tracker: Tracker, run_id: str) -> str:
    return f"{tracker.client.get_run(run_id).info.artifact_uri}/{ARTIFACT}"


def log_model(tracker: Tracker, run_id: str, folder: Path, index: Index, encoder: str) -> None:
    """Logs an exported folder as the run's model, unless a version is made of the run's.

    MLflow's own `log_model` would set the run RUNNING and log metrics again. Raises UserError where MLflow
    does not take it.
    """
    if tracker.versions(run_id, _source(tracker, run_id)):
        return
    with TemporaryDirectory(prefix="mlcl-") as scratch:
        target = Path(scratch) / ARTIFACT
        mlflow.pyfunc.save_model(
            target,
            python_model=CODE,
            artifacts={"model": str(folder.resolve())},
            signature=_signature(index),
            input_example=_example(index),
            pip_requirements=_requirements(encoder),
        )
        replace_artifacts(tracker, run_id, target, ARTIFACT)  # an interrupted upload may have left files


def _signature(index: Index) -> ModelSignature:
    kind = KINDS[index.modality]
    parameters = [ParamSpec("way", DataType.string, index.best)]
    if index.task == "multi_label":
        parameters.append(ParamSpec("threshold", DataType.double, None))
    return ModelSignature(
        Schema([ColSpec(kind, index.modality)]), Schema(_outputs(index)), ParamSchema(parameters)
    )


def _outputs(index: Index) -> list[ColSpec]:
    text: Any = DataType.string
    number: Any = DataType.double
    if index.task == "aspects":
        aspects = index.space.aspects
        return [ColSpec(text, f"label.{a}") for a in aspects] + [
            ColSpec(number, f"probability.{a}") for a in aspects
        ]
    if index.task == "multi_label":
        return [ColSpec(Array(text), "label"), ColSpec(Array(number), "probability")]
    levels = [ColSpec(text, f"label.{level}", required=False) for level in index.levels]
    return [ColSpec(text, "label"), ColSpec(number, "probability"), *levels]


def _example(index: Index) -> pd.DataFrame:
    """A made-up example, since the rows of the data set may be confidential."""
    if index.modality == "text":
        return pd.DataFrame({"text": ["an example"]})
    if index.modality == "vectors":
        return pd.DataFrame({"vectors": [np.zeros(int(str(index.preprocessing["dim"]))).tolist()]})
    with io.BytesIO() as file:
        Image.new("RGB", (32, 32), "gray").save(file, "PNG")
        return pd.DataFrame({"image": [file.getvalue()]})


def _requirements(encoder: str) -> list[str]:
    """The packages that predicting needs, with their installed versions."""
    found = []
    for name in (*NEEDED, *ENCODERS[encoder].packages):
        # Some are optional, as peft, which only adapters need.
        with suppress(metadata.PackageNotFoundError):
            found.append(f"{name}=={metadata.version(name)}")
    return found
