"""One trial, in the actor that Ray Tune keeps for it: the same experiment as a plain run."""

from __future__ import annotations

import json
import traceback
from pathlib import Path
from typing import Any

from mlcl.config import JobConfig, dump_job, load_job
from mlcl.service.searcher import EPOCH, FINAL, SCORE
from mlcl.tracking import RunLog, Tracker, mlflow_listener
from mlcl.training.context import Context
from mlcl.training.events import Event, Listener, tell_all
from mlcl.training.experiment import run_experiment
from mlcl.training.files import EMBEDDINGS, MODEL, RESULT
from mlcl.training.material import Material


def trial_config(
    job: JobConfig, *, folder: Path, home: Path, uri: str, run_id: str, score: str, test: bool
) -> dict[str, Any]:
    """What travels to the actor: plain data, as one string that Tune does not take apart."""
    payload = {
        "job": dump_job(job),
        "folder": str(folder.resolve()),
        "home": str(home.resolve()),
        "uri": uri,
        "run_id": run_id,
        "score": score,
        "test": test,
    }
    return {"payload": json.dumps(payload)}


def run_trial(config: dict[str, Any]) -> None:
    """Trains, evaluates and reports. The driver, which knows why a trial ended, sets the run's state."""
    from ray import tune

    payload = json.loads(config["payload"])
    job, folder = load_job(payload["job"]), Path(payload["folder"])
    log = Tracker(Path(payload["home"]), payload["uri"]).attach(payload["run_id"])
    if log is None:
        raise RuntimeError(f"MLflow run {payload['run_id']} is gone")

    def report(score: float, epoch: int, final: bool) -> None:
        tune.report({SCORE: score, EPOCH: epoch, FINAL: int(final)})

    try:
        material = Material.of(job, Path(payload["home"]), verify=False)
        outcome = run_experiment(
            material,
            folder=folder,
            context=Context.current(job.train.device),
            listener=tell_all(mlflow_listener(log), _rungs(job, report)),
            test=payload["test"],
        )
        assert outcome is not None
        log.artifacts([folder / name for name in (RESULT, EMBEDDINGS, MODEL)])
        log.flush()
        report(outcome.metrics[payload["score"]], job.train.epochs, True)
    except Exception as error:
        _keep_reason(log, error)
        raise
    finally:
        log.flush()


def _rungs(job: JobConfig, report: Any) -> Listener:
    """Reports the selecting metric at every validation but the last, which the final evaluation replaces."""
    metric = job.evaluation.metric

    def listen(event: Event) -> None:
        if event.kind == "validation" and event.epoch < event.epochs:
            # Two-phase jobs have no classifier while they train: their neighbours stand in for it.
            value = event.metrics.get(metric, event.metrics.get(f"knn/{metric}"))
            if value is not None:
                report(float(value), event.epoch, False)

    return listen


def _keep_reason(log: RunLog, error: Exception) -> None:
    log.tags({"mlcl.reason": f"{type(error).__name__}: {error}"[:5000]})
    log.text(traceback.format_exc(), "error.txt")
