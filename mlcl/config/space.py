"""The space file: what to vary. Checked against the job before anything starts."""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from mlcl.config.job import JobConfig, dump_job, flatten
from mlcl.config.load import load_job, read_yaml, validate
from mlcl.errors import UserError, nearest

POSTHOC = {
    "evaluation.knn.k": "evaluation.knn.grid.k",
    "evaluation.knn.lambda": "evaluation.knn.grid.lambda",
    "evaluation.knn.temperature": "evaluation.knn.grid.temperature",
}
"""Keys that are answered after training from one retrieval, and the grid that answers each."""
POSTHOC_POINTS = 21
"""Points that a continuous post-hoc range is scored at."""
FIXED = (
    "experiment",
    "data.source",
    "data.path",
    "data.options",
    "data.split_seed",
    "train.seed",
    "train.workers",
    "train.device",
    "train.threads",
    "evaluation.metric",
    "evaluation.threshold",
)
"""Keys that all trials of a sweep share: otherwise their scores could not be compared."""
KINDS = ("float", "log_float", "int", "choice", "simplex")


@dataclass(frozen=True)
class Float:
    """A number in [low, high], uniform or log-uniform."""

    low: float
    high: float
    log: bool = False


@dataclass(frozen=True)
class Int:
    """A whole number in [low, high]."""

    low: int
    high: int


@dataclass(frozen=True)
class Choice:
    """One of the values."""

    values: tuple[Any, ...]


@dataclass(frozen=True)
class Simplex:
    """Non-negative weights for `keys` that add up to a total in [low, high], uniform on the simplex."""

    keys: tuple[str, ...]
    low: float
    high: float


@dataclass(frozen=True)
class Parameter:
    """A key path of the job and what it may be; a simplex covers several keys under one name."""

    name: str
    domain: Float | Int | Choice | Simplex


