"""What is compared: settings with their runs by seed, read from MLflow."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from mlflow.entities import Run

from mlcl.config import POSTHOC
from mlcl.errors import UserError
from mlcl.report.frame import DERIVED
from mlcl.report.runs import GROUPS, ID, KIND, PARENT, Runs, kind
from mlcl.report.table_data import read_cells
from mlcl.tracking import State

SEED, SPLIT_SEED = "train.seed", "data.split_seed"
SEEDS = re.compile(r"data\.(\w+\.seed|split_seed)")
"""Of what is drawn from the data: a split, a subset, wrong labels."""
AS_WRITTEN = "as written"
"""What a sweep calls the job that it was given; what it found is called after the trial."""
FORMS = "a sweep (name or id), SWEEP:SETTING, a run's id, ID,ID,... or a table's 'ROW, COLUMN'"
WHAT = "WHAT"


@dataclass(frozen=True)
class Measured:
    """One run: its seed, the fingerprint of its data, its last metrics, the keys that match `SEEDS`."""

    run_id: str
    seed: int
    data: str
    metrics: Mapping[str, float]
    drawn: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Contender:
    """A setting, with its complete runs by seed. `word` is how it was asked for, `job` its keys."""

    label: str
    word: str
    runs: Mapping[int, Measured]
    job: Mapping[str, str] = field(default_factory=dict)

    @property
    def metrics(self) -> set[str]:
        """Metrics that all of its runs have."""
        return set.intersection(*(set(run.metrics) for run in self.runs.values()))


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


def settings_of(runs: Runs, sweep: Run, name: str) -> list[Contender]:
    """The settings that a sweep has confirmed: baselines and the job as written before what was found."""
    return [
        _contender(label_of(group), f"{name}:{label_of(group)}", runs.children(group))
        for group in groups_of(runs, sweep)
    ]


def groups_of(runs: Runs, sweep: Run) -> list[Run]:
    """The runs that hold the seeds of a setting: baselines, the job as written, what was found.

    Each by their beginning: a baseline may come to a sweep that has confirmed others before.
    """
    held = filter(holds_seeds, runs.children(sweep))
    return sorted(held, key=lambda run: (_place(label_of(run)), int(run.info.start_time)))


def _place(label: str) -> int:
    return 2 if label.startswith("trial") else int(label == AS_WRITTEN)


def label_of(group: Run) -> str:
    """The setting whose seeds a run holds."""
    return str(group.data.tags.get(ID, group.info.run_name))


def _cell(runs: Runs, word: str) -> list[Contender]:
    if "," not in word:
        return []
    named = [run for run in runs.tagged("mlcl.cell", f"{word}, seed %", "LIKE") if cell_of(run) == word]
    known = {run.info.run_id: run for run in named}
    # The same job may have been trained before: for another cell, for another table, by itself.
    for table in reversed(runs.tagged(KIND, "table")):
        known |= {run.info.run_id: run for run in read_cells(runs, table, word).get(word, [])}
    if not known:
        return []
    found = sorted(known.values(), key=lambda run: -int(run.info.start_time))
    # A table may have been reproduced again, with other settings: those of the latest run are meant.
    latest = next((run for run in found if run.data.tags.get("mlcl.state") == State.COMPLETE), found[0])
    return [_contender(word, word, [run for run in found if _alike(run, latest, cell=True)], cell=True)]


def cell_of(run: Run) -> str:
    """`ROW, COLUMN` of a table's run; empty for others."""
    return str(run.data.tags.get("mlcl.cell", "")).rpartition(", seed ")[0]


def _run(runs: Runs, word: str) -> list[Contender]:
    run = _single(runs, word)
    if run is None:
        return []
    label = cell_of(run) or str(run.info.run_name)
    if kind(run) == "trial":  # its seed is the search's own, and no other run has it
        return [_contender(label, word, [run])]
    inside = runs.children(run)
    if inside:
        return [_contender(label_of(run), word, inside)]
    above = runs.get(run.data.tags.get(PARENT, ""))
    if above is not None and holds_seeds(above):
        return [_contender(label_of(above), word, runs.children(above))]
    if kind(run) == "cell":
        near = runs.tagged("mlcl.cell", f"{cell_of(run)}, seed %", "LIKE")
    else:
        near = runs.tagged("mlcl.data_fingerprint", run.data.tags.get("mlcl.data_fingerprint", ""))
    alike = [other for other in near if kind(other) == kind(run) and _alike(other, run)]
    # Of its own seed it is the one that is meant, though there may be a later one.
    return [_contender(label, word, [run, *alike])]


