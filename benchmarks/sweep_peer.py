"""Runs the peer: the trainings of our sweep under Ray Tune with its own components.

OptunaSearch hands out the settings that our sweep drew, ASHAScheduler receives every validation, and
MLflowLoggerCallback logs into an SQLite file; several workers are a TorchTrainer inside the trial. The
comparison favours the peer: its sampler has nothing to draw, it logs no files, and a group of workers reports
only at its end. Ray and MLflow are imported inside functions, because a sweep is timed from before its
imports.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from sweep_clock import Case, Sweep, Training
from sweep_ours import Drawn, own_seconds

from mlcl.config import load_job

Settings = Mapping[str, float]


def run_peer(case: Case, drawn: Drawn, home: Path, reuse: bool) -> Sweep:
    """Trains the job with each of the settings, in actors that are reused or fresh. Raises their errors."""
    start = time.time()
    import ray

    ray.init(
        address="local",
        resources={"trial_slot": case.at_once},
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
    )
    trainings = _fit(case, drawn, home, reuse)
    ray.shutdown()
    return Sweep(start, time.time(), case.at_once, trainings)


def _fit(case: Case, drawn: Drawn, home: Path, reuse: bool) -> tuple[Training, ...]:
    import optuna
    from ray import tune
    from ray.air.integrations.mlflow import MLflowLoggerCallback
    from ray.tune.schedulers import ASHAScheduler
    from ray.tune.search.optuna import OptunaSearch

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    watch = _watch()
    # ASHA may stop a trial at a rung. The first rung is beyond the last epoch, so all trials are completed.
    first_rung = drawn.job["train"]["epochs"] + 1
    function = _train if case.workers == 1 else _train_in_a_group
    # The trial of a group has a slot and no CPU; with a CPU it would leave no room for its workers.
    share = {"cpu": case.cpus} if case.workers == 1 else {"trial_slot": 1}
    tuner = tune.Tuner(
        tune.with_resources(tune.with_parameters(function, case=case, drawn=drawn, home=home), share),
        param_space={name: tune.uniform(0.0, 1.0) for name in drawn.points[0]},  # holds every point
        tune_config=tune.TuneConfig(
            metric="score",
            mode="max",
            search_alg=OptunaSearch(points_to_evaluate=list(drawn.points)),
            scheduler=ASHAScheduler(time_attr="epoch", max_t=first_rung, grace_period=first_rung),
            num_samples=len(drawn.points),
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
    """Returns a callback that records when the driver sees trials begin and end."""
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
            return Training(self.began[id], self.ended[id], own_seconds(result), result["score"])

    return Watch()


def _train(config: Settings, *, case: Case, drawn: Drawn, home: Path) -> None:
    """Runs a training in the trial's own process, which reports its validations."""
    del case
    from ray import tune

    from mlcl.training.events import Event

    def listen(event: Event) -> None:
        if event.kind == "validation" and event.epoch < event.epochs:
            tune.report({**event.metrics, "score": event.metrics[drawn.metric], "epoch": event.epoch})

    tune.report(experiment(config, drawn, home, tune.get_context().get_trial_id(), listen))


def _train_in_a_group(config: Settings, *, case: Case, drawn: Drawn, home: Path) -> None:
    """Runs a training in processes that the trial starts."""
    from ray import train, tune
    from ray.train.torch import TorchConfig, TorchTrainer
    from ray.tune.integration.ray_train import TuneReportCallback

    trial = tune.get_context().get_trial_id()
    TorchTrainer(
        _worker,
        train_loop_config={"config": config, "drawn": drawn, "home": home, "trial": trial},
        torch_config=TorchConfig(backend="gloo"),
        scaling_config=train.ScalingConfig(num_workers=case.workers, resources_per_worker={"CPU": case.cpus}),
        run_config=train.RunConfig(
            name=f"group-{trial}", storage_path=str(home), callbacks=[TuneReportCallback()]
        ),
    ).fit()


def _worker(loop: dict[str, Any]) -> None:
    from ray import train

    train.report(experiment(**loop, listen=lambda _event: None))


def experiment(
    config: Settings,
    drawn: Drawn,
    home: Path,
    trial: str,
    listen: Callable[[Any], None],
    stored: Literal["float32", "figures"] = "float32",
) -> dict[str, float]:
    """Runs the training as our sweep does and returns its metrics, which are empty on all ranks but 0."""
    from mlcl.training.context import Context
    from mlcl.training.experiment import run_experiment
    from mlcl.training.job_data import JobData

    job, folder = load_job(drawn.job, config), home / "trials" / trial
    folder.mkdir(parents=True, exist_ok=True)
    outcome = run_experiment(
        JobData.of(job, home, verify=False),
        folder=folder,
        context=Context.current(job.train.device),
        listener=listen,
        test=False,
        stored=stored,
    )
    if outcome is None:
        return {}
    return {**outcome.metrics, "score": outcome.metrics[drawn.score], "epoch": job.train.epochs}
