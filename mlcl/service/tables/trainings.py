"""The trainings that a table needs: one run per seed of a plain cell, and the searches of tuned cells."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from mlcl.config import JobConfig, dump_job, job_hash
from mlcl.config.table.cells import Cell
from mlcl.data import DatasetInfo
from mlcl.errors import UserError
from mlcl.service.engine.entries import End, Entry, Training
from mlcl.service.engine.ledger import Ledger
from mlcl.service.engine.precision import refuse_auto
from mlcl.service.engine.shared_runs import SharedRuns
from mlcl.service.engine.source import TrainingSource
from mlcl.service.tables.origin import digest
from mlcl.service.tables.plan import TablePlan, check_metrics, check_prepared, check_sources, download_hint
from mlcl.service.tables.tuned_cell import TunedCell
from mlcl.store import RunFolder, RunFolders
from mlcl.tracking import State
from mlcl.training.job_data import JobData, open_dataset
from mlcl.training.run_files import EMBEDDINGS, RESULT

Key = tuple[str, str]
"""The key of a run: the hash of its job and the fingerprint of its data."""
ALIKE = ("workers", "device")
"""Keys of `train` that must be equal in all trainings of a table, since they decide how many run at once."""
SHOWN: dict[str, Any] = {
    **dict.fromkeys(("tune", "ranks", "models", "clean"), True),
    **{name: {"__all__": {"tune", "columns"}} for name in ("rows", "columns", "scales")},
}
"""Keys of a table file that its identity does not contain, for the argument `exclude` of Pydantic.

Their effects on trainings are part of the identity, since it contains the cells.
"""


@dataclass(frozen=True)
class TableRun:
    """One training of a table: a job with its data. Cells with equal jobs share it."""

    label: str
    job: JobConfig
    data: DatasetInfo

    @property
    def key(self) -> Key:
        """The key of the run: the hash of its job and the fingerprint of its data."""
        return job_hash(self.job), self.data.fingerprint


class TableTrainings:
    """The runs and searches of a table, and those already in the home. The constructor checks the table.

    `runs` has those of plain cells, each once. Of `tuned`, cells that take values from another (`control`)
    come last. `count` is the number of trainings, in which searches count with the largest number they can
    have.
    """

    def __init__(self, plan: TablePlan, home: Path) -> None:
        self.plan, self.home = plan, home
        self.runs = check_table(plan, home)
        self.tuned = _tuned_cells(plan, home)
        self.count = len(self.runs) + sum(cell.most_trainings for cell in self.tuned)

    @cached_property
    def identity(self) -> str:
        """A hash of sixteen hex digits, equal for commands on one table with the same options and data."""
        plan = self.plan
        table = plan.table.model_dump(mode="json", exclude=SHOWN)
        limits = {figure.name: plan.tolerance(figure.name) for cell in plan.cells for figure in cell.figures}
        cells = [[cell.id, dict(cell.neighbours)] for cell in plan.cells]
        keys = sorted(run.key for run in self.runs)
        return digest([table, plan.about, limits, cells, keys, *(cell.identity for cell in self.tuned)])

    def folder(self) -> RunFolder | None:
        """Returns the folder of the table with this name and identity; None before its first command."""
        name_and_hash = (self.plan.name, self.identity)
        records = RunFolders(self.home, "tables").records()
        return next(
            (folder for folder, record in records if (record.name, record.job_hash) == name_and_hash), None
        )

    def missing_runs(self) -> list[TableRun]:
        """Returns the runs that are not complete in the home, or lack embeddings that a cell needs."""
        folders = find_complete_runs(self.home)
        read_hashes = {job_hash(job) for cell in self.plan.cells if cell.neighbours for job in cell.jobs}
        complete_keys = {
            key
            for key, folder in folders.items()
            if key[0] not in read_hashes or (folder.path / EMBEDDINGS).exists()
        }
        return [run for run in self.runs if run.key not in complete_keys]

    @cached_property
    def all_ledgers(self) -> list[Ledger]:
        """The ledgers of all tables of the home, the latest table first; read once, at the first access."""
        return [Ledger(folder.path) for folder, _ in RunFolders(self.home, "tables").records()]

    def ledgers(self, own_ledger: Ledger | None) -> dict[TunedCell, Ledger | None]:
        """Returns the ledger that has, or will have, the searches of each tuned cell.

        It is that of another table in which they are finished, unless `own_ledger` has begun them; otherwise
        it is `own_ledger`.
        """
        ledgers: dict[TunedCell, Ledger | None] = {}
        for cell in self.tuned:
            cell.follow(ledgers)
            begun = own_ledger is not None and own_ledger.trials(scope=cell.scope)
            other_ledgers = [] if begun else self.all_ledgers
            ledgers[cell] = next((ledger for ledger in other_ledgers if cell.is_whole_in(ledger)), own_ledger)
        return ledgers

    def count_left(self, ledgers: Mapping[TunedCell, Ledger | None]) -> int:
        """Returns the number of trainings that have not ended, given the ledger of each tuned cell."""
        for cell in self.tuned:  # the picks of a control may have changed since the last call of `follow`
            cell.follow(ledgers)
        return len(self.missing_runs()) + sum(cell.count_left(ledger) for cell, ledger in ledgers.items())


class CellsSource(TrainingSource):
    """Hands out the missing runs; `failed` has the entries of runs that ended with a reason, by run key."""

    stage = "table"
    store: SharedRuns

    def __init__(self, missing: Sequence[TableRun], ledger: Ledger, store: SharedRuns) -> None:
        self.store, self.failed = store, dict[Key, Entry]()
        self._ledger, self._waiting_runs, self._total_count = ledger, list(missing), len(missing)
        self._runs_by_key: dict[str, TableRun] = {}
        self._ended_count = 0

    def start(self) -> tuple[int, int]:
        """Returns zero as the number of ended runs, and the number of missing runs."""
        return 0, self._total_count

    def next(self) -> Entry | None:
        """Returns the entry of the next run, which is resumed if it was interrupted; None if none is left."""
        if not self._waiting_runs:
            return None
        run = self._waiting_runs.pop(0)
        key = self.store.claim(run.job, run.data)
        self._runs_by_key[key] = run
        entry = self._ledger.entries.get(key)
        if entry is None or entry.ended:
            return self._ledger.open(Training(key, run.label, dump_job(run.job), settings={}))
        return entry

    def complete(self, entry: Entry, values: list[float]) -> End:  # noqa: ARG002
        """Returns an end that is COMPLETE and has no metrics, which are read from the run's folder later."""
        return End(State.COMPLETE)

    def on_end(self, entry: Entry) -> None:
        """Counts a run that has ended, and keeps its entry in `failed` if it has a reason."""
        self._ended_count += entry.ended
        run = self._runs_by_key.get(entry.key)
        if run is not None and entry.reason:
            self.failed[run.key] = entry

    def left(self) -> int:
        """Returns the number of runs that have not ended."""
        return self._total_count - self._ended_count


