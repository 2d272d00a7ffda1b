"""The peer: the same trainings under Ray Tune with what comes with it.

OptunaSearch hands out the settings that ours drew, ASHAScheduler judges every validation, MLflowLoggerCallback
logs into an SQLite file; several workers are a TorchTrainer inside of the trial. It is favoured: its sampler
has nothing to draw, no artifacts are logged, and a group of workers reports at its end alone.
Ray and MLflow are imported inside of functions: a sweep is timed from before its imports.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sweep_clock import Case, Sweep, Training

Settings = Mapping[str, float]


def run_peer(
    case: Case, job: Mapping[str, Any], score: str, points: Sequence[Settings], home: Path, *, reuse: bool
) -> Sweep:
    """Trains `job` with each of the points; `reuse`: in actors that are kept. Raises what a training raises."""
    began = time.time()
    import ray

    ray.init(
        address="local",
        resources={"trial_slot": case.at_once},
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
    )
    trainings = _fit(case, dict(job), score, points, home, reuse=reuse)
    ray.shutdown()
    return Sweep(began, time.time(), case.at_once, trainings)


def _fit(
    case: Case, job: dict[str, Any], score: str, points: Sequence[Settings], home: Path, *, reuse: bool
) -> tuple[Training, ...]:
    from ray import tune
    from ray.air.integrations.mlflow import MLflowLoggerCallback
    from ray.tune.schedulers import ASHAScheduler
    from ray.tune.search.optuna import OptunaSearch

    logging.getLogger("ray.tune").setLevel(logging.ERROR)
    watch, epochs = _watch(), job["train"]["epochs"]
    fixed = {"job": job, "score": score, "home": str(home), "cpus": case.cpus}
    tuner = tune.Tuner(
        tune.with_resources(
            tune.with_parameters(_train if case.workers == 1 else _train_in_a_group, fixed=fixed),
            # A group's trial has a slot and no CPU: its workers would find no room beside it.
            {"cpu": case.cpus} if case.workers == 1 else {"trial_slot": 1},
        ),
        param_space={name: tune.uniform(0.0, 1.0) for name in points[0]},  # every point lies in it
        tune_config=tune.TuneConfig(
            metric="score",
            mode="max",
            search_alg=OptunaSearch(points_to_evaluate=[dict(point) for point in points]),
            scheduler=ASHAScheduler(time_attr="epoch", max_t=epochs, grace_period=epochs),
            num_samples=len(points),
            max_concurrent_trials=case.at_once,
            reuse_actors=reuse,
        ),
        run_config=tune.RunConfig(
            name="peer",
            storage_path=str(home),
            callbacks=[MLflowLoggerCallback(f"sqlite:///{home}/mlflow.db", experiment_name="peer"), watch],
            verbose=0,
        ),
    )
    results = list(tuner.fit())
    for result in results:
        if result.error is not None:
            raise result.error
    return tuple(watch.training(result.metrics or {}) for result in results)


def _watch() -> Any:
    """A callback that notes when the driver sees trials begin and end."""
    from ray.tune import Callback

    class Watch(Callback):
        def __init__(self) -> None:
            self.began: dict[str, float] = {}
            self.ended: dict[str, float] = {}

        def on_trial_start(self, *_: Any, trial: Any, **__: Any) -> None:
            self.began[trial.trial_id] = time.time()

        def on_trial_complete(self, *_: Any, trial: Any, **__: Any) -> None:
            self.ended[trial.trial_id] = time.time()

        def training(self, result: Mapping[str, Any]) -> Training:
            id = result["trial_id"]
            own = result["time/train_seconds"] + result["time/evaluation_seconds"]
            return Training(self.began[id], self.ended[id], own, result["score"])

    return Watch()


def _train(config: Settings, *, fixed: Mapping[str, Any]) -> None:
    """A training in the trial's own process, which reports its validations."""
    from ray import tune

    from mlcl.training.events import Event

    def listen(event: Event) -> None:
        if event.kind == "validation" and event.epoch < event.epochs:
            tune.report({**event.metrics, "score": event.metrics["val/accuracy"], "epoch": event.epoch})

    metrics = _experiment(config, fixed, tune.get_context().get_trial_id(), listen)
    tune.report(metrics)


def _train_in_a_group(config: Settings, *, fixed: Mapping[str, Any]) -> None:
    """A training by two processes that the trial starts."""
    from ray import train, tune
    from ray.train.torch import TorchConfig, TorchTrainer
    from ray.tune.integration.ray_train import TuneReportCallback

    trial = tune.get_context().get_trial_id()
    TorchTrainer(
        _worker,
        train_loop_config={"config": dict(config), "fixed": dict(fixed), "trial": trial},
        torch_config=TorchConfig(backend="gloo"),
        scaling_config=train.ScalingConfig(num_workers=2, resources_per_worker={"CPU": fixed["cpus"]}),
        run_config=train.RunConfig(
            name=f"group-{trial}", storage_path=fixed["home"], callbacks=[TuneReportCallback()]
        ),
    ).fit()


def _worker(loop: Mapping[str, Any]) -> None:
    from ray import train

    train.report(_experiment(loop["config"], loop["fixed"], loop["trial"], lambda _event: None))


def _experiment(config: Settings, fixed: Mapping[str, Any], trial: str, listen: Any) -> dict[str, float]:
    """The training itself, as ours runs it; empty but on rank 0."""
    from mlcl.config import load_job
    from mlcl.training.context import Context
    from mlcl.training.experiment import run_experiment
    from mlcl.training.material import Material

    job, home = load_job(fixed["job"], dict(config)), Path(fixed["home"])
    folder = home / "trials" / trial
    folder.mkdir(parents=True, exist_ok=True)
    outcome = run_experiment(
        Material.of(job, home, verify=False),
        folder=folder,
        context=Context.current(job.train.device),
        listener=listen,
        test=False,
    )
    if outcome is None:
        return {}
    return {**outcome.metrics, "score": outcome.metrics[fixed["score"]], "epoch": job.train.epochs}