def _alike(one: Run, other: Run, *, cell: bool = False) -> bool:
    """Whether two runs differ in nothing but the seed; `cell`: as runs of one cell do."""
    same_data = one.data.tags.get("mlcl.data_fingerprint") == other.data.tags.get("mlcl.data_fingerprint")
    return (
        one.info.experiment_id == other.info.experiment_id
        and (same_data or _drawn(one).get(SPLIT_SEED) != _drawn(other).get(SPLIT_SEED))
        and _setting(one, cell=cell) == _setting(other, cell=cell)
    )


def _drawn(run: Run) -> dict[str, str]:
    """The keys that seed what was drawn from the data."""
    return {key: text for key, text in run.data.params.items() if SEEDS.fullmatch(key)}


def holds_seeds(run: Run) -> bool:
    """Whether a run of kind confirmation is the one that holds the seeds."""
    return kind(run) == "confirmation" and "-seed" not in run.data.tags.get("mlcl.key", "")


def _list(runs: Runs, word: str) -> list[Contender]:
    ids = word.split(",")
    found = [_single(runs, id.strip()) for id in ids]
    if len(ids) < 2 or None in found:
        return []
    known = [run for run in found if run is not None]
    settings = [set(_setting(run).items()) for run in known]
    differing = sorted({key for other in settings[1:] for key, _ in settings[0] ^ other})
    if differing:
        raise UserError("these runs differ in more than the seed", key=WHAT, found=word, allowed=differing)
    if len({kind(run) == "trial" for run in known}) > 1:
        raise UserError("a search trial is not pooled with other runs", key=WHAT, found=word)
    seeds = [run.data.tags.get("mlcl.seed", "") for run in known]
    if len(set(seeds)) < len(seeds):
        raise UserError("names a seed twice", key=WHAT, found=word, allowed="one run a seed")
    odd = [run.info.run_id for run in known if run.data.tags.get("mlcl.state") != State.COMPLETE]
    if odd:
        raise UserError("not complete runs", key=WHAT, found=odd, allowed=State.COMPLETE)
    return [_contender(str(known[0].info.run_name), word, known)]


def _single(runs: Runs, word: str) -> Run | None:
    found = [runs.get(word), *runs.tagged(ID, word)]
    return next((run for run in found if run is not None and kind(run) not in GROUPS), None)


def _setting(run: Run, *, cell: bool = False) -> dict[str, str]:
    """The job's keys but for the seed, and for those that each training of a sweep answers for itself.

    In a table (`cell`, or a run of that kind) each seed may make draws of its own from the data.
    """
    answered = POSTHOC if kind(run) in ("trial", "confirmation") else {}
    left_out = {SEED, *(key for key, grid in answered.items() if grid in run.data.params)}
    left_out |= _drawn(run).keys() if cell or kind(run) == "cell" else set()
    return {key: value for key, value in run.data.params.items() if key.removeprefix(DERIVED) not in left_out}


def _contender(label: str, word: str, runs: Iterable[Run], *, cell: bool = False) -> Contender:
    """Of the complete runs, the latest of each seed; `runs` come latest first."""
    found: dict[int, Measured] = {}
    job: dict[str, str] = {}
    for run in runs:
        tags = run.data.tags
        if tags.get("mlcl.state") != State.COMPLETE or not tags.get("mlcl.seed", "").isdigit():
            continue
        seed, data = int(tags["mlcl.seed"]), tags.get("mlcl.data_fingerprint", "")
        found.setdefault(seed, Measured(run.info.run_id, seed, data, dict(run.data.metrics), _drawn(run)))
        job = job or _setting(run, cell=cell)
    return Contender(label, word, dict(sorted(found.items())), job)
