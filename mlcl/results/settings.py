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
    "names, ids, beginnings, @last: sweep, SWEEP:SETTING, run, RUN,RUN, 'ROW, COLUMN' of a table with results"
)
WHAT = "WHAT"
MOST_KEYS = 3
"""The largest number of differing job keys in the label of a setting."""


def confirmed_setting(sweep: SweepResult, setting: SettingResult, word: str) -> ComparedSetting:
    """Returns a confirmed setting of a sweep for a comparison, named by `word`."""
    return replace(
        _build_setting(setting.name, word, setting.seeds, setting.params, sweep.free, sweep.folder),
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
    left_out = {key for key in cell.params if SEEDS.fullmatch(key)}
    searches = _seeds_by_search(cell)
    if searches:  # the keys in which the picks differ are left out
        left_out.update(key for training in cell.trainings for key in training.changes)
    return replace(
        _build_setting(cell.label, word, cell.trainings, cell.params, left_out),
        lower_is_better=frozenset(lower_is_better) or None,
        searched=cell.search is not None,
        method=cell.search is not None,
        searches=searches,
        rows=cell.test_rows,
    )


def _seeds_by_search(cell: CellResult) -> tuple[tuple[int, ...], ...]:
    """Returns the seeds of each search of a tuned cell; empty for a cell with a single search or none."""
    if len(cell.searches) == 1:
        return ()
    seeds = {training.log: training.seed for training in cell.trainings if training.seed is not None}
    searches = (
        tuple(seeds[log] for place in places if (log := cell.runs[place])) for places in cell.searches
    )
    return tuple(search for search in searches if search)


def _build_setting(
    label: str,
    word: str,
    trainings: Iterable[TrainingResult],
    shared: Mapping[str, Any],
    left_out: Iterable[str] = (),
    folder: Path | None = None,
) -> ComparedSetting:
    """Builds a setting from the complete ones among `trainings`, whose jobs share the parameters `shared`.

    `left_out` are keys to leave out of its job; `folder` is the sweep's folder, which has the runs' files.
    """
    runs: dict[int, SeedRun] = {}
    for training in trainings:
        if training.state is State.COMPLETE and training.seed is not None:
            params = _texts(training.params(shared))
            data_seeds = {key: text for key, text in params.items() if SEEDS.fullmatch(key)}
            run_folder = None if folder is None else training_folder(folder, training.key)
            fields = (
                training.run_id or "",
                training.seed,
                training.fingerprint,
                training.metrics,
                data_seeds,
                training.blocks,
                run_folder,
            )
            runs[training.seed] = SeedRun(*fields, training.job_hash)
    job = {key: text for key, text in _texts(shared).items() if key not in {SEED, VALIDATION_SEED, *left_out}}
    return ComparedSetting(
        label, word, dict(sorted(runs.items())), job, score=job.get("evaluation.metric", "")
    )


def _texts(params: Mapping[str, Any]) -> dict[str, str]:
    return {key: param_text(value) for key, value in params.items()}


def read_setting(label: str, word: str, runs: Iterable[Run]) -> ComparedSetting:
    """Builds a setting from the first complete run of each seed in `runs`, which are ordered latest first."""
    seed_runs: dict[int, SeedRun] = {}
    job: dict[str, str] = {}
    patterns: frozenset[str] | None = None
    score, searched = "", False
    for run in runs:
        tags = run.data.tags
        if tags.get(Tag.STATE) != State.COMPLETE or not tags.get(Tag.SEED, "").isdigit():
            continue
        seed, data = int(tags[Tag.SEED]), tags.get(Tag.FINGERPRINT, "")
        hash_ = tags.get(Tag.JOB_HASH, "")
        seed_run = SeedRun(
            run.info.run_id, seed, data, dict(run.data.metrics), _data_seeds(run), job_hash=hash_
        )
        seed_runs.setdefault(seed, seed_run)
        searched = searched or kind(run) == "trial"
        job = job or setting_keys(run)
        if Tag.LOWER_IS_BETTER in tags:
            patterns = (patterns or frozenset()) | frozenset(json.loads(tags[Tag.LOWER_IS_BETTER]))
        score = score or run.data.params.get("evaluation.metric", "")
    runs_by_seed = dict(sorted(seed_runs.items()))
    return ComparedSetting(label, word, runs_by_seed, job, patterns, score=score, searched=searched)


def same_setting(one: Run, other: Run) -> bool:
    """Whether two runs are of one experiment and the same setting: their jobs differ at most in the seeds."""
    return (
        one.info.experiment_id == other.info.experiment_id
        and _fingerprint(one, other) == _fingerprint(other, one)
        and setting_keys(one) == setting_keys(other)
    )


def _fingerprint(run: Run, other: Run) -> str | None:
    """Returns the fingerprint of a run's data that another run on the same data must have.

    If both runs redraw validation rows with different seeds, it is the fingerprint of the stored data set. If
    their splits have different seeds, it is None, so that the data is not compared.
    """
    seeds, other_seeds = _data_seeds(run), _data_seeds(other)
    if seeds.get(SPLIT_SEED) != other_seeds.get(SPLIT_SEED):
        return None
    redrawn = seeds.get(VALIDATION_SEED) != other_seeds.get(VALIDATION_SEED)
    tags: dict[str, str] = run.data.tags
    return tags.get(Tag.STORED_FINGERPRINT if redrawn else Tag.FINGERPRINT)


def _data_seeds(run: Run) -> dict[str, str]:
    return {key: text for key, text in run.data.params.items() if SEEDS.fullmatch(key)}


def setting_keys(run: Run) -> dict[str, str]:
    """Returns a run's job keys that define its setting: all but seeds and a sweep's post-hoc keys.

    Each training of a sweep chooses the post-hoc keys (k, lambda, temperature) for itself. The seeds left out
    are those of training and of validation rows, and for a training of a table's cell all `SEEDS`.
    """
    posthoc = POSTHOC if kind(run) in ("trial", "confirmation") else {}
    left_out = {SEED, VALIDATION_SEED, *(key for key, grid in posthoc.items() if grid in run.data.params)}
    left_out |= _data_seeds(run).keys() if kind(run) == "cell" else set()
    return {key: value for key, value in without_derived(run.data.params).items() if key not in left_out}


def find_settings(runs: Runs, words: Sequence[str]) -> list[ComparedSetting]:
    """Finds the settings that the words name, in their order, for `compare_settings` and `score_posthoc`.

    The name of a sweep stands for all settings that it has confirmed on fresh seeds; a run of one of them
    for that setting; any other run for itself and the complete runs of its experiment that differ from it
    only in the seed (the latest run of each seed). Raises UserError for a word that names nothing, or no
    complete run, or a run that another word names.
    """
    settings = [setting for word in words for setting in _find_settings(runs, word)]
    labels = [setting.label for setting in settings]
    seen_ids: set[str] = set()
    for setting in settings:
        if not setting.runs:
            raise UserError("no complete run", key=WHAT, found=setting.word)
        # Two cells may share runs and differ in their k-NN parameters.
        ids = {f"{run.run_id} {sorted(run.metrics.items())}" for run in setting.runs.values()}
        if ids & seen_ids:
            problem = "names runs that are named already"
            raise UserError(problem, key=WHAT, found=setting.word, allowed="ID,ID,...")
        seen_ids |= ids
    # Settings of two sweeps may have equal labels, but the words of the command line differ.
    repeats = {label for label in labels if labels.count(label) > 1}
    return _label_by_job(
        [
            replace(setting, label=setting.word) if setting.label in repeats else setting
            for setting in settings
        ]
    )


def _label_by_job(settings: Sequence[ComparedSetting]) -> list[ComparedSetting]:
    """Labels settings of plain runs by the job keys in which they differ, if that makes labels unique."""
    plain = [setting for setting in settings if setting.plain]
    if len(plain) < 2:
        return list(settings)
    jobs = [{key: text for key, text in setting.job.items() if not SEEDS.fullmatch(key)} for setting in plain]
    keys = sorted({key for job in jobs for key, _ in set(job.items()) ^ set(jobs[0].items())})[:MOST_KEYS]
    names = [", ".join(f"{key.rpartition('.')[2]} {job.get(key, '-')}" for key in keys) for job in jobs]
    if len(set(names)) < len(names):
        return list(settings)
    by_word = {setting.word: name for setting, name in zip(plain, names, strict=True)}
    return [
        replace(setting, label=by_word[setting.word]) if setting.plain else setting for setting in settings
    ]


def _find_settings(runs: Runs, word: str) -> list[ComparedSetting]:
    for form in (_find_in_sweep, _find_in_list, _find_cell, _find_run):
        settings = form(runs, word)
        if settings:
            return settings
    runs.check_trash(word)
    raise UserError(f"names no run and no sweep{runs.hint(word)}", key=WHAT, found=word, allowed=FORMS)


def _find_in_sweep(runs: Runs, word: str) -> list[ComparedSetting]:
    parts = word.split(":")
    names = [":".join(parts[:count]) for count in range(len(parts), 0, -1)]  # names may have colons
    name, group = next(((name, group) for name in names if (group := runs.group(name))), ("", None))
    if group is None:
        return []
    if kind(group) != "sweep":
        labels = sorted(cell.label for cell in read_table(runs, group, only="").cells)
        raise UserError("name the cells of a table", key=WHAT, found=word, allowed="; ".join(labels))
    sweep, label = read_sweep(runs, group), word[len(name) + 1 :]
    settings = [confirmed_setting(sweep, setting, f"{name}:{setting.name}") for setting in sweep.settings]
    if not settings:
        problem = "this sweep has confirmed no setting on fresh seeds"
        allowed = "the same sweep with --seeds 5, or trials by their run ids"
        raise UserError(problem, key=WHAT, found=word, allowed=allowed)
    several = any(setting.search > 1 for setting in settings)
    sweep_settings = [replace(setting, optional=True) for setting in settings if setting.runs]
    sweep_settings = join_searches(sweep_settings) if several else sweep_settings
    arms = [replace(setting, optional=False) for setting in sweep_settings if setting.searches]
    matches = [setting for setting in (*arms, *settings) if setting.label == label][:1]
    selection = matches if label else sweep_settings or settings
    if not selection:
        # The labels may have commas.
        known_labels = "; ".join(dict.fromkeys(setting.label for setting in (*arms, *settings)))
        raise UserError("no such setting of the sweep", key=WHAT, found=word, allowed=known_labels)
    return selection


def _find_cell(runs: Runs, word: str) -> list[ComparedSetting]:
    """Returns the cell named `word` in the latest table that has it; empty where no table has one."""
    if "," not in word:
        return []
    for run in runs.sort_by_number(runs.find_tagged(Tag.KIND, "table")):
        try:
            table = read_table(runs, run, only=word)
        except UserError:
            continue  # the table's first command has not ended
        cell = next((cell for cell in table.cells if cell.label == word), None)
        if cell is not None and cell.trainings:
            return [cell_setting(cell, word, table.lower_is_better)]
    return []


def _find_run(runs: Runs, word: str) -> list[ComparedSetting]:
    run = _find_single(runs, word)
    if run is None:
        return []
    label, log = str(run.info.run_name), run.data.tags.get(Tag.LOG, "")
    if kind(run) == "run":
        candidates = runs.find_tagged(Tag.DATA, run.data.tags.get(Tag.DATA, ""))
        others = [other for other in candidates if kind(other) == "run" and same_setting(other, run)]
        # The named run comes first, so that it is taken even where a later one has its seed.
        return [replace(read_setting(label, word, [run, *others]), plain=True)]
    return [_find_in_group(runs, run, word, log) or read_setting(label, word, [run])]


def _find_in_group(runs: Runs, run: Run, word: str, log: str) -> ComparedSetting | None:
    """Returns the setting, trial or cell that a run of a sweep or table belongs to; None if unknown."""
    ancestor: Run | None = run
    while ancestor is not None and kind(ancestor) not in GROUPS:
        ancestor = runs.get(ancestor.data.tags.get(Tag.PARENT, ""))
    if ancestor is None:
        return None
    if kind(ancestor) == "table":
        table = read_table(runs, ancestor)
        cells = [cell for cell in table.cells if log in [training.log for training in cell.trainings]]
        return cell_setting(cells[0], word, table.lower_is_better) if cells else None
    sweep = read_sweep(runs, ancestor)
    settings = [
        setting for setting in sweep.settings if log in [setting.log, *(seed.log for seed in setting.seeds)]
    ]
    if settings:
        return confirmed_setting(sweep, settings[0], word)
    trial = next((trial for trial in sweep.all_trials if trial.log == log), None)
    if trial is None:
        return None
    params = trial.params(sweep.params)
    setting = _build_setting(trial.label, word, [trial], params, left_out=sweep.free)
    return replace(setting, lower_is_better=frozenset(sweep.lower_is_better) or None)


def _find_in_list(runs: Runs, word: str) -> list[ComparedSetting]:
    ids = word.split(",")
    matches = [_find_single(runs, id.strip()) for id in ids]
    if len(ids) < 2 or None in matches:
        return []
    named_runs = [run for run in matches if run is not None]
    settings = [set(setting_keys(run).items()) for run in named_runs]
    differing = sorted({key for other in settings[1:] for key, _ in settings[0] ^ other})
    if differing:
        raise UserError("these runs differ in more than the seed", key=WHAT, found=word, allowed=differing)
    if any(_fingerprint(run, named_runs[0]) != _fingerprint(named_runs[0], run) for run in named_runs):
        data = sorted({str(run.data.tags.get(Tag.FINGERPRINT)) for run in named_runs})
        problem = "these runs were trained on different data"
        raise UserError(problem, key=WHAT, found=data, allowed="one data set")
    if len({kind(run) == "trial" for run in named_runs}) > 1:
        raise UserError("a search trial is not pooled with other runs", key=WHAT, found=word)
    seeds = [run.data.tags.get(Tag.SEED, "") for run in named_runs]
    if len(set(seeds)) < len(seeds):
        raise UserError("names a seed twice", key=WHAT, found=word, allowed="one run a seed")
    incomplete_ids = [run.info.run_id for run in named_runs if run.data.tags.get(Tag.STATE) != State.COMPLETE]
    if incomplete_ids:
        raise UserError("not complete runs", key=WHAT, found=incomplete_ids, allowed=State.COMPLETE)
    return [read_setting(str(named_runs[0].info.run_name), word, named_runs)]


def _find_single(runs: Runs, word: str) -> Run | None:
    return next((run for run in runs.find_named(word) if kind(run) not in GROUPS), None)
