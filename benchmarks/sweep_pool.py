"""Runs the peer that stores nothing: Optuna draws, and a plain pool of processes trains.

It runs the trainings of our sweep with the settings that our sweep drew. It keeps no states, logs, MLflow
runs or models, and its results are lost when its process ends.
"""

from __future__ import annotations

import multiprocessing
import time
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path

from sweep_clock import Case, Sweep, Training
from sweep_ours import Drawn, own_seconds
from sweep_peer import Settings, experiment


def run_pool(case: Case, drawn: Drawn, home: Path) -> Sweep:
    """Trains the job with each of the settings, `at_once` at a time. Raises the error of a training."""
    start = time.time()
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=0))
    distributions = {name: optuna.distributions.FloatDistribution(0.0, 1.0) for name in drawn.points[0]}
    for point in drawn.points:
        study.enqueue_trial(dict(point))
    trainings: dict[int, Training] = {}
    with ProcessPoolExecutor(case.at_once, mp_context=multiprocessing.get_context("spawn")) as pool:
        futures: dict[Future[tuple[float, float]], tuple[optuna.Trial, float]] = {}
        while len(trainings) < len(drawn.points):
            while len(futures) < case.at_once and len(trainings) + len(futures) < len(drawn.points):
                trial = study.ask(distributions)
                future = pool.submit(train, drawn.points[trial.number], drawn, home, f"trial-{trial.number}")
                futures[future] = trial, time.time()
            for future in wait(futures, return_when=FIRST_COMPLETED).done:
                trial, trial_start = futures.pop(future)
                score, own_time = future.result()
                study.tell(trial, score)
                trainings[trial.number] = Training(trial_start, time.time(), own_time, score)
    return Sweep(start, time.time(), case.at_once, tuple(trainings[number] for number in sorted(trainings)))


def train(settings: Settings, drawn: Drawn, home: Path, name: str) -> tuple[float, float]:
    """Returns the score of a training, and the seconds in which it trained and evaluated."""
    metrics = experiment(settings, drawn, home, name, lambda _event: None, stored="figures")
    return metrics["score"], own_seconds(metrics)
