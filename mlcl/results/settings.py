"""Finds the settings to compare, each with its runs keyed by seed, from the words of the command line."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlcl.config import POSTHOC
from mlcl.errors import UserError
from mlcl.results.cell_result import CellResult
from mlcl.results.compared_setting import (
    SEED,
    SEEDS,
    SPLIT_SEED,
    VALIDATION_SEED,
    ComparedSetting,
    SeedRun,
    join_searches,
)
from mlcl.results.documents import read_sweep, read_table
from mlcl.results.runs import GROUPS, Runs, kind
from mlcl.results.sweep_result import SweepResult
from mlcl.results.training_result import SettingResult, TrainingResult, training_folder
from mlcl.store import State
from mlcl.tracking.names import Tag
from mlcl.tracking.params import param_text, without_derived

if TYPE_CHECKING:
    from mlflow.entities import Run

FORMS = (
    "names, ids, their beginnings or @last: a sweep, SWEEP:SETTING, a run, RUN,RUN or a cell 'ROW, COLUMN'"
)
WHAT = "WHAT"
MOST_KEYS = 3
"""The largest number of differing job keys in the label of a setting."""


def confirmed_setting(sweep: SweepResult, setting: SettingResult, word: str) -> ComparedSetting:
    """Returns a confirmed setting of a sweep for a comparison, named by `word`."""
    return replace(
        _of_trainings(setting.name, word, setting.seeds, setting.params, sweep.free, sweep.folder),
        lower_is_better=frozenset(sweep.lower_is_better) or None,
        names=setting.labels or ("no longer",),
        score=sweep.fresh_score,
        mode=sweep.mode,
        sweep=word.partition(":")[0],
        arm=setting.arm if setting in sweep.confirmations else "",
        search=setting.search,
        role=setting.role,
        searched=bool(setting.arm) and setting.arm not in sweep.given_arms,
        rows=sweep.data.test_rows if sweep.data else 0,
    )


def cell_setting(cell: CellResult, word: str, lower_is_better: Iterable[str]) -> ComparedSetting:
    """Returns a table's cell for a comparison; seeds of data draws are left out of its job keys."""
    without = {key for key in cell.params if SEEDS.fullmatch(key)}
    searches = _by_search(cell)
    if searches:  # the keys in which the picks differ are left out
        without.update(key for each in cell.trainings for key in each.changes)
    return replace(
        _of_trainings(cell.label, word, cell.trainings, cell.params, without),
        lower_is_better=frozenset(lower_is_better) or None,
        searched=cell.search is not None,
        method=cell.search is not None,
        searches=searches,
        rows=cell.test_rows,
    )


def _by_search(cell: CellResult) -> tuple[tuple[int, ...], ...]:
    """Returns the seeds of each search of a tuned cell; empty for a cell with a single search or none."""
    if len(cell.searches) == 1:
        return ()
    seeds = {each.log: each.seed for each in cell.trainings if each.seed is not None}
    found = (tuple(seeds[log] for place in its if (log := cell.runs[place])) for its in cell.searches)
    return tuple(its for its in found if its)


def _of_trainings(
    label: str,
    word: str,
    trainings: Iterable[TrainingResult],
    shared: Mapping[str, Any],
    without: Iterable[str] = (),
    folder: Path | None = None,
) -> ComparedSetting:
    """Builds a setting from the complete ones among `trainings`, whose jobs share the parameters `shared`.

    `without` are keys to leave out of its job; `folder` is the sweep's folder, which has the runs' files.
    """
    found: dict[int, SeedRun] = {}
    for each in trainings:
        if each.state is State.COMPLETE and each.seed is not None:
            params = _texts(each.params(shared))
            seeds = {key: text for key, text in params.items() if SEEDS.fullmatch(key)}
            place = None if folder is None else training_folder(folder, each.key)
            its = (each.run_id or "", each.seed, each.fingerprint, each.metrics, seeds, each.blocks, place)
            found[each.seed] = SeedRun(*its, each.job_hash)
    job = {key: text for key, text in _texts(shared).items() if key not in {SEED, VALIDATION_SEED, *without}}
    return ComparedSetting(
        label, word, dict(sorted(found.items())), job, score=job.get("evaluation.metric", "")
    )


def _texts(params: Mapping[str, Any]) -> dict[str, str]:
    return {key: param_text(value) for key, value in params.items()}


