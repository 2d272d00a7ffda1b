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
    found = list(sections(job.encoder).items()) if job.baseline is None else []
    for name in (job.baseline, job.evaluation.ensemble):
        if name is not None:
            found += inputs_of(BASELINES[name], job).values()
    return [its for its in found if EXTRACTORS[its[0]].network]


def missing_rows(job_data: JobData, device: str, splits: Iterable[str]) -> dict[Path, Missing]:
    """Returns the missing rows of `splits` (train, validation, test), keyed by the path of their cache entry.

    `device` is the type of the device on which the job's trainings compute.
    """
    cache, found = FeatureCache(job_data.cache, job_data.train, device), dict[Path, Missing]()
    inputs = network_inputs(job_data.job)
    for name in splits:
        split = job_data.train if name == "train" else job_data.dataset.split(name)
        for part in cache.sources(split) or (split,):
            for its in inputs:
                entry = cache.entry(*its, part)
                if not entry.exists():
                    found[entry] = Missing(*its, cache, part)
    return found


def row_count(missing: Iterable[Missing]) -> int:
    """Returns the number of rows to encode."""
    return sum(len(each.split) for each in missing)


def encode(missing: Sequence[Missing], threads: int, tell: Told) -> None:
    """Encodes missing rows into the cache, on a CPU by `threads` threads, and calls `tell` after each batch.

    After an exception of `tell`, complete cache entries stay, and the unfinished entry is removed.
    """
    total, before = row_count(missing), 0
    for each in missing:
        done = before

        def count(rows: int) -> None:
            nonlocal done
            done += rows
            tell(done, total)

        tell(done, total)
        cache = replace(each.cache, run=BatchRun(threads, count))
        cache.rows(each.name, each.section, each.split)
        before += len(each.split)
    give_back()


def seconds_to_encode(missing: Iterable[Missing], threads: int) -> float:
    """Estimates the seconds that `encode` takes, by timing one batch of each missing input and split."""
    return sum(_seconds_of_a_row(each) * len(each.split) / threads for each in missing)


def _seconds_of_a_row(its: Missing) -> float:
    """Returns the seconds per row of a batch of rows from all over the split, on one thread of a CPU."""
    extract, taken = its.cache.extractor(its.name, its.section), 0.0
    count = min(ROWS_AT_ONCE, len(its.split))
    for rows in (1, count):  # the first batch warms up and does not count
        spread = torch.linspace(0, len(its.split) - 1, rows).long()
        contents = its.cache.contents(its.section, its.split.take(spread))
        began = time.perf_counter()
        extract(contents, BatchRun(threads=1))
        taken = time.perf_counter() - began
    return taken / count
