"""Logs exported models as models of MLflow: the exported folder, code to load it, and links to its run."""

from __future__ import annotations

import io
import logging
import os
from collections.abc import Callable, Mapping
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
from mlflow import MlflowClient
from mlflow.entities import LoggedModel, LoggedModelOutput, LoggedModelStatus, Metric, Run
from mlflow.exceptions import MlflowException
from mlflow.models import Model, ModelSignature
from mlflow.types.schema import Array, ColSpec, DataType, ParamSchema, ParamSpec, Schema
from PIL import Image

from mlcl.errors import UserError
from mlcl.models import ENCODERS
from mlcl.tracking.mlflow_private import last_points
from mlcl.tracking.registry import register_version
from mlcl.tracking.tracker import Tracker
from mlcl.training.export import Index

CODE = Path(__file__).with_name("pyfunc_code.py")
NAME = "exported"
"""The name of an exported model among the logged models of its run."""
EVALUATED = ("val/", "test/")
"""A metric whose name contains one of these is linked to the model."""
KINDS: Mapping[str, Any] = {
    "text": DataType.string,
    "image": DataType.binary,
    "vectors": Array(DataType.double),
}
"""MLflow's type of a model's input column, keyed by modality."""
NEEDED = ("mlcl", "torch", "numpy", "pandas", "pyarrow", "pydantic", "faiss-cpu", "safetensors", "tokenizers")

logging.getLogger("mlflow.pyfunc").setLevel(logging.WARNING)


def register_export(
    tracker: Tracker, run_id: str, folder: Path, index: Index, encoder: str, name: str, alias: str
) -> str:
    """Registers an exported folder as a version of the model `name` with `alias`, and returns its URI."""
    try:
        tracker.make_model(name)  # a name that MLflow refuses leaves no files behind
        model = log_export(tracker, run_id, folder, index, encoder)
        version = register_version(tracker, model, index, name)
        tracker.client.set_registered_model_alias(name, alias, version)
    except MlflowException as error:
        detail = f"{name}@{alias} ({tracker.reason(error)})"
        raise UserError("MLflow does not take it", key="--register", found=detail) from None
    return f"models:/{name}@{alias} (version {version})"


def log_export(tracker: Tracker, run_id: str, folder: Path, index: Index, encoder: str) -> LoggedModel:
    """Returns the model of a run. If it has none, logs the exported folder as its model.

    `mlflow.pyfunc.log_model` is not used, since it sets the run to RUNNING. Raises UserError if the files
    cannot be logged.
    """

    def save(model: LoggedModel) -> Path:
        mlflow.pyfunc.save_model(
            target,
            mlflow_model=Model(run_id=run_id, model_id=model.model_id),
            python_model=CODE,
            artifacts={"model": str(folder.resolve())},
            signature=_signature(index),
            input_example=_input_example(index),
            pip_requirements=_requirements(encoder),
        )
        return target

    with TemporaryDirectory(prefix="mlcl-") as scratch:
        target = Path(scratch) / "pyfunc"
        try:
            return log_model(tracker.client, tracker.client.get_run(run_id), save)
        except OSError as error:
            detail = f"{run_id} ({tracker.reason(error)})"
            raise UserError("MLflow does not take the model", key="RUN", found=detail) from None


def find_model(client: MlflowClient, run: Run) -> LoggedModel | None:
    """Returns the exported model of a run; None if none was logged completely."""
    models = client.search_logged_models(
        [run.info.experiment_id], f"source_run_id = '{run.info.run_id}' AND name = '{NAME}'"
    )
    return next((model for model in models if model.status == LoggedModelStatus.READY), None)


def log_model(client: MlflowClient, run: Run, save: Callable[[LoggedModel], Path]) -> LoggedModel:
    """Returns the model of a run. If it has none, logs the folder that `save` writes, linked to metrics."""
    logged = find_model(client, run)
    if logged is not None:
        return logged
    run_id = run.info.run_id
    model = client.create_logged_model(run.info.experiment_id, NAME, run_id, params=dict(run.data.params))
    try:
        client.log_model_artifacts(model.model_id, str(save(model)))
        client.log_outputs(run_id, [LoggedModelOutput(model.model_id, step=0)])
        client.log_batch(run_id, metrics=_linked_metrics(run, model), synchronous=True)
        return client.finalize_logged_model(model.model_id, LoggedModelStatus.READY)
    except BaseException:
        with suppress(Exception):
            client.delete_logged_model(model.model_id)
        raise


def _linked_metrics(run: Run, model: LoggedModel) -> list[Metric]:
    """Returns the run's last point of each evaluation metric, to be logged again with model and data set."""
    data = next((item.dataset for item in run.inputs.dataset_inputs), None)
    return [
        Metric(
            point.key,
            point.value,
            point.timestamp,
            point.step,
            model_id=model.model_id,
            dataset_name=data and data.name,
            dataset_digest=data and data.digest,
            run_id=run.info.run_id,
        )
        for point in last_points(run)
        if any(part in point.key for part in EVALUATED)
    ]


def _signature(index: Index) -> ModelSignature:
    kind = KINDS[index.modality]
    parameters = [ParamSpec("predictor", DataType.string, index.best)]
    if index.task == "multi_label":
        parameters.append(ParamSpec("threshold", DataType.double, None))
    return ModelSignature(
        Schema([ColSpec(kind, index.modality)]), Schema(_output_columns(index)), ParamSchema(parameters)
    )


def _output_columns(index: Index) -> list[ColSpec]:
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


def _input_example(index: Index) -> pd.DataFrame:
    """Returns a made-up example, since the rows of the data set may be confidential."""
    if index.modality == "text":
        return pd.DataFrame({"text": ["an example"]})
    if index.modality == "vectors":
        return pd.DataFrame({"vectors": [np.zeros(int(str(index.preprocessing["dim"]))).tolist()]})
    with io.BytesIO() as file:
        Image.new("RGB", (32, 32), "gray").save(file, "PNG")
        return pd.DataFrame({"image": [file.getvalue()]})


def _requirements(encoder: str) -> list[str]:
    requirements = []
    for name in (*NEEDED, *ENCODERS[encoder].packages):
        # Some are optional, such as peft, which only adapters need.
        with suppress(metadata.PackageNotFoundError):
            requirements.append(f"{name}=={metadata.version(name)}")
    return requirements
