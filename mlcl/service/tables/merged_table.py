"""Parts of one table as one table: its folder, its files, its log. Nothing is trained."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mlcl.results.table_result import TableResult
from mlcl.service.engine.command import Command, run_command
from mlcl.service.engine.progress import ProgressEvent, ProgressListener, Reporter
from mlcl.service.tables.cell_files import MERGED, OPTION
from mlcl.service.tables.merge import Merged, merge_places
from mlcl.service.tables.origin import digest
from mlcl.service.tables.plan import TablePlan
from mlcl.service.tables.table import MAX_FAILED, LoggedTable, PlannedTable, table_report
from mlcl.service.tables.table_log import TableLog
from mlcl.store import RunFolder
from mlcl.tracking import State


def plan_merge(plan: TablePlan, places: Sequence[Path]) -> dict[str, Any]:
    """What a merge would find: how many seeds each cell has of how many, and what is to be told."""
    merged = merge_places(plan, places)
    seeds = {cell.id: sum(run is not None for run in cell.runs) for cell in merged.cells}
    asked = {cell.id: len(cell.jobs) for cell in plan.cells}
    return {
        "table": plan.name,
        "cells": {id: f"{count} of {asked[id]} seeds" for id, count in seeds.items()},
        "notes": list(merged.notes),
    }


def run_merge(plan: TablePlan, places: Sequence[Path], *, home: Path, watch: ProgressListener) -> TableResult:
    """Writes and logs the merged table under `home`; trains nothing and opens no data."""
    merged = merge_places(plan, places)
    for note in merged.notes:
        watch(ProgressEvent("note", note))
    return run_command(MergeTask(plan, places, merged, home), home, watch)


class MergeTask(PlannedTable):
    """The merged table. The same cells again are the same table."""

    def __init__(self, plan: TablePlan, places: Sequence[Path], merged: Merged, home: Path) -> None:
        table = plan.table.model_dump(mode="json")
        super().__init__(plan, home, MERGED + digest([table, plan.scale, plan.overrides, repr(merged)]))
        self._places, self._merged = places, merged
        self.identity = {"job_hash": self.job_hash}
        self.asked = {"merged": [str(place) for place in places]}

    def most(self, folder: RunFolder, announce: Callable[[str], None]) -> int:  # noqa: ARG002
        """Nothing is trained."""
        return 0

    def take_up(self, command: Command) -> MergedTable:
        """Starts the table's own log, or goes on with it."""
        log = TableLog(self._plan, command)
        reporter = Reporter(command.ledger, command.account, command.watch, metric="score", score="score")
        words = " ".join(f"{OPTION} {place}" for place in self._places)
        engine = command.engine(reporter, MAX_FAILED)
        return MergedTable(self._plan, command, engine, log, words, self._merged)


@dataclass
class MergedTable(LoggedTable):
    """A merged table that was taken up; `words` are its options."""

    words: str
    merged: Merged

    def train(self) -> None:
        """There is nothing to train."""

    def outcome(self) -> TableResult:
        """COMPLETE where every figure is there. Writes the table's files."""
        folder = self.command.folder.path
        report = table_report(self.plan, folder, self.merged.cells, State.COMPLETE)
        about = " ".join(filter(None, (report.about, *self.merged.notes)))
        report = replace(report, about=about, command=f"{report.command} {self.words}")
        report = self.with_provenance(report)
        with self.command.stop.shielded():
            self.log.write(report)
        return report