def _tuned_cells(plan: TablePlan, home: Path) -> list[TunedCell]:
    tuned_cells: dict[tuple[str, str], TunedCell] = {}
    pairs = [(cell, cell.tuning.control) for cell in plan.cells if cell.tuning is not None]
    for cell, control in sorted(pairs, key=lambda pair: pair[1] is not None):
        leader = None if control is None else tuned_cells[control, cell.column]
        tuned_cells[cell.row, cell.column] = TunedCell(cell, plan, home, leader)
    return list(tuned_cells.values())


def find_complete_runs(home: Path) -> dict[Key, RunFolder]:
    """Returns the folders of the complete runs under `home` by key; of equal runs, the latest."""
    folders: dict[Key, RunFolder] = {}
    for folder, record in RunFolders(home).records():
        if record.state is State.COMPLETE and (folder.path / RESULT).is_file():
            folders.setdefault((record.job_hash, record.fingerprint), folder)
    return folders


def check_table(plan: TablePlan, home: Path) -> list[TableRun]:
    """Checks each cell by its first job, and returns the distinct runs of plain cells, seed by seed."""
    check_sources([cell.jobs[0] for cell in plan.cells], plan.data, plan.file)
    infos: dict[str, DatasetInfo] = {}
    for cell in plan.cells:
        data = _data_key(cell.jobs[0])
        refuse_auto(cell.jobs[0], "a table")
        job_data = _open_data(cell, home, verify=data not in infos)
        infos[data] = job_data.dataset.info
        check_prepared(job_data, plan.data)
        if cell.tuning is None:
            check_metrics(cell, job_data, plan.file)
        if cell.neighbours and not plan.table.models:
            problem = f"the neighbours of cell {cell.id} are computed from stored embeddings"
            raise UserError(problem, file=plan.file, key="models", found=False, allowed=True)
    plain_cells = [cell for cell in plan.cells if cell.tuning is None]
    runs: dict[Key, TableRun] = {}
    # Seed by seed, so that after a stop, or if a row fails, every other cell has some runs.
    for seed in range(max((len(cell.jobs) for cell in plain_cells), default=0)):
        for cell in (cell for cell in plain_cells if seed < len(cell.jobs)):
            job = cell.jobs[seed]
            data = _data_key(job)
            if data not in infos:
                infos[data] = open_dataset(job, home, verify=True).info
            run = TableRun(f"{cell.row}, {cell.column}, seed {job.train.seed}", job, infos[data])
            runs.setdefault(run.key, run)
    for name in ALIKE:
        values = sorted({str(getattr(job.train, name)) for cell in plan.cells for job in cell.jobs})
        if len(values) > 1:
            problem = "the trainings of a table share this key"
            raise UserError(problem, file=plan.file, key=f"train.{name}", found=values, allowed="one value")
    if len({str(job.tracking.notify) for cell in plan.cells for job in cell.jobs}) > 1:
        problem = "the jobs of a table share this key"  # its values may be secret
        raise UserError(problem, file=plan.file, key="tracking.notify", allowed="one value")
    plan.resources.check(plan.cells[0].jobs[0])
    return list(runs.values())


def _data_key(job: JobConfig) -> str:
    """Returns a text that identifies a job's data set without opening it."""
    data = dump_job(job)["data"]
    keys = ("source", "path", "options", "split_seed", "validation_seed", "hold_out")
    return json.dumps([data.get(key) for key in keys], sort_keys=True)


def _open_data(cell: Cell, home: Path, *, verify: bool) -> JobData:
    try:
        return JobData.of(cell.jobs[0], home, verify=verify)
    except UserError as error:
        problem, allowed = f"{error.problem} (cell {cell.id})", error.allowed
        if error.key is None and error.file is None and allowed is None:
            allowed = download_hint(cell.jobs[0])
        raise error.with_fields(problem=problem, allowed=allowed) from None
