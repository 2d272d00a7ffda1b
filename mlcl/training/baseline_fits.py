"""Fits the baseline of a job, caches the fit for all runs on the same data, and weighs it in an ensemble."""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from statistics import fmean

import numpy as np
import torch
from filelock import FileLock, Timeout
from torch import Tensor

from mlcl._version import __version__
from mlcl.config import JobConfig, job_hash
from mlcl.config.training_sections import ObjectiveConfig, TrainConfig
from mlcl.data.cache_entries import read_cached
from mlcl.data.validation_rows import redraws_validation
from mlcl.evaluation import Ensemble, choose_ensemble
from mlcl.training.baselines.baseline import BASELINES, Problem
from mlcl.training.baselines.jobs import baseline_job, inputs_of, read_rows
from mlcl.training.context import pick_device
from mlcl.training.features.cache import EXTRACTORS, FeatureCache
from mlcl.training.job_data import JobData, open_dataset
from mlcl.training.split_metrics import METRIC_NAMES

LOOK_EVERY = 0.5
"""The seconds between checks for a requested stop, while another process fits the same baseline."""
FORM = 3
"""The version of cached fits; it is raised when their format or the results of a built-in baseline change."""
TENSOR = "tensor."
"""The prefix of the names of `Fitted.tensors` in a cached file."""


@dataclass(frozen=True)
class BaselineResult:
    """The result of fitting a baseline.

    `probabilities` are keyed by split, `chosen` are the settings that validation chose, `seconds` is the CPU
    time of the fit, and `tensors` are the fitted values, see `Fitted.tensors`.
    """

    probabilities: dict[str, Tensor]
    chosen: dict[str, float]
    seconds: float
    tensors: dict[str, Tensor] = field(default_factory=dict)


def baseline_result(
    job_data: JobData, device: str, *, test: bool, check_stop: Callable[[], None] = lambda: None
) -> BaselineResult:
    """Returns the result of a job's baseline from the cache, or fits the baseline while other processes wait.

    The result does not depend on `train.seed`, so all seeds, sweeps and tables on the data share it. `device`
    is the type of the device on which a frozen encoder computes; without `test`, the result has no test
    probabilities. `check_stop` is called now and then; it raises an exception if a stop was requested.
    """
    folder = job_data.cache / "baselines"
    folder.mkdir(parents=True, exist_ok=True)
    test_file, validation_file = (
        folder / f"{_cache_key(job_data)}-{name}.npz" for name in ("test", "validation")
    )
    file = test_file if test or test_file.exists() else validation_file
    lock = FileLock(file.with_suffix(".lock"))
    fit = partial(_fit_baseline, job_data, device, test=file == test_file, check_stop=check_stop)
    while True:
        check_stop()
        try:
            with lock.acquire(timeout=LOOK_EVERY):
                result = read_cached(file, lambda work: _write_result(work, fit()), _read_result)
        except Timeout:
            continue
        if not test:
            result.probabilities.pop("test", None)
        return result


def _fit_baseline(
    job_data: JobData, device: str, *, test: bool, check_stop: Callable[[], None]
) -> BaselineResult:
    job = job_data.job
    baseline = BASELINES[str(job.baseline)]
    cache = FeatureCache(job_data.cache, job_data.train, device)
    start = time.process_time()
    validation = job_data.dataset.split("validation")
    problem = Problem(
        task=job_data.task,
        n_classes=job_data.space.n_classes,
        rows=read_rows(baseline, job, cache, job_data.train),
        targets=job_data.targets(job_data.train),
        validation=read_rows(baseline, job, cache, validation),
        score=validation_score(job_data),
        check_stop=check_stop,
        path=job_data.facts.path,
    )
    fitted = baseline.fit(problem)
    probabilities = {"validation": fitted.probabilities(problem.validation)}
    if test:
        rows = read_rows(baseline, job, cache, job_data.dataset.split("test"))
        probabilities["test"] = fitted.probabilities(rows)
    seconds = time.process_time() - start
    return BaselineResult(probabilities, dict(fitted.chosen), seconds, dict(fitted.tensors))


def validation_score(job_data: JobData) -> Callable[[Tensor], float]:
    """Returns a function from validation probabilities to the job's metric, negated if smaller is better."""
    scoring, validation = job_data.scoring, job_data.dataset.split("validation")
    targets, facts = job_data.targets(validation), job_data.facts_of(validation)

    def score(probabilities: Tensor) -> float:
        names = [scoring.metric]
        values = scoring.evaluate(job_data.task, probabilities, targets, names, facts)
        return scoring.sign * values.get(scoring.metric, math.nan)

    return score


