"""One setting against others, over the seeds that they share."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from mlcl.config import default_mode
from mlcl.errors import UserError, nearest
from mlcl.evaluation.paired_tests import LEVEL, Paired, compare_paired, holm
from mlcl.report.compared_settings import SPLIT_SEED, Contender
from mlcl.tracking.names import CLASSIFIER_WEIGHT, LOG10

PREFIXES = ("test/", "knn_best/test/", "val/", "knn_best/val/")
"""Where a metric without its place is looked for, in this order."""


@dataclass(frozen=True)
class Row:
    """A setting beside the reference. `p` is Holm's; `further` seeds would decide (None: not to be told).

    `differs` are the job's keys in which it is not the reference. `better` is None where nothing is decided;
    where the metric has no better side (no `mode`), it is whether the figure is higher.
    """

    contender: Contender
    seeds: tuple[int, ...]
    unpaired: tuple[int, ...]
    paired: Paired
    p: float
    further: int | None
    differs: tuple[str, ...]
    better: bool | None
    mode: str | None

    @property
    def verdict(self) -> str:
        """What may be said."""
        if self.better is None:
            return "undecided"
        yes, no = ("better", "worse") if self.mode else ("higher", "lower")
        return yes if self.better else no


@dataclass(frozen=True)
class Comparison:
    """Settings against the first one, by one metric; `mode` is max, min, or None where neither is better."""

    metric: str
    mode: str | None
    reference: Contender
    rows: tuple[Row, ...]


def compare(contenders: Sequence[Contender], metric: str) -> Comparison:
    """Compares all against the first, with Holm's correction over them.

    `metric` is a full name (`test/micro_f1`) or its last part, which is then looked for in test, test with
    kNN, validation, validation with kNN. Raises UserError for fewer than two settings, a metric that not all
    have or that is not finite, different data or draws from them, and settings that share no seed.
    """
    if len(contenders) < 2:
        found = contenders[0].label if contenders else "none"
        raise UserError("needs two settings or more", key="WHAT", found=found)
    name = _metric(contenders, metric)
    mode = _mode(name)
    reference, *others = contenders
    pairs = [_pair(reference, other, name) for other in others]
    adjusted = holm([paired.p for _, paired in pairs])
    rows = [
        _row(reference, other, seeds, paired, p, len(others), mode)
        for other, (seeds, paired), p in zip(others, pairs, adjusted, strict=True)
    ]
    return Comparison(name, mode, reference, tuple(rows))


def _mode(metric: str) -> str | None:
    """Only figures of an evaluation, losses and seconds have a better side: a temperature or k has none."""
    if metric.endswith("seconds"):
        return "min"
    evaluated = any(f"/{split}/" in f"/{metric}" for split in ("val", "test"))
    return default_mode(metric) if evaluated or metric.endswith("loss") else None


def _metric(contenders: Sequence[Contender], metric: str) -> str:
    shared = set.intersection(*(contender.metrics for contender in contenders))
    for name in (metric, *(prefix + metric for prefix in PREFIXES)):
        if name in shared:
            return name
    for contender in contenders:
        if not any(name in contender.metrics for name in (metric, *(prefix + metric for prefix in PREFIXES))):
            near = nearest(metric, sorted(contender.metrics))
            hint = f"; did you mean {near}?" if near else ""
            known = sorted(name for name in shared if name.startswith(PREFIXES))
            raise UserError(
                f"{contender.label} has no such metric{hint}", key="--metric", found=metric, allowed=known
            )
    raise UserError(
        "no metric of this name that all have", key="--metric", found=metric, allowed=sorted(shared)
    )


def _pair(a: Contender, b: Contender, metric: str) -> tuple[tuple[int, ...], Paired]:
    seeds = tuple(sorted(set(a.runs) & set(b.runs)))
    if not seeds:
        raise UserError(
            "these settings share no seed, and cannot be paired",
            key="WHAT",
            found=f"{a.label}: seeds {_seeds(a.runs)}; {b.label}: seeds {_seeds(b.runs)}",
        )
    for seed in seeds:
        _check_pair(seed, a, b)
    values = [[contender.runs[seed].metrics[metric] for seed in seeds] for contender in (a, b)]
    odd = [
        f"{contender.label}, seed {seed}: {value}"
        for contender, its in zip((a, b), values, strict=True)
        for seed, value in zip(seeds, its, strict=True)
        if not math.isfinite(value)
    ]
    if odd:  # to leave such seeds out would flatter the setting that failed there
        raise UserError(f"{metric} is no number in some runs", key="--metric", found=odd)
    return seeds, compare_paired(*values)


def _check_pair(seed: int, a: Contender, b: Contender) -> None:
    one, other = a.runs[seed], b.runs[seed]
    if one.data != other.data:
        raise UserError(
            "these settings were trained on different data",
            key="WHAT",
            found=f"seed {seed}: {a.label} {one.data}, {b.label} {other.data}",
            allowed="one data set with one split (the same fingerprint)",
        )
    # What the seed of the split did to the data, the fingerprint has told.
    for key in sorted((one.drawn.keys() & other.drawn.keys()) - {SPLIT_SEED}):
        if one.drawn[key] != other.drawn[key]:
            raise UserError(
                "these settings drew from the data with different seeds, and cannot be paired",
                key=key,
                found=f"seed {seed}: {a.label} {one.drawn[key]}, {b.label} {other.drawn[key]}",
            )


def _row(
    reference: Contender,
    other: Contender,
    seeds: tuple[int, ...],
    paired: Paired,
    p: float,
    tests: int,
    mode: str | None,
) -> Row:
    unpaired = tuple(sorted(set(reference.runs) ^ set(other.runs)))
    better = None
    if p <= 1 - LEVEL:
        better = (paired.difference > 0) == (mode != "min")
    differs = _differing(reference.job, other.job)
    return Row(other, seeds, unpaired, paired, p, paired.further_seeds(tests), differs, better, mode)


def _differing(a: Mapping[str, str], b: Mapping[str, str]) -> tuple[str, ...]:
    """The keys; not what follows from them: logarithms, items of a list that is itself a key, shares.

    A section that one job lacks stands for all that is in it.
    """
    differing = {key for key, _ in set(a.items()) ^ set(b.items())} - {CLASSIFIER_WEIGHT}
    keys = {key for key in differing if not key.startswith(LOG10)}
    own = (key for key in keys if key.rpartition(".")[0] not in keys)
    return tuple(sorted({_section(key, a if key in b else b) for key in own}))


def _section(key: str, other: Mapping[str, str]) -> str:
    """The outermost section around a key of which the other job has nothing; the key where it has that."""
    parts = key.split(".")
    sections = (".".join(parts[:count]) for count in range(1, len(parts)))
    return next(
        (each for each in sections if not any(f"{its}.".startswith(f"{each}.") for its in other)), key
    )


def _seeds(seeds: Iterable[int]) -> str:
    return " ".join(map(str, seeds))