class SearchConfig(BaseModel):
    """How the space is searched."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    sampler: Literal["tpe", "random"] = "tpe"
    scheduler: Literal["asha", "none"] = "asha"
    metric: str | None = Field(None, description="default: the job's evaluation.metric")
    mode: Literal["max", "min"] | None = Field(None, description="default: by the metric's name")
    seed: int = Field(0, ge=0)
    grace: int = Field(1, ge=1, description="validations before a trial may be stopped early")
    reduction_factor: int = Field(3, ge=2, description="one in so many trials passes a rung")
    startup: int = Field(5, ge=1, description="random trials before the sampler models the results")


@dataclass(frozen=True)
class Space:
    """A checked space: searched parameters, the post-hoc grid, and how to search."""

    parameters: tuple[Parameter, ...]
    posthoc: Mapping[str, tuple[Any, ...]]
    search: SearchConfig
    metric: str
    mode: Literal["max", "min"]


class _SpaceFile(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")
    space: dict[str, dict[str, Any]]
    search: SearchConfig = SearchConfig()


def load_space(path: str | Path, job: JobConfig) -> Space:
    """The space of a file, wildcards resolved against `job`. Raises UserError."""
    parsed = validate(_SpaceFile, read_yaml(path), path)
    known = list(flatten(dump_job(job)))
    if not parsed.space:
        raise UserError("names nothing to vary", file=path, key="space")
    parameters: list[Parameter] = []
    posthoc: dict[str, tuple[Any, ...]] = {}
    for pattern, spec in parsed.space.items():
        kind, value = _one_kind(path, pattern, spec)
        if pattern in POSTHOC:
            posthoc[POSTHOC[pattern]] = _grid(path, pattern, kind, value)
            continue
        keys = _matches(path, pattern, known)
        for key in keys:
            if key.startswith(FIXED):
                raise UserError("all trials share this key", file=path, key=f"space.{pattern}", found=key)
        if kind == "simplex":
            parameters.append(Parameter(pattern, _simplex(path, pattern, value, keys)))
        else:
            domain = _domain(path, pattern, kind, value)
            parameters += [Parameter(key, domain) for key in keys]
    _no_overlap(path, parameters)
    search = parsed.search
    metric = search.metric or job.evaluation.metric
    if not metric.startswith(("val/", "knn/val/")):
        raise UserError(
            "selection uses validation only", file=path, key="search.metric", found=metric, allowed="val/..."
        )
    space = Space(tuple(parameters), posthoc, search, metric, search.mode or default_mode(metric))
    _check_corners(path, space, job)
    return space


def default_mode(metric: str) -> Literal["max", "min"]:
    """Losses are minimised, all other metrics maximised."""
    return "min" if metric.endswith("loss") else "max"


def _one_kind(path: str | Path, key: str, spec: Mapping[str, Any]) -> tuple[str, Any]:
    if len(spec) != 1:
        raise UserError(
            "give exactly one kind", file=path, key=f"space.{key}", found=list(spec), allowed=KINDS
        )
    ((kind, value),) = spec.items()
    if kind not in KINDS:
        near = nearest(kind, KINDS)
        hint = f"; did you mean {near}?" if near else ""
        raise UserError(f"unknown kind{hint}", file=path, key=f"space.{key}", found=kind, allowed=KINDS)
    return kind, value


def _matches(path: str | Path, pattern: str, known: list[str]) -> tuple[str, ...]:
    """Keys of the job that a pattern names; `*` stands for one part of the key."""
    depth = pattern.count(".")
    keys = tuple(k for k in known if k.count(".") == depth and fnmatch.fnmatchcase(k, pattern))
    if not keys:
        raise UserError(
            "names no key of the job",
            file=path,
            key=f"space.{pattern}",
            allowed=f"for example {nearest(pattern, known) or known[0]}",
        )
    return keys


def _range(path: str | Path, key: str, value: Any, *, whole: bool = False) -> tuple[float, float]:
    numbers = value if isinstance(value, (list, tuple)) else ()
    allowed = "[low, high] with low < high"
    good = len(numbers) == 2 and all(
        isinstance(x, (int, float)) and not isinstance(x, bool) and math.isfinite(x) for x in numbers
    )
    if not good or (whole and any(x != int(x) for x in numbers)) or not numbers[0] < numbers[1]:
        raise UserError("not a range", file=path, key=f"space.{key}", found=value, allowed=allowed)
    return numbers[0], numbers[1]


def _domain(path: str | Path, key: str, kind: str, value: Any) -> Float | Int | Choice:
    if kind == "choice":
        if not isinstance(value, list) or not value or len(set(map(repr, value))) < len(value):
            raise UserError("not a list of distinct values", file=path, key=f"space.{key}", found=value)
        return Choice(tuple(value))
    low, high = _range(path, key, value, whole=kind == "int")
    if kind == "int":
        return Int(int(low), int(high))
    if kind == "log_float" and low <= 0:
        raise UserError("a logarithmic range starts above 0", file=path, key=f"space.{key}", found=value)
    return Float(float(low), float(high), log=kind == "log_float")


def _simplex(path: str | Path, key: str, value: Any, keys: tuple[str, ...]) -> Simplex:
    total = value.get("total") if isinstance(value, Mapping) and set(value) == {"total"} else None
    if isinstance(total, (int, float)) and not isinstance(total, bool) and total > 0:
        return Simplex(keys, float(total), float(total))
    if total is None:
        raise UserError(
            "needs a total",
            file=path,
            key=f"space.{key}",
            found=value,
            allowed="{total: 1.0} or {total: [low, high]}",
        )
    low, high = _range(path, key, total)
    if low < 0:
        raise UserError("weights are not negative", file=path, key=f"space.{key}", found=total)
    return Simplex(keys, float(low), float(high))


def _grid(path: str | Path, key: str, kind: str, value: Any) -> tuple[Any, ...]:
    """The values at which a post-hoc key is scored."""
    if kind == "simplex":
        raise UserError("not a set of weights", file=path, key=f"space.{key}", found=kind, allowed=KINDS[:-1])
    domain = _domain(path, key, kind, value)
    if isinstance(domain, Choice):
        return domain.values
    if isinstance(domain, Int):
        count = min(POSTHOC_POINTS, domain.high - domain.low + 1)
        step = (domain.high - domain.low) / (count - 1)
        return tuple(round(domain.low + i * step) for i in range(count))
    low, high = (math.log(domain.low), math.log(domain.high)) if domain.log else (domain.low, domain.high)
    points = (low + (high - low) * i / (POSTHOC_POINTS - 1) for i in range(POSTHOC_POINTS))
    return tuple(round(math.exp(x) if domain.log else x, 9) for x in points)


def _no_overlap(path: str | Path, parameters: list[Parameter]) -> None:
    seen: set[str] = set()
    for parameter in parameters:
        for key in parameter.domain.keys if isinstance(parameter.domain, Simplex) else (parameter.name,):
            if key in seen:
                raise UserError("is varied twice", file=path, key=f"space.{parameter.name}", found=key)
            seen.add(key)


def corners(space: Space) -> list[dict[str, Any]]:
    """Overrides at the ends of all ranges, and every choice in turn: where a space can break a job."""
    low: dict[str, Any] = {}
    high: dict[str, Any] = {}
    for parameter in space.parameters:
        domain = parameter.domain
        if isinstance(domain, Simplex):
            share = len(domain.keys)
            low |= dict.fromkeys(domain.keys, domain.low / share)
            high |= dict.fromkeys(domain.keys, domain.high / share)
        elif isinstance(domain, Choice):
            low[parameter.name], high[parameter.name] = domain.values[0], domain.values[-1]
        else:
            low[parameter.name], high[parameter.name] = domain.low, domain.high
    choices = [
        {p.name: value} for p in space.parameters if isinstance(p.domain, Choice) for value in p.domain.values
    ]
    return [low, high, dict(space.posthoc), *({**high, **choice} for choice in choices)]


def _check_corners(path: str | Path, space: Space, job: JobConfig) -> None:
    """Every end of every range must make a valid job, so that no trial dies of its own settings."""
    tree = dump_job(job)
    for corner in corners(space):
        try:
            load_job(tree, corner)
        except UserError as error:
            raise UserError(
                f"leaves what the job allows: {error.problem}",
                file=path,
                key=f"space ({error.key})",
                found=error.found,
                allowed=error.allowed,
            ) from None
