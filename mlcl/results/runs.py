"""Finds runs in MLflow by their ids, names and tags."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Self

from mlcl.errors import UserError, did_you_mean
from mlcl.results.provenance import log_start
from mlcl.results.stores import ClientRuns, FileRuns, RunSource
from mlcl.store import home_records
from mlcl.tracking.names import Tag
from mlcl.tracking.network import check_sqlite
from mlcl.tracking.uri import sqlite_file, tracking_uri

if TYPE_CHECKING:
    from mlflow.entities import Run

    from mlcl.tracking import Tracker

GROUPS = ("sweep", "table")
"""Kinds of runs that trainings are nested in."""
NAMES = (Tag.ID, Tag.NAME)
LAST = "@last"
"""Stands for the latest run, sweep or table."""
LEAST = 2
"""Fewest letters that stand for the one name that begins with them."""


class Runs:
    """The runs of one tracking store. Nothing is written.

    Args:
        tracker: The tracker, or a function that opens it.
        source: Answers questions that need no artifact. Default: MLflow's client.
        home: The folder of local runs. Default: the tracker's.

    Example:
        >>> runs = Runs(Tracker.existing(Path("outputs")))
        >>> sweep = read_sweep(runs, runs.require_group("my-sweep"))
    """

    def __init__(
        self,
        tracker: Tracker | Callable[[], Tracker],
        source: RunSource | None = None,
        home: Path | None = None,
    ) -> None:
        self._open = tracker if callable(tracker) else lambda: tracker
        self._given, self._home = source, home

    @classmethod
    def quickly(cls, home: Path) -> Self:
        """The runs of an existing store; MLflow is imported only where it is no file, or for an artifact.

        A file is read in a home that cannot be written, too. Raises UserError where there is no store.
        """
        uri = tracking_uri(home)
        file = sqlite_file(uri)
        if file is None or not file.is_file() or not file.stat().st_size:
            return cls(_existing(home))
        check_sqlite(file)
        return cls(partial(_existing, home), FileRuns(file), home)

    @cached_property
    def tracker(self) -> Tracker:
        """The tracker, opened at its first use."""
        return self._open()

    @property
    def home(self) -> Path:
        """The folder of local runs."""
        return self._home or self.tracker.home

    @cached_property
    def _source(self) -> RunSource:
        return self._given or ClientRuns(self.tracker.client)

    def get(self, run_id: str) -> Run | None:
        """The run of MLflow's id; None where there is none or it was deleted."""
        return self._source.get(run_id)

    def tagged(self, tag: str, value: str, how: str = "=") -> list[Run]:
        """The runs with a value of a tag, the latest first; `how`: = or LIKE."""
        return list(self._source.tagged(tag, value, how))

    def by_log(self, owner: str, logs: Collection[str]) -> dict[str, Run]:
        """The runs with these logs, by log; the logs of trainings of the sweep or table `owner` are quick."""
        found = {run.data.tags.get(Tag.LOG, ""): run for run in self.tagged(Tag.OWNER, owner)}
        for log in logs:
            runs = [] if log in found else self.tagged(Tag.LOG, log)
            found |= dict(zip([log], runs, strict=False))
        return found

    def named(self, word: str) -> list[Run]:
        """The runs with this id of their own, then the sweeps and tables with this name.

        `@last` is the latest run, sweep or table. Where nothing has this id or name, those whose id or name
        begins with it. Raises UserError where these are several.
        """
        if word == LAST:
            return self._last()
        found = [run for tag in NAMES for run in self.ordered(self.tagged(tag, word))]
        if found or len(word) < LEAST:
            return found
        begun: dict[str, list[Run]] = {}
        for tag in NAMES:
            for run in self.ordered(self.tagged(tag, f"{word}%", "LIKE")):
                if kind(run) in (*GROUPS, "run", "cell") and (its := run.data.tags[tag]).startswith(word):
                    begun.setdefault(its, []).append(run)
        if len({run.info.run_id for runs in begun.values() for run in runs[:1]}) > 1:
            raise UserError("begins several names", key="NAME", found=word, allowed=sorted(begun))
        return next(iter(begun.values()), [])

    def ordered(self, runs: Sequence[Run]) -> list[Run]:
        """The runs, with those of this home in its own order: MLflow's follows the clock."""
        numbers = [self._numbers.get(run.data.tags.get(Tag.OWNER, "")) for run in runs]
        own = [(number, run) for number, run in zip(numbers, runs, strict=True) if number is not None]
        latest = iter(sorted(own, key=lambda each: -each[0]))
        return [run if number is None else next(latest)[1] for number, run in zip(numbers, runs, strict=True)]

    @cached_property
    def _numbers(self) -> dict[str, int]:
        """The runs, sweeps and tables of this home, numbered as they were begun."""
        return {record.id: record.number for _, record in home_records(self.home)}

    def _last(self) -> list[Run]:
        """The latest by MLflow's time; where it is of this home, the latest of the home."""
        outer = (run for run in self._source.latest() if Tag.PARENT not in run.data.tags)
        latest = list(islice(outer, 1))
        if latest and latest[0].data.tags.get(Tag.OWNER) in self._numbers:
            logs = (record.log for _, record in home_records(self.home))
            own = (log for log in logs if not log_start(self.home, log).get("parent"))
            return list(islice((run for log in own for run in self.tagged(Tag.LOG, log)), 1)) or latest
        return latest

    def group(self, word: str, kinds: Sequence[str] = GROUPS) -> Run | None:
        """The sweep or table of MLflow's id, of its own id, or the latest of its name; None for none."""
        by_id = self.get(word)
        found = ([] if by_id is None else [by_id]) + self.named(word)
        return next((run for run in found if kind(run) in kinds), None)

    def require_group(self, word: str, kinds: Sequence[str] = GROUPS) -> Run:
        """The sweep or table as `group` finds it. Raises UserError with the nearest name for none."""
        found = self.group(word, kinds)
        if found is None:
            raise UserError(
                f"names no {' and no '.join(kinds)}{self.hint(word, kinds)}",
                key=kinds[0].upper(),
                found=word,
                allowed=f"a {kinds[0]}'s name or id, see {self.tracker.shown}",
            )
        return found

    def hint(self, word: str, kinds: Sequence[str] = GROUPS) -> str:
        """`; did you mean NAME?` with the name of a sweep or table near to a mistyped word, or nothing."""
        names = {run.data.tags.get(Tag.NAME, "") for each in kinds for run in self.tagged(Tag.KIND, each)}
        return did_you_mean(word, sorted(names - {""}))

    def history(self, run_id: str, metric: str) -> list[tuple[int, float]]:
        """The points of a metric as (step, value), ordered by step."""
        points = self.tracker.client.get_metric_history(run_id, metric)
        return sorted((int(point.step), float(point.value)) for point in points)

    def text(self, run: Run, artifact: str) -> str:
        """The text of an artifact. Raises UserError where the run has none of that name."""
        with TemporaryDirectory(prefix="mlcl-") as folder:
            return self.artifact(run, artifact, Path(folder)).read_text(encoding="utf-8")

    def artifact(self, run: Run, artifact: str, folder: Path) -> Path:
        """Downloads an artifact to `folder` and returns its path. Raises UserError where there is none."""
        from mlflow.exceptions import MlflowException

        try:
            return Path(self.tracker.client.download_artifacts(run.info.run_id, artifact, str(folder)))
        except (MlflowException, OSError) as error:
            raise UserError(
                "the run has no such artifact, or it cannot be read",
                key=artifact,
                found=f"run {run.info.run_id} ({self.tracker.reason(error)})",
            ) from None

    def has(self, run: Run, artifact: str) -> bool:
        """Whether a run has an artifact of that name."""
        return any(item.path == artifact for item in self.tracker.client.list_artifacts(run.info.run_id))


def _existing(home: Path) -> Tracker:
    from mlcl.tracking import Tracker

    return Tracker.existing(home)


def kind(run: Run) -> str:
    """The kind of a run: run, cell, table, sweep, trial or confirmation."""
    return str(run.data.tags.get(Tag.KIND, "run"))