def _cache_key(job_data: JobData) -> str:
    """Returns the cache key of a baseline: version, data, the job without keys of networks, frozen models."""
    job = job_data.job
    frozen_inputs = inputs_of(BASELINES[str(job.baseline)], job).values()
    states = json.dumps(
        [[name, EXTRACTORS[name].state(section)] for name, section in frozen_inputs], default=str
    )
    classifier = job.objective.classifier.model_copy(update={"weight": "remainder"})
    objective, train = ObjectiveConfig(classifier=classifier), TrainConfig(epochs=1, batch_size=2)
    plain_job = job.model_copy(update={"experiment": "any", "objective": objective, "train": train})
    models = hashlib.sha256(states.encode()).hexdigest()[:16]
    return f"{__version__}-{FORM}-{job_data.fingerprint}-{job_hash(plain_job)}-{models}"


def _write_result(file: Path, result: BaselineResult) -> None:
    tensors = {f"{TENSOR}{name}": tensor for name, tensor in result.tensors.items()}
    arrays = {name: values.numpy() for name, values in {**result.probabilities, **tensors}.items()}
    summary = json.dumps({"chosen": result.chosen, "seconds": result.seconds})
    with file.open("wb") as stream:
        np.savez_compressed(stream, allow_pickle=False, about=np.array(summary), **arrays)


def _read_result(file: Path) -> BaselineResult:
    with np.load(file, allow_pickle=False) as arrays:
        summary = json.loads(str(arrays["about"]))
        values = {name: torch.from_numpy(arrays[name]) for name in arrays.files if name != "about"}
    tensors = {
        name.removeprefix(TENSOR): tensor for name, tensor in values.items() if name.startswith(TENSOR)
    }
    probabilities = {name: tensor for name, tensor in values.items() if name in METRIC_NAMES}
    return BaselineResult(probabilities, summary["chosen"], summary["seconds"], tensors)


ENSEMBLE = "ensemble/"
"""The prefix of the metrics of an ensemble."""


def member_data(job_data: JobData) -> JobData:
    """Returns the data of a job with the job replaced by that of its ensemble's baseline."""
    job = baseline_job(job_data.job, str(job_data.job.evaluation.ensemble))
    return replace(job_data, job=job, features=None, tokenizer=None, transfer=None)


def weigh(job_data: JobData, model: Tensor, member: Tensor) -> Ensemble:
    """Chooses the weight of the baseline, by the job's metric on validation, in an ensemble with the network.

    `model` has the network's probabilities of the validation rows, `member` the baseline's.
    """
    validation = job_data.dataset.split("validation")
    targets, facts = job_data.targets(validation), job_data.facts_of(validation)
    return choose_ensemble(job_data.task, model, member, targets, job_data.scoring, facts)


def ensemble_metrics(ensemble: Ensemble) -> dict[str, float]:
    """Returns the weight, scale and shift of an ensemble, keyed by the names that a run logs."""
    return {f"{ENSEMBLE}{name}": value for name, value in asdict(ensemble).items()}


def logged_ensemble(metrics: Mapping[str, float]) -> Ensemble | None:
    """Rebuilds the ensemble of a run from the run's logged metrics; None if the run has no ensemble."""
    if f"{ENSEMBLE}weight" not in metrics:
        return None
    return Ensemble(*(metrics[f"{ENSEMBLE}{name}"] for name in ("weight", "scale", "shift")))


DRAWS = 5
"""The number of draws of validation rows over which the scores of a baseline are averaged."""


def redrawn_scores(
    jobs: Mapping[str, JobConfig], home: Path, check_stop: Callable[[], None] = lambda: None
) -> dict[str, float]:
    """Returns the mean score of each baseline over `DRAWS` draws of the validation rows; larger is better.

    In each draw a baseline is fitted to the other rows of train and validation, and its settings are chosen
    on the drawn rows; the test split is not read. `jobs` are the jobs of baselines on the same data, keyed by
    name. Returns an empty dict for fewer than two jobs, if the first job sets `data.validation_seed`, or if
    the data set has enough validation rows, see `redraws_validation`. `check_stop` is called now and then; it
    raises an exception if a stop was requested.
    """
    first_job = next(iter(jobs.values()), None)
    if first_job is None or len(jobs) < 2 or first_job.data.validation_seed is not None:
        return {}
    if not redraws_validation(open_dataset(first_job, home, verify=False)):
        return {}
    device = pick_device(first_job.train.device).type

    def score(job: JobConfig, seed: int) -> float:
        data = job.data.model_copy(update={"validation_seed": seed})
        drawn_data = JobData.of(job.model_copy(update={"data": data}), home, verify=False)
        result = baseline_result(drawn_data, device, test=False, check_stop=check_stop)
        return validation_score(drawn_data)(result.probabilities["validation"])

    return {name: fmean(score(job, seed) for seed in range(DRAWS)) for name, job in jobs.items()}
