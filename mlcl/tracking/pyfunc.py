"""Exported models as pyfunc models in MLflow's registry: the exported folder, and code that loads it."""

from __future__ import annotations

import io
import json
import logging
import os
import re
from collections.abc import Mapping
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
from mlflow.artifacts import download_artifacts
from mlflow.entities import LoggedModel
from mlflow.entities.model_registry import ModelVersion
from mlflow.exceptions import MlflowException
from mlflow.models import Model, ModelSignature
from mlflow.types.schema import Array, ColSpec, DataType, ParamSchema, ParamSpec, Schema
from PIL import Image

from mlcl.errors import UserError
from mlcl.models import ENCODERS
from mlcl.tracking.logged_model import log_model
from mlcl.tracking.mlflow_private import VERSIONS_TAG
from mlcl.tracking.tracker import Tracker
from mlcl.training.export import Index
from mlcl.training.export.model_index import INDEX
from mlcl.training.export.model_writer import describe

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
        model = log_export(tracker, run_id, folder, index, encoder)
        version = register_version(tracker, model, index, name)
        tracker.client.set_registered_model_alias(name, alias, version)
    except MlflowException as error:
        reason = tracker.safe(str(error)).splitlines()[0]
        raise UserError(
            "MLflow does not take it", key="--register", found=f"{name}@{alias} ({reason})"
        ) from None
    return f"models:/{name}@{alias} (version {version})"


def register_version(tracker: Tracker, model: LoggedModel, index: Index, name: str, more: str = "") -> str:
    """Registers a run's logged model as a version of the model `name`, once a run; returns the version.

    The version's description is that of the index, and `more`. Raises MlflowException.
    """
    run_id, source = str(model.source_run_id), str(model.artifact_location)
    versions = tracker.versions(run_id, source)
    if name not in versions:
        tracker.make_model(name)
        tags = {"way": index.best, "metric": index.metric}
        text = f"{describe(index)}\n\n{more}"[:MAX_DESCRIPTION]
        made = tracker.client.create_model_version(
            name, source, run_id, tags=tags, description=text, model_id=model.model_id
        )
        versions[name] = str(made.version)
        # For the model's page: a server does this itself, a store that is a file does not.
        listed = [{"name": its, "version": version} for its, version in versions.items()]
        tracker.client.set_logged_model_tags(model.model_id, {VERSIONS_TAG: json.dumps(listed)})
    return versions[name]


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
        held = Path(download_artifacts(f"{version.source}/artifacts", None, None, str(to), tracker.uri))
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


def log_export(tracker: Tracker, run_id: str, folder: Path, index: Index, encoder: str) -> LoggedModel:
    """Logs an exported folder as the run's model, unless it has one.

    MLflow's own `log_model` would set the run RUNNING. Raises UserError or MlflowException where MLflow does
    not take it.
    """

    def save(model: LoggedModel) -> Path:
        mlflow.pyfunc.save_model(
            target,
            mlflow_model=Model(run_id=run_id, model_id=model.model_id),
            python_model=CODE,
            artifacts={"model": str(folder.resolve())},
            signature=_signature(index),
            input_example=_example(index),
            pip_requirements=_requirements(encoder),
        )
        return target

    with TemporaryDirectory(prefix="mlcl-") as scratch:
        target = Path(scratch) / "pyfunc"
        try:
            return log_model(tracker.client, tracker.client.get_run(run_id), save)
        except OSError as error:
            reason = tracker.safe(str(error)).splitlines()[0]
            raise UserError(
                "MLflow does not take the model", key="RUN", found=f"{run_id} ({reason})"
            ) from None


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
