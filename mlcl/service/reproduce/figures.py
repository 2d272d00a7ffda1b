"""From finished runs to the figures of a table."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path

from mlcl.config import KnnConfig, job_hash
from mlcl.config.table import Cell
from mlcl.errors import UserError
from mlcl.evaluation import Setting
from mlcl.service.folders import RunFolder
from mlcl.service.reproduce.outcome import CellReport, FigureReport, scaled
from mlcl.service.reproduce.plan import TablePlan, TableRun
from mlcl.training.files import RESULT
from mlcl.training.material import Material
from mlcl.training.stored import stored_metrics

Done = Mapping[tuple[str, str], RunFolder]


class Figures:
    """Reads the figures of cells from the folders of their runs."""

    def __init__(self, plan: TablePlan, runs: list[TableRun], home: Path) -> None:
        self._plan, self._home = plan, home
        self._keys = {run.key[0]: run.key for run in runs}

    def cell(self, cell: Cell, done: Done, failures: Mapping[tuple[str, str], str]) -> CellReport:
        """A cell as far as its runs are done."""
        keys = [self._key(cell, seed) for seed in range(len(cell.jobs))]
        folders = [done.get(key) for key in keys]
        metrics = [
            self._metrics(cell, seed, folder.path)
            for seed, folder in enumerate(folders)
            if folder is not None
        ]
        figures = tuple(
            FigureReport(
                name=figure.name,
                metric=figure.metric,
                printed=figure.printed,
                values=scaled(
                    [found.get(figure.metric, math.nan) for found in metrics], self._plan.table.unit
                ),
                seeds=len(cell.jobs),
                tolerance=self._plan.tolerance,
            )
            for figure in cell.figures
        )
        return CellReport(
            row=cell.row,
            column=cell.column,
            id=cell.id,
            figures=figures,
            runs=tuple(None if folder is None else folder.path.name for folder in folders),
            reasons=tuple(failures[key] for key in keys if key in failures),
        )

    def _key(self, cell: Cell, seed: int) -> tuple[str, str]:
        return self._keys[job_hash(cell.jobs[seed])]

    def _metrics(self, cell: Cell, seed: int, folder: Path) -> dict[str, float]:
        """What the run wrote down, or what its embeddings say under the cell's own (k, lambda, tau)."""
        job = cell.jobs[seed]
        if not cell.neighbours:
            return _read(folder / RESULT)
        assert job.evaluation.knn is not None
        given = job.evaluation.knn.model_dump(by_alias=True) | dict(cell.neighbours)
        knn = KnnConfig.model_validate(given)
        material = Material.of(job, self._home, verify=False)
        return stored_metrics(folder, material, Setting(knn.k, knn.lambda_, knn.temperature))


def _read(file: Path) -> dict[str, float]:
    try:
        return {name: float(value) for name, value in json.loads(file.read_text()).items()}
    except (OSError, ValueError, AttributeError) as error:
        raise UserError("the run's figures cannot be read", file=file, found=error) from None
