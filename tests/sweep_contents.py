"""Contents of a sweep's ledger, study, logs and runs, in a form in which two sweeps can be compared."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path

import optuna
from mlflow import MlflowClient

from mlcl.service.engine.ledger import Ledger
from mlcl.store import RunFolder
from mlcl.tracking.log import LOG, decode, read_lines
from mlcl.tracking.uri import sqlite_file

OF_COMMANDS = (
    *("seconds", "cpu_seconds", "gpu_seconds", "started", "spent"),
    *("mlflow_run_id", "undelivered", "registered"),
)
"""The keys of a document that differ between commands with the same result."""
TIME_TAGS = ("mlcl.seconds", "mlcl.cpu_seconds", "mlcl.gpu_seconds", "mlcl.sweep.spent")


def contents(home: Path, folder: Path, study: optuna.Study, mlflow: str | None) -> dict:
    """Returns everything that is stored of the sweep, without times and ids, which differ between sweeps."""
    logs = {path.name: logged(path) for path in sorted((home / "logs").iterdir())}
    tree = {"ledger": _told(folder), "study": _studied(study), "logs": logs, "half files": half_files(home)}
    tree["document"] = document(folder / "sweep.json")
    if mlflow is not None:
        filter_string = f"tags.`mlcl.owner` = '{folder.name}'"
        tree["mlflow"] = stored(mlflow, lambda tags: tags["mlcl.log"], filter_string)
        assert disagreements(Ledger(folder), tree["mlflow"]) == []
    text = json.dumps(tree, default=str)
    return json.loads(text.replace(folder.name, "SWEEP").replace(str(home), "HOME"))


def half_files(home: Path) -> list[str]:
    """Returns the partial files that killed writers have left."""
    return [str(path.relative_to(home)) for path in home.rglob("*.partial")]


def document(file: Path) -> object:
    """Returns a document without times and ids, which differ between commands."""

    def without(tree: object) -> object:
        if isinstance(tree, dict):
            return {key: without(value) for key, value in tree.items() if key not in OF_COMMANDS}
        return list(map(without, tree)) if isinstance(tree, list) else tree

    return without(json.loads(file.read_text()))


def _told(folder: Path) -> dict:
    ledger = Ledger(folder)
    record = RunFolder(folder).record
    assert record is not None
    return {
        "record": record.state,
        "state": ledger.state,
        "head": {key: value for key, value in ledger.head.items() if key != "at"},
        "versions": [vars(version) for version in ledger.versions()],
        "entries": {key: vars(entry) | {"cost": None} for key, entry in ledger.entries.items()},
        "confirmations": {
            key: [vars(confirmation), ledger.confirmation_states[key]]
            for key, confirmation in ledger.confirmations.items()
        },
        "order": ledger.history,
        "registered": list(ledger.registered),
    }


def _studied(study: optuna.Study) -> list[dict]:
    return [
        {
            "number": trial.number,
            "state": trial.state.name,
            "params": trial.params,
            "values": trial.values,
            "intermediate": trial.intermediate_values,
            "attrs": trial.user_attrs,
        }
        for trial in study.trials
    ]


def stored(uri: str, name: Callable[[Mapping[str, str]], str], where: str = "") -> dict:
    """Returns the runs of a store, named by their tags. Fails if two runs have one name."""
    client = MlflowClient(uri)
    runs = client.search_runs([experiment.experiment_id for experiment in client.search_experiments()], where)
    names = {run.info.run_id: name(run.data.tags) for run in runs}
    run_contents: dict = {}
    points: dict[str, list] = {id: [] for id in names}
    with closing(sqlite3.connect(sqlite_file(uri))) as store:
        for id, *point in store.execute("SELECT run_uuid, key, step, value FROM metrics"):
            points.setdefault(id, []).append(point)
    for run in runs:
        id, tags = run.info.run_id, dict(run.data.tags)
        for tag in ("mlflow.parentRunId", "mlcl.best_run_id"):
            if tag in tags:
                tags[tag] = names[tags[tag]]
        assert names[id] not in run_contents, "a run is there twice"
        run_contents[names[id]] = {
            "status": run.info.status,
            "params": run.data.params,
            "tags": {name: value for name, value in tags.items() if value and name not in TIME_TAGS},
            "points": sorted(points[id]),
            "last": run.data.metrics,
            "artifacts": sorted(_paths(client, id)),
        }
    return run_contents


def disagreements(ledger: Ledger, runs: Mapping[str, dict]) -> list[str]:
    """Returns the figures of finished trainings that differ from those on MLflow's pages."""
    logs = {f"{ledger.folder.name}.{key}": entry for key, entry in ledger.entries.items()}
    finished_logs = [log for log in logs.keys() & runs.keys() if runs[log]["status"] == "FINISHED"]
    return [
        f"{log} {name}: {value} | {runs[log]['last'].get(name)}"
        for log in finished_logs
        for name, value in logs[log].metrics.items()
        if runs[log]["last"].get(name) != value
    ]


def _paths(client: MlflowClient, run_id: str, under: str | None = None) -> list[str]:
    paths = []
    for artifact in client.list_artifacts(run_id, under):
        paths += _paths(client, run_id, artifact.path) if artifact.is_dir else [artifact.path]
    return paths


def logged(folder: Path) -> dict:
    """Returns the contents of a log. Fails if a point is in it twice."""
    log_contents: dict = {"params": {}, "tags": {}, "points": {}, "texts": {}, "artifacts": [], "end": None}
    for line, _ in read_lines(folder / LOG):
        entry = decode(line)
        match entry["kind"]:
            case "start":
                log_contents["start"] = {key: entry[key] for key in ("experiment", "name", "owner", "parent")}
                log_contents["params"] |= entry["params"]
                log_contents["tags"] |= entry["tags"]
                log_contents["texts"] |= entry["texts"]
            case "params":
                log_contents["params"] |= entry["values"]
            case "tags":
                log_contents["tags"] |= {n: v for n, v in entry["values"].items() if n not in TIME_TAGS}
                if "mlcl.best_run_id" in entry["values"]:
                    log_contents["tags"]["mlcl.best_run_id"] = "there"
            case "metrics":
                for name, value in entry["values"].items():
                    point = f"{name} {entry['step']}"
                    assert point not in log_contents["points"], f"{folder.name} has {point} twice"
                    log_contents["points"][point] = value
            case "text":
                log_contents["texts"][entry["name"]] = entry["file"]
            case "artifact":
                log_contents["artifacts"] = sorted({*log_contents["artifacts"], entry["path"]})
            case "state":
                ended = entry["state"] != "RUNNING"
                log_contents["end"] = [entry["state"], entry.get("reason", "")] if ended else None
    return log_contents


def differences(one: object, other: object, place: str = "") -> list[str]:
    """Returns the places where the contents of two sweeps differ, one line each."""
    if isinstance(one, dict) and isinstance(other, dict):
        keys = sorted(one.keys() | other.keys())
        return [line for key in keys for line in differences(one.get(key), other.get(key), f"{place}/{key}")]
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        pairs = enumerate(zip(one, other, strict=True))
        return [line for index, pair in pairs for line in differences(*pair, f"{place}/{index}")]
    return [] if one == other else [f"{place}: {one} | {other}"]
