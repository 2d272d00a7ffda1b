"""Tables in the test's process, without Ray, with trainings by formula and kills before any write.

A `Tables` is a home with table files. Its commands are mlcl's own `run_table`; only Tune (which runs the
trainings), the experiment (which computes their figures) and the thread that delivers to MLflow are replaced.
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from builders import job_tree
from sweep_contents import differences, document, half_files, logged, stored
from sweeps import World

from mlcl.config.table.schema import load_table
from mlcl.results import documents
from mlcl.results.table_result import TableResult
from mlcl.service.engine.ledger import Ledger
from mlcl.service.engine.packing import Resources
from mlcl.service.tables import table_log
from mlcl.service.tables.plan import TablePlan
from mlcl.service.tables.table import run_table
from mlcl.store import RunFolders
from mlcl.tracking import State

TABLE = {
    "title": "A small table",
    "experiment": "tiny",
    "source": "A paper, Table 1",
    "job": "job.yaml",
    "metrics": {"Acc": "test/accuracy"},
    "tolerance": 5,
    "unit": "share",
    "seeds": 2,
    "rows": {"Cold": {"set": {"objective.heads.detail.temperature": 0.05}}, "Warm": {}},
    "columns": {"All": {}},
}
"""A table of two cells with two seeds each: four trainings of four epochs."""
TUNE = {
    "space": {
        "space": {"objective.heads.detail.temperature": {"log_float": [0.05, 1.0]}},
        "search": {"scheduler": "asha", "reduction_factor": 2, "startup": 2},
    },
    "trials": 4,
}
"""A search of four trials, some of them pruned; its best setting is trained with the seeds of the table."""
TUNED = {"rows": {"Cold": {"tune": False, **TABLE["rows"]["Cold"]}, "Warm": {}}, "tune": TUNE}
"""`TABLE` with one plain and one tuned cell."""


class Tables(World):
    """A home with tables. `mlflow` is a store to copy or a URI; with None nothing is delivered."""

    writers = (documents, table_log)

    def __init__(
        self, home: Path, patch: pytest.MonkeyPatch, data: Path, mlflow: Path | str | None = None
    ) -> None:
        if isinstance(mlflow, Path):
            home.mkdir(parents=True)
            shutil.copy(mlflow, home / "mlflow.db")
            mlflow = f"sqlite:///{home.resolve()}/mlflow.db"
        super().__init__(home, patch, mlflow)
        self.write("job", job_tree(data))

    def write(self, name: str, tree: dict) -> Path:
        """Writes a YAML file into the home."""
        file = self.home / f"{name}.yaml"
        file.write_text(yaml.safe_dump(tree, sort_keys=False))
        return file

    def plan(self, tree: dict | None = None, *, name: str = "table", **how: object) -> TablePlan:
        """Returns the plan of `TABLE` with some keys replaced."""
        file = self.write(name, {**TABLE, **(tree or {})})
        resources = {key: how.pop(key) for key in ("cpus", "gpus", "parallel", "budget") if key in how}
        return TablePlan(load_table(file), file, resources=Resources(**resources), **how)

    def run(self, plan: TablePlan):
        """Runs one command."""
        return run_table(plan, home=self.home, watch=self.events.append)

    def states(self, kind: str = "runs") -> list[str]:
        """Returns the states of all records, the oldest first."""
        return [str(record.state) for _, record in RunFolders(self.home, kind).records()][::-1]

    def trained(self) -> list[str]:
        """Returns the folders of the trainings so far, each once."""
        return list(dict.fromkeys(folder for folder, _ in self.formula.trained))

    def logs(self) -> dict[str, dict]:
        """Returns the contents of the logs by cell and seed; the table's own log is `table`."""
        logs: dict[str, dict] = {}
        for folder in sorted((self.home / "logs").iterdir()):
            log = logged(folder)
            name = _name(log["tags"])
            assert name not in logs, f"{name} has two logs"
            logs[name] = log
        return logs

    def everything(self) -> dict:
        """Returns the document, ledger, logs and runs of a table, without ids."""
        (folder,) = (self.home / "tables").glob("mlcl-*")
        readers = {"table.md": Path.read_text, "table.tex": Path.read_text, "table.json": document}
        files = {name: read(folder / name) for name, read in readers.items() if (folder / name).exists()}
        contents: dict = {"tables": self.states("tables"), "runs": sorted(self.states()), "files": files}
        contents |= {"logs": self.logs(), "mlflow": self.mlflow and stored(self.mlflow, _name)}
        contents |= {"ledger": _told(Ledger(folder)), "half files": half_files(self.home)}
        text = json.dumps(contents).replace(str(self.home), "HOME")
        for path in [*self.home.glob("runs/mlcl-*"), folder]:
            text = text.replace(path.name, "ID")
        return json.loads(text)


def content(report: TableResult) -> tuple:
    """Returns a table's document without the paths of its runs and files."""
    cells = [replace(cell, runs=len(cell.runs), trainings=len(cell.trainings)) for cell in report.cells]
    return cells, report.ranks, report.state, report.reason, report.higher, report.title


def _name(tags: Mapping[str, str]) -> str:
    """Returns cell and seed of a run, or the key of a tuned cell's training, or else `table`."""
    return tags.get("mlcl.cell", tags.get("mlcl.key", "table"))


def _told(ledger: Ledger) -> dict:
    """Returns the contents of a table's ledger by cell and seed."""
    labels = {key: entry.label for key, entry in ledger.entries.items()}
    assert len(set(labels.values())) == len(labels), "a run is in the ledger twice"
    return {
        "state": ledger.state,
        "entries": {
            entry.label: vars(entry) | {"key": None, "cost": None} for entry in ledger.entries.values()
        },
        "history": [(event, labels[key], epoch) for event, key, epoch in ledger.history],
        "confirmations": {
            key: [vars(confirmation), ledger.confirmation_states[key]]
            for key, confirmation in ledger.confirmations.items()
        },
    }


def assert_kills_end_equal(world, tree, kills, **part):
    """Asserts that a table that is killed at random points and continued equals one that was not killed."""
    unbroken = world("unbroken")
    points = unbroken.points(unbroken.plan(tree, **part))
    expected = unbroken.everything()
    for point in random.Random(kills).sample(range(points), kills):
        tables = world(f"killed-{point}")
        assert tables.killed(tables.plan(tree, **part), point)
        assert tables.run(tables.plan(tree, **part)).state is State.COMPLETE
        assert differences(tables.everything(), expected) == []