def read_setting(label: str, word: str, runs: Iterable[Run]) -> ComparedSetting:
    """Builds a setting from the first complete run of each seed in `runs`, which are ordered latest first."""
    found: dict[int, SeedRun] = {}
    job: dict[str, str] = {}
    lower: frozenset[str] | None = None
    score, searched = "", False
    for run in runs:
        tags = run.data.tags
        if tags.get(Tag.STATE) != State.COMPLETE or not tags.get(Tag.SEED, "").isdigit():
            continue
        seed, data = int(tags[Tag.SEED]), tags.get(Tag.FINGERPRINT, "")
        hash_ = tags.get(Tag.JOB_HASH, "")
        its = SeedRun(run.info.run_id, seed, data, dict(run.data.metrics), _data_seeds(run), job_hash=hash_)
        found.setdefault(seed, its)
        searched = searched or kind(run) == "trial"
        job = job or setting_keys(run)
        if Tag.LOWER_IS_BETTER in tags:
            lower = (lower or frozenset()) | frozenset(json.loads(tags[Tag.LOWER_IS_BETTER]))
        score = score or run.data.params.get("evaluation.metric", "")
    runs_by_seed = dict(sorted(found.items()))
    return ComparedSetting(label, word, runs_by_seed, job, lower, score=score, searched=searched)


def same_setting(one: Run, other: Run) -> bool:
    """Whether two runs are of one experiment and the same setting: their jobs differ at most in the seeds."""
    return (
        one.info.experiment_id == other.info.experiment_id
        and _data_of(one, other) == _data_of(other, one)
        and setting_keys(one) == setting_keys(other)
    )


def _data_of(run: Run, other: Run) -> str | None:
    """Returns the fingerprint of a run's data that another run on the same data must have.

    If both runs redraw validation rows with different seeds, it is the fingerprint of the stored data set. If
    their splits have different seeds, it is None, so that the data is not compared.
    """
    seeds, others = _data_seeds(run), _data_seeds(other)
    if seeds.get(SPLIT_SEED) != others.get(SPLIT_SEED):
        return None
    redrawn = seeds.get(VALIDATION_SEED) != others.get(VALIDATION_SEED)
    tags: dict[str, str] = run.data.tags
    return tags.get(Tag.STORED_FINGERPRINT if redrawn else Tag.FINGERPRINT)


def _data_seeds(run: Run) -> dict[str, str]:
    return {key: text for key, text in run.data.params.items() if SEEDS.fullmatch(key)}


def setting_keys(run: Run) -> dict[str, str]:
    """Returns a run's job keys that define its setting: all but seeds and a sweep's post-hoc keys.

    Each training of a sweep chooses the post-hoc keys (k, lambda, temperature) for itself. The seeds left out
    are those of training and of validation rows, and for a training of a table's cell all `SEEDS`.
    """
    answered = POSTHOC if kind(run) in ("trial", "confirmation") else {}
    left_out = {SEED, VALIDATION_SEED, *(key for key, grid in answered.items() if grid in run.data.params)}
    left_out |= _data_seeds(run).keys() if kind(run) == "cell" else set()
    return {key: value for key, value in without_derived(run.data.params).items() if key not in left_out}


def find_settings(runs: Runs, words: Sequence[str]) -> list[ComparedSetting]:
    """Finds the settings that the words name, in their order, for `compare_settings` and `score_posthoc`.

    The name of a sweep stands for all settings that it has confirmed on fresh seeds; a run of one of them
    for that setting; any other run for itself and the complete runs of its experiment that differ from it
    only in the seed (the latest run of each seed). Raises UserError for a word that names nothing, or no
    complete run, or a run that another word names.
    """
    found = [setting for word in words for setting in _find(runs, word)]
    labels = [setting.label for setting in found]
    seen: set[str] = set()
    for setting in found:
        if not setting.runs:
            raise UserError("no complete run", key=WHAT, found=setting.word)
        # Two cells may share runs and differ in their k-NN parameters.
        ids = {f"{run.run_id} {sorted(run.metrics.items())}" for run in setting.runs.values()}
        if ids & seen:
            problem = "names runs that are named already"
            raise UserError(problem, key=WHAT, found=setting.word, allowed="ID,ID,...")
        seen |= ids
    # Settings of two sweeps may have equal labels, but the words of the command line differ.
    several = {label for label in labels if labels.count(label) > 1}
    return _named_by_job(
        [replace(each, label=each.word) if each.label in several else each for each in found]
    )


