"""Finds the settings that words of the command line name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from mlcl.errors import UserError
from mlcl.report.compared_settings import (
    SEEDS,
    ComparedSetting,
    cell_label,
    confirmed_setting,
    confirmed_settings,
    is_seed_group,
    read_setting,
    same_setting,
    setting_keys,
)
from mlcl.report.runs import GROUPS, Runs, kind
from mlcl.report.table_data import read_cells
from mlcl.tracking import State
from mlcl.tracking.names import Tag

if TYPE_CHECKING:
    from mlflow.entities import Run

FORMS = (
    "names, ids, their beginnings or @last: a sweep, SWEEP:SETTING, a run, RUN,RUN or a cell 'ROW, COLUMN'"
)
WHAT = "WHAT"
MOST_KEYS = 3
"""Most keys that name a setting."""


def find_settings(runs: Runs, words: Sequence[str]) -> list[ComparedSetting]:
    """The settings that the words name, in their order.

    A sweep names all settings that it has confirmed on fresh seeds; a run of one of them names that setting;
    any other run names itself and the complete runs of its experiment that differ only in the seed, the
    latest of each. Raises UserError for a word that names nothing, or no complete run, or a run that another
    word names.
    """
    found = [setting for word in words for setting in _find(runs, word)]
    labels = [setting.label for setting in found]
    seen: set[str] = set()
    for setting in found:
        if not setting.runs:
            raise UserError("no complete run", key=WHAT, found=setting.word)
        # Cells may share runs and differ in the settings of their neighbours.
        ids = {f"{run.run_id} {sorted(run.metrics.items())}" for run in setting.runs.values()}
        if ids & seen:
            raise UserError(
                "names runs that are named already", key=WHAT, found=setting.word, allowed="ID,ID,..."
            )
        seen |= ids
    # Settings of two sweeps may have one label, as "as written"; their words differ.
    found = [
        replace(setting, label=setting.word) if labels.count(setting.label) > 1 else setting
        for setting in found
    ]
    return _named_by_job(found)


def _named_by_job(settings: Sequence[ComparedSetting]) -> list[ComparedSetting]:
    """Settings of plain runs under the keys in which they differ, where these tell them apart."""
    plain = [each for each in settings if each.plain]
    if len(plain) < 2:
        return list(settings)
    jobs = [{key: text for key, text in each.job.items() if not SEEDS.fullmatch(key)} for each in plain]
    keys = sorted({key for job in jobs for key, _ in set(job.items()) ^ set(jobs[0].items())})[:MOST_KEYS]
    names = [", ".join(f"{key.rpartition('.')[2]} {job.get(key, '-')}" for key in keys) for job in jobs]
    if len(set(names)) < len(names):
        return list(settings)
    by_word = {each.word: name for each, name in zip(plain, names, strict=True)}
    return [replace(each, label=by_word[each.word]) if each.plain else each for each in settings]


def _find(runs: Runs, word: str) -> list[ComparedSetting]:
    for form in (_sweep, _list, _cell, _run):
        found = form(runs, word)
        if found:
            return found
    raise UserError(f"names no run and no sweep{runs.hint(word)}", key=WHAT, found=word, allowed=FORMS)


def _sweep(runs: Runs, word: str) -> list[ComparedSetting]:
    parts = word.split(":")
    names = [":".join(parts[:count]) for count in range(len(parts), 0, -1)]  # either may have a colon
    name, group = next(((name, group) for name in names if (group := runs.group(name))), ("", None))
    if group is None:
        return []
    label = word[len(name) + 1 :]
    if kind(group) != "sweep":
        known = {label for label, cell in read_cells(runs, group).items() if cell}
        known |= {cell_label(run) for run in runs.children(group)} - {""}
        raise UserError("name the cells of a table", key=WHAT, found=word, allowed="; ".join(sorted(known)))
    found = confirmed_settings(runs, group, name)
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
    return chosen if label else [replace(each, optional=True) for each in chosen]


def _cell(runs: Runs, word: str) -> list[ComparedSetting]:
    if "," not in word:
        return []
    named = [run for run in runs.tagged(Tag.CELL, f"{word}, seed %", "LIKE") if cell_label(run) == word]
    known = {run.info.run_id: run for run in named}
    # The run of a cell may have been trained for another cell or table, or by `mlcl run`.
    for table in reversed(runs.tagged(Tag.KIND, "table")):
        known |= {run.info.run_id: run for run in read_cells(runs, table, word).get(word, [])}
    if not known:
        return []
    found = sorted(known.values(), key=lambda run: -int(run.info.start_time))
    # Where a table was reproduced again with other settings, the latest run decides which are meant.
    latest = next((run for run in found if run.data.tags.get(Tag.STATE) == State.COMPLETE), found[0])
    return [
        read_setting(word, word, [run for run in found if same_setting(run, latest, cell=True)], cell=True)
    ]


def _run(runs: Runs, word: str) -> list[ComparedSetting]:
    run = _single(runs, word)
    if run is None:
        return []
    label = cell_label(run) or str(run.info.run_name)
    if kind(run) == "trial":  # no other run has its seed
        return [read_setting(label, word, [run])]
    above = runs.get(run.data.tags.get(Tag.PARENT, ""))
    for group in (run, above):
        if group is not None and is_seed_group(group):
            return [confirmed_setting(runs, group, word)]
    if kind(run) == "cell":
        near = runs.tagged(Tag.CELL, f"{cell_label(run)}, seed %", "LIKE")
    else:
        near = runs.tagged(Tag.FINGERPRINT, run.data.tags.get(Tag.FINGERPRINT, ""))
    others = [other for other in near if kind(other) == kind(run) and same_setting(other, run)]
    # The named run comes first, so that it is taken even where a later one has its seed.
    return [replace(read_setting(label, word, [run, *others]), plain=kind(run) == "run")]


def _list(runs: Runs, word: str) -> list[ComparedSetting]:
    ids = word.split(",")
    found = [_single(runs, id.strip()) for id in ids]
    if len(ids) < 2 or None in found:
        return []
    known = [run for run in found if run is not None]
    settings = [set(setting_keys(run).items()) for run in known]
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
    return [read_setting(str(known[0].info.run_name), word, known)]


def _single(runs: Runs, word: str) -> Run | None:
    found = [runs.get(word), *runs.named(word)]
    return next((run for run in found if run is not None and kind(run) not in GROUPS), None)
