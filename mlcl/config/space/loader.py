"""From a space file to a checked space."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from graphlib import CycleError
from pathlib import Path
from typing import Any

from mlcl.config.job import JobConfig, dump_job
from mlcl.config.safe_yaml import read_yaml
from mlcl.config.section import Section, validate
from mlcl.config.space.branches import branch_to, check_corners, in_order
from mlcl.config.space.domains import KINDS
from mlcl.config.space.entries import Entry, Found, check_overlap, known_keys, read_condition, split
from mlcl.config.space.place import Place
from mlcl.config.space.search import SAMPLERS, SearchConfig, read_goals
from mlcl.config.space.space import Parameter, Space


class _SpaceFile(Section):
    space: dict[str, dict[str, Any]]
    search: SearchConfig = SearchConfig()


def load_space(path: str | Path, job: JobConfig, tree: Mapping[str, Any] | None = None) -> Space:
    """The space of a file, or of its content in `tree`; wildcards are resolved against `job`.

    Raises UserError that names file, key, what was found and what is allowed.
    """
    parsed = validate(_SpaceFile, read_yaml(path) if tree is None else dict(tree), path)
    if not parsed.space:
        raise Place(path, "space").error("names nothing to vary")
    tree = dump_job(job)
    entries = [Entry.read(path, pattern, spec) for pattern, spec in parsed.space.items()]
    known = known_keys(entries, tree)
    found: list[Found] = []
    posthoc: dict[str, tuple[Any, ...]] = {}
    for entry in entries:
        parameters, grids = split(entry, known, tree)
        found += parameters
        posthoc |= grids
    check_overlap(found)
    ordered = _conditioned(found, known, tree)
    goals, prune_by = read_goals(parsed.search, job.evaluation.metric, path)
    space = Space(ordered, posthoc, parsed.search, goals, prune_by, Path(path))
    _check_sampler(space, path)
    check_corners(space, job, path)
    return space


def _conditioned(
    found: Sequence[Found], known: Sequence[str], tree: Mapping[str, Any]
) -> tuple[Parameter, ...]:
    """The parameters with their conditions, each after those that it depends on."""
    drawn = [each.parameter for each in found]
    places = {each.parameter.name: each.entry.place for each in found}
    conditions = [read_condition(each.entry, each.stars, drawn, known, tree) for each in found]
    try:
        ordered = in_order([replace(p, condition=c) for p, c in zip(drawn, conditions, strict=True)])
    except CycleError as error:
        circle = error.args[1]
        raise places[circle[0]].error("the conditions run in a circle", " < ".join(circle)) from None
    for parameter in ordered:
        if branch_to(parameter, ordered) is None:
            raise places[parameter.name].error(
                "its condition can never hold",
                parameter.condition,
                "values that the key can have; for a continuous range {above: x} or {below: x}",
            )
    return ordered


def _check_sampler(space: Space, file: str | Path) -> None:
    sampler = space.search.sampler
    continuous = [p.name for p in space.parameters if p.domain.continuous]
    if continuous and SAMPLERS[sampler].exhaustive:
        finite = sorted(kind for kind, domain in KINDS.items() if not domain.continuous)
        raise Place(file, "search.sampler").error(
            f"{sampler} cannot try all of a continuous range", continuous, " and ".join(finite)
        )