def _named_by_job(settings: Sequence[ComparedSetting]) -> list[ComparedSetting]:
    """Labels settings of plain runs by the job keys in which they differ, if that makes labels unique."""
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
    runs.check_trash(word)
    raise UserError(f"names no run and no sweep{runs.hint(word)}", key=WHAT, found=word, allowed=FORMS)


def _sweep(runs: Runs, word: str) -> list[ComparedSetting]:
    parts = word.split(":")
    names = [":".join(parts[:count]) for count in range(len(parts), 0, -1)]  # names may have colons
    name, group = next(((name, group) for name in names if (group := runs.group(name))), ("", None))
    if group is None:
        return []
    if kind(group) != "sweep":
        labels = sorted(cell.label for cell in read_table(runs, group, only="").cells)
        raise UserError("name the cells of a table", key=WHAT, found=word, allowed="; ".join(labels))
    sweep, label = read_sweep(runs, group), word[len(name) + 1 :]
    found = [confirmed_setting(sweep, each, f"{name}:{each.name}") for each in sweep.settings]
    if not found:
        problem = "this sweep has confirmed no setting on fresh seeds"
        allowed = "the same sweep with --seeds 5, or trials by their run ids"
        raise UserError(problem, key=WHAT, found=word, allowed=allowed)
    several = any(each.search > 1 for each in found)
    whole = [replace(each, optional=True) for each in found if each.runs]
    whole = join_searches(whole) if several else whole
    arms = [replace(each, optional=False) for each in whole if each.searches]
    named = [each for each in (*arms, *found) if each.label == label][:1]
    chosen = named if label else whole or found
    if not chosen:
        known = "; ".join(dict.fromkeys(each.label for each in (*arms, *found)))  # labels may have commas
        raise UserError("no such setting of the sweep", key=WHAT, found=word, allowed=known)
    return chosen


def _cell(runs: Runs, word: str) -> list[ComparedSetting]:
    """Returns the cell named `word` in the latest table that has it; empty where no table has one."""
    if "," not in word:
        return []
    for run in runs.ordered(runs.tagged(Tag.KIND, "table")):
        try:
            table = read_table(runs, run, only=word)
        except UserError:
            continue  # the table's first command has not ended
        cell = next((cell for cell in table.cells if cell.label == word), None)
        if cell is not None and cell.trainings:
            return [cell_setting(cell, word, table.lower_is_better)]
    return []


def _run(runs: Runs, word: str) -> list[ComparedSetting]:
    run = _single(runs, word)
    if run is None:
        return []
    label, log = str(run.info.run_name), run.data.tags.get(Tag.LOG, "")
    if kind(run) == "run":
        near = runs.tagged(Tag.DATA, run.data.tags.get(Tag.DATA, ""))
        others = [other for other in near if kind(other) == "run" and same_setting(other, run)]
        # The named run comes first, so that it is taken even where a later one has its seed.
        return [replace(read_setting(label, word, [run, *others]), plain=True)]
    return [_of_group(runs, run, word, log) or read_setting(label, word, [run])]


def _of_group(runs: Runs, run: Run, word: str, log: str) -> ComparedSetting | None:
    """Returns the setting, trial or cell that a run of a sweep or table belongs to; None if unknown."""
    above: Run | None = run
    while above is not None and kind(above) not in GROUPS:
        above = runs.get(above.data.tags.get(Tag.PARENT, ""))
    if above is None:
        return None
    if kind(above) == "table":
        table = read_table(runs, above)
        cells = [cell for cell in table.cells if log in [each.log for each in cell.trainings]]
        return cell_setting(cells[0], word, table.lower_is_better) if cells else None
    sweep = read_sweep(runs, above)
    settings = [its for its in sweep.settings if log in [its.log, *(seed.log for seed in its.seeds)]]
    if settings:
        return confirmed_setting(sweep, settings[0], word)
    trial = next((each for each in sweep.all_trials if each.log == log), None)
    if trial is None:
        return None
    params = trial.params(sweep.params)
    found = _of_trainings(trial.label, word, [trial], params, without=sweep.free)
    return replace(found, lower_is_better=frozenset(sweep.lower_is_better) or None)


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
    if any(_data_of(run, known[0]) != _data_of(known[0], run) for run in known):
        data = sorted({str(run.data.tags.get(Tag.FINGERPRINT)) for run in known})
        problem = "these runs were trained on different data"
        raise UserError(problem, key=WHAT, found=data, allowed="one data set")
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
    return next((run for run in runs.named(word) if kind(run) not in GROUPS), None)
