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
    began = time.time()
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=0))
    spread = {name: optuna.distributions.FloatDistribution(0.0, 1.0) for name in drawn.points[0]}
    for point in drawn.points:
        study.enqueue_trial(dict(point))
    found: dict[int, Training] = {}
    with ProcessPoolExecutor(case.at_once, mp_context=multiprocessing.get_context("spawn")) as pool:
        running: dict[Future[tuple[float, float]], tuple[optuna.Trial, float]] = {}
        while len(found) < len(drawn.points):
            while len(running) < case.at_once and len(found) + len(running) < len(drawn.points):
                trial = study.ask(spread)
                task = pool.submit(train, drawn.points[trial.number], drawn, home, f"trial-{trial.number}")
                running[task] = trial, time.time()
            for task in wait(running, return_when=FIRST_COMPLETED).done:
                trial, since = running.pop(task)
                score, own = task.result()
                study.tell(trial, score)
                found[trial.number] = Training(since, time.time(), own, score)
    return Sweep(began, time.time(), case.at_once, tuple(found[number] for number in sorted(found)))


def train(settings: Settings, drawn: Drawn, home: Path, name: str) -> tuple[float, float]:
    """Returns the score of a training, and the seconds in which it trained and evaluated."""
    metrics = experiment(settings, drawn, home, name, lambda _event: None, stored="figures")
    return metrics["score"], own_seconds(metrics)
