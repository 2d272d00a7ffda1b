"""A run's exported model as a LoggedModel of MLflow, linked to the run's figures, parameters and data set."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from mlflow import MlflowClient
from mlflow.entities import LoggedModel, LoggedModelOutput, LoggedModelStatus, Metric, Run

from mlcl.tracking.mlflow_private import last_points

NAME = "exported"
"""The name of the model among those of its run."""
EVALUATED = ("val/", "test/")
"""Parts of the names of figures that a model is judged by."""


def find_model(client: MlflowClient, run: Run) -> LoggedModel | None:
    """The run's exported model; None where it has none that is complete."""
    found = client.search_logged_models(
        [run.info.experiment_id], f"source_run_id = '{run.info.run_id}' AND name = '{NAME}'"
    )
    return next((model for model in found if model.status == LoggedModelStatus.READY), None)


def log_model(client: MlflowClient, run: Run, folder: Callable[[LoggedModel], Path]) -> LoggedModel:
    """The run's exported model, which is logged where the run has none: the files that `folder` writes.

    What is interrupted leaves no model. Raises MlflowException or OSError where MLflow does not take it.
    """
    found = find_model(client, run)
    if found is not None:
        return found
    run_id = run.info.run_id
    with _made(client, run) as model:
        client.log_model_artifacts(model.model_id, str(folder(model)))
        client.log_outputs(run_id, [LoggedModelOutput(model.model_id, step=0)])
        client.log_batch(run_id, metrics=_figures(run, model))
        return client.finalize_logged_model(model.model_id, LoggedModelStatus.READY)


@contextmanager
def _made(client: MlflowClient, run: Run) -> Iterator[LoggedModel]:
    """A new model, which is deleted where the context raises."""
    model = client.create_logged_model(
        run.info.experiment_id, NAME, run.info.run_id, params=dict(run.data.params)
    )
    try:
        yield model
    except BaseException:
        with suppress(Exception):
            client.delete_logged_model(model.model_id)
        raise


def _figures(run: Run, model: LoggedModel) -> list[Metric]:
    """The run's last figures, which MLflow has, again: now with the model and the data set."""
    data = next((each.dataset for each in run.inputs.dataset_inputs), None)
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
