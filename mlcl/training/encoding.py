"""Computes the outputs of frozen networks that a job's trainings will read, and caches them beforehand.

Without this, the first training that needs the outputs for a split computes them, and the others wait.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from mlcl.config import JobConfig
from mlcl.data import Split
from mlcl.models.encoder import FeatureInput, InputName
from mlcl.training.baselines.baseline import BASELINES
from mlcl.training.baselines.jobs import inputs_of
from mlcl.training.features.cache import EXTRACTORS, FeatureCache
from mlcl.training.features.extractor import ROWS_AT_ONCE, BatchRun
from mlcl.training.features.inputs import sections
from mlcl.training.grad_cache import give_back
from mlcl.training.job_data import JobData

Told = Callable[[int, int], None]
"""A function of the number of encoded rows and the number of all rows; its exception ends the encoding."""


@dataclass(frozen=True)
class Missing:
    """A split whose rows of one frozen input, with its name and section, are not in the cache."""

    name: InputName
    section: FeatureInput
    cache: FeatureCache
    split: Split


def network_inputs(job: JobConfig) -> list[tuple[InputName, FeatureInput]]:
    """Returns name and section of the inputs of a job and of its baselines that a frozen network computes."""
    inputs = list(sections(job.encoder).items()) if job.baseline is None else []
    for name in (job.baseline, job.evaluation.ensemble):
        if name is not None:
            inputs += inputs_of(BASELINES[name], job).values()
    return [frozen_input for frozen_input in inputs if EXTRACTORS[frozen_input[0]].network]


def missing_rows(job_data: JobData, device: str, splits: Iterable[str]) -> dict[Path, Missing]:
    """Returns the missing rows of `splits` (train, validation, test), keyed by the path of their cache entry.

    `device` is the type of the device on which the job's trainings compute.
    """
    cache, missing = FeatureCache(job_data.cache, job_data.train, device), dict[Path, Missing]()
    inputs = network_inputs(job_data.job)
    for name in splits:
        split = job_data.train if name == "train" else job_data.dataset.split(name)
        for part in cache.sources(split) or (split,):
            for frozen_input in inputs:
                entry = cache.entry(*frozen_input, part)
                if not entry.exists():
                    missing[entry] = Missing(*frozen_input, cache, part)
    return missing


def row_count(missing_items: Iterable[Missing]) -> int:
    """Returns the number of rows to encode."""
    return sum(len(item.split) for item in missing_items)


def encode(missing_items: Sequence[Missing], threads: int, tell: Told) -> None:
    """Encodes missing rows into the cache, on a CPU by `threads` threads, and calls `tell` after each batch.

    After an exception of `tell`, complete cache entries stay, and the unfinished entry is removed.
    """
    total, completed = row_count(missing_items), 0
    for item in missing_items:
        done = completed

        def count(rows: int) -> None:
            nonlocal done
            done += rows
            tell(done, total)

        tell(done, total)
        cache = replace(item.cache, run=BatchRun(threads, count))
        cache.rows(item.name, item.section, item.split)
        completed += len(item.split)
    give_back()


def seconds_to_encode(missing_items: Iterable[Missing], threads: int) -> float:
    """Estimates the seconds that `encode` takes, by timing one batch of each missing input and split."""
    return sum(_time_row(item) * len(item.split) / threads for item in missing_items)


def _time_row(missing: Missing) -> float:
    """Returns the seconds per row of a batch of rows from all over the split, on one thread of a CPU."""
    extract, seconds = missing.cache.extractor(missing.name, missing.section), 0.0
    count = min(ROWS_AT_ONCE, len(missing.split))
    for rows in (1, count):  # the first batch warms up and does not count
        indices = torch.linspace(0, len(missing.split) - 1, rows).long()
        contents = missing.cache.contents(missing.section, missing.split.take(indices))
        start = time.perf_counter()
        extract(contents, BatchRun(threads=1))
        seconds = time.perf_counter() - start
    return seconds / count
