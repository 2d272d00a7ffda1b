"""Runs one experiment: trains a network, or fits a baseline, and evaluates it.

An experiment runs in a process of its own, as one of several workers, or in a trial of a search.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from mlcl.training.baseline_fits import baseline_result
from mlcl.training.builders import build_loop, build_model
from mlcl.training.checkpoint import CHECKPOINT, seed_all
from mlcl.training.context import Context, deterministic, own_process_state
from mlcl.training.embeddings import RankRows
from mlcl.training.evaluator import Evaluation, Evaluator
from mlcl.training.events import TIMES, Event, Listener, Stopped
from mlcl.training.job_data import JobData
from mlcl.training.loop import Loop
from mlcl.training.loop_settings import Callbacks
from mlcl.training.run_files import Stored, remove_unfinished, write_results
from mlcl.training.split_metrics import METRIC_NAMES, decision_metrics

BEST_EPOCH = "best/epoch"
"""The metric with the epoch whose weights were evaluated; only the event `end` has it."""


@dataclass(frozen=True)
class ExperimentResult:
    """The metrics of an experiment, and whether it was resumed from a checkpoint."""

    metrics: dict[str, float]
    resumed: bool


def run_experiment(
    job_data: JobData,
    *,
    folder: Path,
    context: Context,
    listener: Listener,
    should_stop: Callable[[], bool] = lambda: False,
    test: bool = True,
    stored: Stored = "float32",
) -> ExperimentResult | None:
    """Trains and evaluates the network of a job, or fits its baseline.

    The training of a network continues from a checkpoint in `folder`, the folder of the run, if there is one.
    Returns the result on rank 0, None on other ranks.

    Args:
        job_data: The checked job with its data.
        folder: The folder of the run.
        context: Rank and device of this process.
        listener: Receives the events on rank 0.
        should_stop: Called after each step; True ends the training with a checkpoint.
        test: Whether to evaluate on the test split, which otherwise stays unread.
        stored: The type of stored embeddings and probabilities; `figures` stores neither them nor the model.

    Raises:
        UserError: The checkpoint belongs to another job or other data.
        Stopped: A stop was requested.
        Diverged: A loss, a weight or an output is not finite.
    """
    experiment = _Experiment(job_data, folder, context, listener, should_stop, test, stored)
    train = job_data.job.train
    if context.is_main:
        remove_unfinished(folder)
    with own_process_state(train.threads):
        if job_data.job.baseline is not None:
            return experiment.fit_baseline() if context.is_main else None
        with deterministic(train.deterministic):
            seed_all(train.seed)  # equal weights on all ranks, and then other random numbers on each
            model = build_model(job_data)
            seed_all(train.seed, context.rank)
            model.to(context.device)
            evaluator = Evaluator(job_data, model, context)
            callbacks = Callbacks(listener, evaluator.quick, should_stop)
            loop = build_loop(job_data, model, context, callbacks, folder / CHECKPOINT)
            resumed = loop.resume()
            loop.tell("start", note="resumed" if resumed else "")
            loop.run()
            metrics = experiment.evaluate(loop, evaluator)
    return ExperimentResult(metrics, resumed) if context.is_main else None


@dataclass(frozen=True)
class _Experiment:
    """The arguments of `run_experiment`, with the steps that it is made of as methods."""

    job_data: JobData
    folder: Path
    context: Context
    listener: Listener
    should_stop: Callable[[], bool]
    test: bool
    stored: Stored

    def evaluate(self, loop: Loop, evaluator: Evaluator) -> dict[str, float]:
        """Evaluates the network, writes its results and returns metrics."""
        seconds, train_end = loop.seconds, time.perf_counter()

        def start_phase(note: str) -> None:
            loop.tell("phase", note=note)
            # The last epoch's checkpoint is written: a stop here costs the evaluation alone.
            if self.context.any(self.should_stop()):
                raise Stopped

        # A rank that stopped alone would leave the others waiting for it.
        check_stop = self._check_stop if self.context.world_size == 1 else lambda: None
        result = evaluator.evaluate_final(test=self.test, tell=start_phase, check_stop=check_stop)
        for note in (*result.notes, *self._untested_notes(result.metrics)):
            loop.tell("note", note=note)
        write_results(self.folder, self.job_data, result, loop.model, self.stored)
        metrics = result.metrics | _time_metrics(seconds, train_end)
        loop.tell("end", metrics | {BEST_EPOCH: float(loop.chosen_epoch)})
        return metrics

    def fit_baseline(self) -> ExperimentResult:
        """Fits the job's baseline, or reads its cached result, and evaluates it."""
        job_data = self.job_data
        self._tell("start", {})
        start = time.perf_counter()
        self._tell("phase", {}, "baseline")
        fit = baseline_result(job_data, str(self.context.device), test=self.test, check_stop=self._check_stop)
        fit_end = time.perf_counter()
        metrics = {f"baseline/{name}": float(value) for name, value in fit.chosen.items()}
        decision = job_data.decide(fit.probabilities["validation"])
        metrics |= decision_metrics("", decision)
        score = job_data.metrics()
        for name, probabilities in fit.probabilities.items():
            metrics |= score(METRIC_NAMES[name], probabilities, job_data.dataset.split(name), decision)
        rows = RankRows(torch.empty(len(job_data.train), 0))
        no_embeddings = {name: torch.empty(len(values), 0) for name, values in fit.probabilities.items()}
        result = Evaluation(rows, metrics, no_embeddings, fit.probabilities, decisions={"": decision})
        if "test" in fit.probabilities:
            result.tested[""] = fit.probabilities["test"]
        for note in self._untested_notes(metrics):
            self._tell("note", {}, note)
        write_results(self.folder, job_data, result, stored=self.stored)
        metrics |= {"baseline/fit_cpu_seconds": fit.seconds, **_time_metrics(fit_end - start, fit_end)}
        self._tell("end", metrics)
        return ExperimentResult(metrics, resumed=False)

    def _untested_notes(self, metrics: Mapping[str, float]) -> list[str]:
        """Returns a note if the test split was read and gave no metric: none of its rows has a label."""
        test_values = (value for name, value in metrics.items() if name.startswith("test/"))
        if not (self.test and all(map(math.isnan, test_values))):
            return []
        labels = self.job_data.job.objective.classifier.labels
        return [f"no test row has a label of {labels}: there are no test figures"]

    def _tell(
        self, kind: Literal["start", "phase", "note", "end"], metrics: dict[str, float], note: str = ""
    ) -> None:
        self.listener(Event(kind, 0, 0, 0, 0, metrics, note))

    def _check_stop(self) -> None:
        if self.should_stop():
            raise Stopped


def _time_metrics(seconds: float, train_end: float) -> dict[str, float]:
    """Returns the seconds of training and of evaluation; `train_end` is the time when training ended."""
    return dict(zip(TIMES, (seconds, time.perf_counter() - train_end), strict=True))
