"""Finds runs in MLflow by their ids, names and tags, and reads their artifacts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from typing_extensions import Self

from mlcl.errors import UserError, did_you_mean
from mlcl.results.provenance import log_start
from mlcl.results.stores import ClientRuns, FileRuns
from mlcl.store import home_records
from mlcl.tracking.cursor import Cursor
from mlcl.tracking.names import Tag
from mlcl.tracking.network import check_sqlite
from mlcl.tracking.uri import sqlite_file, tracking_uri

if TYPE_CHECKING:
    from mlflow.entities import Run

    from mlcl.tracking import Tracker

GROUPS = ("sweep", "table")
"""The kinds of runs that have trainings as child runs."""
HOW_TO_KEEP = "`tracking.keep=confirmed` keeps those of all trainings on fresh seeds, and `all` of all"
"""The advice of messages about a model or embeddings that a sweep did not keep."""
NAMES = (Tag.ID, Tag.NAME)
LAST = "@last"
"""The word that stands for the latest run, sweep or table."""
LEAST = 2
"""The smallest number of characters with which a name may be abbreviated."""


class Runs:
    """The runs of one tracking store, for reading only.

    `tracker` is the tracker, or a function that opens it. `source` is where runs, metrics, parameters and
    tags are read from, by default the tracker's MLflow client; `home` the folder of local runs, by default
    the tracker's.

    Example:
        >>> runs = Runs(Tracker.open_existing(Path("outputs")))
        >>> sweep = read_sweep(runs, runs.require_group("my-sweep"))
    """

    def __init__(
        self,
        tracker: Tracker | Callable[[], Tracker],
        source: FileRuns | None = None,
        home: Path | None = None,
    ) -> None:
        self._open = tracker if callable(tracker) else lambda: tracker
        self._given_source, self._home = source, home

    @classmethod
    def open_quickly(cls, home: Path) -> Self:
        """Opens the runs of an existing store without the slow import of MLflow, where that is possible.

        An SQLite file is read directly, also in a read-only home; MLflow is then imported only for artifacts
        and metric histories. Raises UserError where there is no store.
        """
        uri = tracking_uri(home)
        file = sqlite_file(uri)
        if file is None or not file.is_file() or not file.stat().st_size:
            return cls(_existing_tracker(home))
        check_sqlite(file)
        return cls(partial(_existing_tracker, home), FileRuns(file), home)

    @cached_property
    def tracker(self) -> Tracker:
        """The tracker, opened at its first use."""
        return self._open()

    @property
    def home(self) -> Path:
        """The folder of local runs."""
        return self._home or self.tracker.home

    @cached_property
    def _source(self) -> ClientRuns | FileRuns:
        return self._given_source or ClientRuns(self.tracker.client)

    def get(self, run_id: str) -> Run | None:
        """Returns the run with this MLflow id; None where it does not exist or was deleted."""
        return self._source.get(run_id)

    def find_tagged(self, tag: str, value: str, operator: str = "=") -> list[Run]:
        """Returns the runs whose `tag` equals `value`, or with `operator` LIKE matches it, latest first."""
        return list(self._source.find_tagged(tag, value, operator))

    def by_log(self, owner: str, logs: Collection[str]) -> dict[str, Run]:
        """Returns runs by log id: all runs of `owner`, and those with one of `logs` of another owner."""
        runs = {run.data.tags.get(Tag.LOG, ""): run for run in self.find_tagged(Tag.OWNER, owner)}
        for log in logs:
            if log not in runs and not log.startswith(f"{owner}."):
                runs |= dict(zip([log], self.find_tagged(Tag.LOG, log), strict=False))
        return runs

    def find_named(self, word: str) -> list[Run]:
        """Returns the run whose MLflow id is `word`, else those whose mlcl id it is, then those of this name.

        Sweeps and tables have a name. `@last` stands for the latest run, sweep or table. If no id or name
        equals the word, it may be the beginning of one; raises UserError where several begin with it.
        """
        by_id = self.get(word)
        if by_id is not None:
            return [by_id]
        if word == LAST:
            return self._latest_runs()
        matches = [run for tag in NAMES for run in self.sort_by_number(self.find_tagged(tag, word))]
        if matches or len(word) < LEAST:
            return matches
        runs_by_name: dict[str, list[Run]] = {}
        for tag in NAMES:
            for run in self.sort_by_number(self.find_tagged(tag, f"{word}%", "LIKE")):
                if kind(run) in (*GROUPS, "run", "cell") and (name := run.data.tags[tag]).startswith(word):
                    runs_by_name.setdefault(name, []).append(run)
        if len({run.info.run_id for runs in runs_by_name.values() for run in runs[:1]}) > 1:
            raise UserError(
                "is the beginning of several names", key="NAME", found=word, allowed=sorted(runs_by_name)
            )
        return next(iter(runs_by_name.values()), [])

    def sort_by_number(self, runs: Sequence[Run]) -> list[Run]:
        """Returns runs, given latest first, with those of this home sorted by number: clocks may be wrong."""
        numbers = [self._run_numbers.get(run.data.tags.get(Tag.OWNER, "")) for run in runs]
        numbered_runs = [
            (number, run) for number, run in zip(numbers, runs, strict=True) if number is not None
        ]
        latest = iter(sorted(numbered_runs, key=lambda pair: -pair[0]))
        return [run if number is None else next(latest)[1] for number, run in zip(numbers, runs, strict=True)]

    @cached_property
    def _run_numbers(self) -> dict[str, int]:
        """The numbers of this home's runs, sweeps and tables in order of creation, keyed by their id."""
        return {record.id: record.number for _, record in home_records(self.home)}

    def _latest_runs(self) -> list[Run]:
        """Returns the latest run by MLflow's start time or, if that is of this home, the home's latest."""
        top_runs = (run for run in self._source.list_latest() if Tag.PARENT not in run.data.tags)
        latest = list(islice(top_runs, 1))
        if latest and latest[0].data.tags.get(Tag.OWNER) in self._run_numbers:
            logs = (record.log for _, record in home_records(self.home))
            home_logs = (log for log in logs if not log_start(self.home, log).get("parent"))
            return (
                list(islice((run for log in home_logs for run in self.find_tagged(Tag.LOG, log)), 1))
                or latest
            )
        return latest

    def group(self, word: str) -> Run | None:
        """Returns the latest sweep or table of this MLflow id, mlcl id or name; None where there is none."""
        return next((run for run in self.find_named(word) if kind(run) in GROUPS), None)

    def require_group(self, word: str) -> Run:
        """Returns the sweep or table that `group` finds. Raises a UserError that suggests a similar name."""
        group = self.group(word)
        if group is None:
            self.check_trash(word)
            problem = f"names no sweep and no table{self.hint(word)}"
            allowed = f"a sweep's name or id, see {self.tracker.shown}"
            raise UserError(problem, key="SWEEP", found=word, allowed=allowed)
        return group

    def check_trash(self, word: str) -> None:
        """Raises UserError where MLflow has deleted the run of this home with the name or id `word`."""
        from mlcl.tracking.tracker import find_trashed

        for _, record in home_records(self.home):
            run_id = Cursor.of(self.home, record.log).run_id if word in (record.name, record.id) else None
            trashed_run = (
                None if run_id is None else find_trashed(self.tracker.client, self.tracker.uri, run_id)
            )
            if trashed_run is not None:
                raise trashed_run.error("NAME", word)

    def hint(self, word: str, kinds: Sequence[str] = GROUPS) -> str:
        """Returns `; did you mean NAME?` with a sweep or table of a similar name, or an empty text."""
        names = {
            run.data.tags.get(Tag.NAME, "")
            for run_kind in kinds
            for run in self.find_tagged(Tag.KIND, run_kind)
        }
        return did_you_mean(word, sorted(names - {""}))

    def history(self, run_id: str, metric: str) -> list[tuple[int, float]]:
        """Returns all logged points of a metric as (step, value), ordered by step."""
        points = self.tracker.client.get_metric_history(run_id, metric)
        return sorted((int(point.step), float(point.value)) for point in points)

    def text(self, run: Run, artifact: str) -> str:
        """Returns the text of an artifact. Raises UserError where the run has none of that name."""
        with TemporaryDirectory(prefix="mlcl-") as folder:
            return self.download_artifact(run, artifact, Path(folder)).read_text(encoding="utf-8")

    def download_artifact(self, run: Run, artifact: str, folder: Path) -> Path:
        """Downloads an artifact to `folder` and returns its path. Raises UserError where there is none."""
        from mlflow.exceptions import MlflowException

        try:
            return Path(self.tracker.client.download_artifacts(run.info.run_id, artifact, str(folder)))
        except (MlflowException, OSError) as error:
            problem = "the run has no such artifact, or it cannot be read"
            detail = f"run {run.info.run_id} ({self.tracker.reason(error)})"
            raise UserError(problem, key=artifact, found=detail) from None

    def has_artifact(self, run: Run, artifact: str) -> bool:
        """Whether a run has an artifact of that name."""
        return any(item.path == artifact for item in self.tracker.client.list_artifacts(run.info.run_id))


def _existing_tracker(home: Path) -> Tracker:
    from mlcl.tracking import Tracker

    return Tracker.open_existing(home)


def check_name(name: object) -> None:
    """Raises UserError for a name of a sweep or a table that is no text."""
    if not isinstance(name, str):
        raise UserError("no name", key="load", found=repr(name)[:60], allowed="that of a sweep or a table")


def kind(run: Run) -> str:
    """Returns the kind of a run: run, cell, table, sweep, trial or confirmation."""
    return str(run.data.tags.get(Tag.KIND, "run"))
