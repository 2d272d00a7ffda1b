"""The searches of a table's cells, and the controls, whose picked settings the searches of other rows use."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mlcl.config.job import JobConfig, dump_job
from mlcl.config.loader import load_job, value_at
from mlcl.config.safe_yaml import dump_yaml, load_yaml, read_yaml
from mlcl.config.space.keys import POSTHOC
from mlcl.config.space.loader import load_space
from mlcl.config.space.space import Space
from mlcl.config.table.schema import Scale, Table, Tune, slug
from mlcl.errors import UserError

Pair = tuple[str, str]
"""The names of a row and of a column."""


@dataclass(frozen=True)
class Tuning:
    """The searches of a cell: `trials` divided among independent `searches`, each with a race on fresh seeds.

    `text` is the content of the space file, with the table's sampler. A race has `race_seeds` fresh seeds (0:
    no race), and the `confirm` best trials enter it. `control` is a row with a search in the same column. The
    setting that this search picks gives the values of the keys in `hold` for all trials, and of the keys in
    `start` for the first trial of a search.
    """

    space: Space
    text: str
    trials: int
    searches: int = 1
    race_seeds: int = 0
    confirm: int = 1
    control: str | None = None
    hold: tuple[str, ...] = ()
    start: tuple[str, ...] = ()

    def follow(self, job: JobConfig, control: Mapping[str, Any]) -> tuple[JobConfig, Tuning]:
        """Returns the job and its search with the values of `control`, the tree of the control's picked job.

        A key in `hold` becomes a choice of one value, so that searches with different values have different
        spaces. The first trial of a search is the job as written, which has the values of `start`.
        """
        values = {key: value_at(control, key) for key in (*self.hold, *self.start)}
        new_job, tree = load_job(dump_job(job), values), load_yaml(self.text)
        tree["space"] |= {key: {"choice": [values[key]]} for key in self.hold}
        start_values = json.dumps({key: values[key] for key in self.start})
        text = f"# first trial: {start_values}\n{dump_yaml(tree)}"
        return new_job, replace(self, space=load_space(self.space.file or "", new_job, tree), text=text)


def tune_of(table: Table, row: str, column: str, scale: Scale) -> Tune | None:
    """Returns the `tune` of the scale, else of the column, the row or the table; None if it is `false`."""
    changes = (table.rows[row], table.columns[column], scale)
    tunes = [change.tune for change in changes if change.tune is not None]
    return (tunes[-1] or None) if tunes else table.tune


def tuning_of(tune: Tune, row: str, table: Table, file: Path, job: JobConfig) -> Tuning:
    """Returns the checked search of a cell with this job. The control's own search has no control."""
    for key in ("data.split_seed", "data.validation_seed", "data.hold_out.seed"):
        if key in table.seed_keys:
            problem = "the search of a cell and its confirmation share one split"
            raise UserError(problem, file=file, key="seed_keys", found=key, allowed="other keys, or no tune")
    if isinstance(tune.space, dict):
        path, tree = file, tune.space
    else:
        path = file.parent / tune.space
        tree = read_yaml(path)
    if tune.sampler is not None:
        tree = {**tree, "search": {**(tree.get("search") or {}), "sampler": tune.sampler}}
    space, text = load_space(path, job, tree), dump_yaml(tree)
    if tune.race_seeds and space.multi:
        problem, goals = "a race compares one metric", [goal.metric for goal in space.goals]
        raise UserError(problem, file=file, key="tune.race_seeds", found=goals, allowed=0)
    tuning = Tuning(space, text, tune.trials, tune.searches, tune.race_seeds, tune.confirm)
    if tune.control in (None, row):
        return tuning
    return replace(tuning, control=tune.control, hold=tune.hold, start=tune.start)


def with_controls(
    selected_pairs: Sequence[Pair], tunes: Mapping[Pair, Tune | None], file: Path
) -> list[Pair]:
    """Returns the cells `selected_pairs` and their controls, in the order of `tunes`, which has all cells.

    Raises UserError if a control has no search in a column.
    """
    controls = set[Pair]()
    for row, column in selected_pairs:
        tune = tunes[row, column]
        if tune is not None and tune.control not in (None, row):
            controls.add((str(tune.control), column))
            if tunes.get((str(tune.control), column)) is None:
                problem = f"the control of {slug(row)}/{slug(column)} is not searched in this column"
                raise UserError(problem, file=file, key="tune.control", found=tune.control)
    return [pair for pair in tunes if pair in controls or pair in selected_pairs]


def check_controls(tunings: Mapping[Pair, Tuning], file: Path) -> None:
    """Raises UserError if a cell cannot take over values from its control.

    The control must have as many searches and no control itself, and both spaces the same entry, which is
    neither post-hoc nor a simplex, for each key in `hold` and `start`.
    """
    for (row, column), tuning in tunings.items():
        if tuning.control is None:
            continue
        control = tunings[tuning.control, column]
        if control.control is not None:
            problem, found = "a control follows no other row", f"{tuning.control} follows {control.control}"
            raise UserError(problem, file=file, key="tune.control", found=found)
        if tuning.searches != control.searches:
            problem = f"{row} has other searches than its control, and each follows one of these"
            allowed = control.searches
            raise UserError(problem, file=file, key="tune.searches", found=tuning.searches, allowed=allowed)
        entries, control_entries = (load_yaml(search.text)["space"] for search in (tuning, control))
        for key in (*tuning.hold, *tuning.start):
            alike = key in entries and entries[key] == control_entries.get(key)
            if not alike or key in POSTHOC or "simplex" in entries[key]:
                shared_keys = [
                    name
                    for name in entries
                    if entries[name] == control_entries.get(name) and name not in POSTHOC
                ]
                problem = f"not an entry that the spaces of {row} and of its control share"
                raise UserError(
                    problem, file=file, key="tune.hold, tune.start", found=key, allowed=shared_keys
                )
