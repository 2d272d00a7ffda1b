"""The search of a tuned cell: which space, how many trials, how the best is confirmed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import yaml

from mlcl.config.job import JobConfig
from mlcl.config.safe_yaml import read_yaml
from mlcl.config.space import Space, load_space
from mlcl.config.table.schema import Change, Table, Tune
from mlcl.errors import UserError


@dataclass(frozen=True)
class Tuning:
    """A cell's search: `text` is its space file, with the table's sampler where it names one."""

    space: Space
    text: str
    trials: int


def tune_of(table: Table, *changes: Change) -> Tune | None:
    """The search of a cell, by the last of table, row, column and scale that names one; None for `false`."""
    said = [change.tune for change in changes if change.tune is not None]
    return (said[-1] or None) if said else table.tune


def read_tuning(tune: Tune, table: Table, file: Path, job: JobConfig) -> Tuning:
    """The checked search of a cell with this job. Raises UserError."""
    for key in ("data.split_seed", "data.hold_out.seed"):
        if key in table.seed_keys:
            raise UserError(
                "the search of a cell and its confirmation share one split",
                file=file,
                key="seed_keys",
                found=key,
                allowed="other keys, or no tune",
            )
    inline = not isinstance(tune.space, str)
    place = file if inline else file.parent / str(tune.space)
    tree = tune.space if isinstance(tune.space, dict) else read_yaml(place)
    if tune.sampler is not None:
        tree = {**tree, "search": {**(tree.get("search") or {}), "sampler": tune.sampler}}
    return Tuning(load_space(place, job, tree), yaml.safe_dump(tree, sort_keys=False), tune.trials)
