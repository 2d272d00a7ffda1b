"""What words on the command line stand for: settings with their runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mlflow.entities import Run

from mlcl.errors import UserError
from mlcl.report.compared_settings import (
    Contender,
    alike,
    cell_of,
    contender_of,
    holds_seeds,
    label_of,
    setting_of,
    settings_of,
)
from mlcl.report.runs import GROUPS, Runs, kind
from mlcl.report.table_data import read_cells
from mlcl.tracking import State
from mlcl.tracking.names import Tag

FORMS = "a sweep (name or id), SWEEP:SETTING, a run's id, ID,ID,... or a table's 'ROW, COLUMN'"
WHAT = "WHAT"


def find_contenders(runs: Runs, words: Sequence[str]) -> list[Contender]:
    """The settings that words name, in their order.

    A sweep stands for all settings that it has confirmed on fresh seeds; a run of one of them for that
    setting; any other run for itself and all complete runs of its experiment that differ in the seed alone,
    the latest of each other seed. Raises UserError for a word that names nothing, nothing that is complete,
    or a run that another one names.
    """
    found = [contender for word in words for contender in _find(runs, word)]
    labels = [contender.label for contender in found]
    seen: set[str] = set()
    for contender in found:
        if not contender.runs:
            raise UserError("no complete run", key=WHAT, found=contender.word)
        # Cells may share their runs, and differ in their neighbours.
        ids = {f"{run.run_id} {sorted(run.metrics.items())}" for run in contender.runs.values()}
        if ids & seen:
            raise UserError(
                "names runs that are named already", key=WHAT, found=contender.word, allowed="ID,ID,..."
            )
        seen |= ids
    # "as written" of two sweeps: the words tell them apart.
    return [
        replace(contender, label=contender.word) if labels.count(contender.label) > 1 else contender
        for contender in found
    ]


def _find(runs: Runs, word: str) -> list[Contender]:
    for form in (_sweep, _list, _cell, _run):
        found = form(runs, word)
        if found:
            return found
    near = runs.near(word)
    hint = f"; did you mean {near}?" if near else ""
    raise UserError(f"names no run and no sweep{hint}", key=WHAT, found=word, allowed=FORMS)


def _sweep(runs: Runs, word: str) -> list[Contender]:
    parts = word.split(":")
    names = [":".join(parts[:count]) for count in range(len(parts), 0, -1)]  # either may have a colon
    name, group = next(((name, group) for name in names if (group := runs.group(name))), ("", None))
    if group is None:
        return []
    label = word[len(name) + 1 :]
    if kind(group) != "sweep":
        cells = sorted({cell_of(run) for run in runs.children(group)})
        raise UserError("name the cells of a table", key=WHAT, found=word, allowed=cells)
    found = settings_of(runs, group, name)
    if not found:
        raise UserError(
            "this sweep has confirmed no setting on fresh seeds",
            key=WHAT,
            found=word,
            allowed="the same sweep with --seeds 5, or trials by their run ids",
        )
    chosen = [each for each in found if label in ("", each.label)]
    if not chosen:
        raise UserError(
            "no such setting of the sweep", key=WHAT, found=word, allowed=[each.label for each in found]
        )
    return chosen


def _cell(runs: Runs, word: str) -> list[Contender]:
    if "," not in word:
        return []
    named = [run for run in runs.tagged(Tag.CELL, f"{word}, seed %", "LIKE") if cell_of(run) == word]
    known = {run.info.run_id: run for run in named}
    # The same job may have been trained before: for another cell, for another table, by itself.
    for table in reversed(runs.tagged(Tag.KIND, "table")):
        known |= {run.info.run_id: run for run in read_cells(runs, table, word).get(word, [])}
    if not known:
        return []
    found = sorted(known.values(), key=lambda run: -int(run.info.start_time))
    # A table may have been reproduced again, with other settings: those of the latest run are meant.
    latest = next((run for run in found if run.data.tags.get(Tag.STATE) == State.COMPLETE), found[0])
    return [contender_of(word, word, [run for run in found if alike(run, latest, cell=True)], cell=True)]


def _run(runs: Runs, word: str) -> list[Contender]:
    run = _single(runs, word)
    if run is None:
        return []
    label = cell_of(run) or str(run.info.run_name)
    if kind(run) == "trial":  # its seed is the search's own, and no other run has it
        return [contender_of(label, word, [run])]
    inside = runs.children(run)
    if inside:
        return [contender_of(label_of(run), word, inside)]
    above = runs.get(run.data.tags.get(Tag.PARENT, ""))
    if above is not None and holds_seeds(above):
        return [contender_of(label_of(above), word, runs.children(above))]
    if kind(run) == "cell":
        near = runs.tagged(Tag.CELL, f"{cell_of(run)}, seed %", "LIKE")
    else:
        near = runs.tagged(Tag.FINGERPRINT, run.data.tags.get(Tag.FINGERPRINT, ""))
    others = [other for other in near if kind(other) == kind(run) and alike(other, run)]
    # Of its own seed it is the one that is meant, though there may be a later one.
    return [contender_of(label, word, [run, *others])]


def _list(runs: Runs, word: str) -> list[Contender]:
    ids = word.split(",")
    found = [_single(runs, id.strip()) for id in ids]
    if len(ids) < 2 or None in found:
        return []
    known = [run for run in found if run is not None]
    settings = [set(setting_of(run).items()) for run in known]
    differing = sorted({key for other in settings[1:] for key, _ in settings[0] ^ other})
    if differing:
        raise UserError("these runs differ in more than the seed", key=WHAT, found=word, allowed=differing)
    if len({kind(run) == "trial" for run in known}) > 1:
        raise UserError("a search trial is not pooled with other runs", key=WHAT, found=word)
    seeds = [run.data.tags.get(Tag.SEED, "") for run in known]
    if len(set(seeds)) < len(seeds):
        raise UserError("names a seed twice", key=WHAT, found=word, allowed="one run a seed")
    odd = [run.info.run_id for run in known if run.data.tags.get(Tag.STATE) != State.COMPLETE]
    if odd:
        raise UserError("not complete runs", key=WHAT, found=odd, allowed=State.COMPLETE)
    return [contender_of(str(known[0].info.run_name), word, known)]


def _single(runs: Runs, word: str) -> Run | None:
    found = [runs.get(word), *runs.tagged(Tag.ID, word)]
    return next((run for run in found if run is not None and kind(run) not in GROUPS), None)
