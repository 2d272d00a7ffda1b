"""Functions that collect everything a finished sweep or table has left, so that two can be compared."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

from mlflow import MlflowClient
from mlflow.entities import Run
from sweep_contents import document

from mlcl.service.engine.ledger import Ledger
from mlcl.service.search.study import build_study
from mlcl.store import RunFolders
from mlcl.tracking.cursor import undelivered_logs

Trace = dict[str, Any]
"""A flat mapping, so that a comparison names the parts that differ."""
TIMED = re.compile(r"(^|/)(time/|.*(seconds|_per_second|data_wait|memory))")
"""Metrics whose values differ from training to training, so that only their steps are compared."""
FOREIGN = re.compile(r"mlcl\.(version\.|git\.|python|machine|(cpu_|gpu_)?seconds|sweep\.spent)")
"""Tags about the machine, the code and the elapsed time, which are not compared."""


def trace(home: Path, uri: str) -> Trace:
    """Returns the trace of the one sweep or table under `home`, with its runs in the store at `uri`."""
    folders = [*home.glob("sweeps/mlcl-*/"), *home.glob("tables/mlcl-*/")]
    assert len(folders) == 1, f"one sweep or table, not {len(folders)}"
    folder = folders[0]
    client, ledger = MlflowClient(uri), Ledger(folder)
    runs, kind = _runs(client), "TABLE" if folder.parent.name == "tables" else "SWEEP"
    names = {run.info.run_id: _name(run) for run in runs} | {folder.name: kind}
    contents = {**_mlflow(client, runs, names), **_left(home, folder, runs)}
    if kind == "TABLE":
        # The id of a run is the key of its training, which differs from table to table.
        labels = {key: entry.label for key, entry in ledger.entries.items()}
        assert len(set(labels.values())) == len(labels), "a training is there twice"
        names |= labels
        contents |= _table(home, folder)
    else:
        contents |= {**_study(ledger), **_models(client, names)}
    contents |= _ledger(ledger)
    return {_translated(key, names): _renamed(value, names) for key, value in contents.items()}


def _table(home: Path, folder: Path) -> Trace:
    """Returns the files of the table, and the states and files of its runs."""
    contents: Trace = {f"table: {path.name}": path.read_text() for path in sorted(folder.glob("table.*"))}
    contents["table: table.json"] = json.dumps(document(folder / "table.json"))  # without times
    runs = list(RunFolders(home).records())
    contents["left: runs"] = {record.id: record.state for _, record in runs}
    contents["left: files of runs"] = {
        record.id: sorted(str(path.relative_to(run.path)) for path in run.path.rglob("*") if path.is_file())
        for run, record in runs
    }
    return contents


def differences(found: Trace, expected: Trace) -> str:
    """Returns lines that show each part that differs between two traces."""
    parts = sorted(found.keys() | expected.keys())
    placeholder = "nothing"
    return "\n".join(
        f"{part}\n    found    {found.get(part, placeholder)}\n    expected {expected.get(part, placeholder)}"
        for part in parts
        if found.get(part, placeholder) != expected.get(part, placeholder)
    )


def _ledger(ledger: Ledger) -> Trace:
    fields = ("label", "job", "settings", "number", "params", "confirmation", "state", "score", "values")
    fields += ("chosen", "reason")
    contents: Trace = {
        "ledger: state": ledger.state,
        "ledger: order": ledger.history,
        "ledger: registered": ledger.registered,
        "ledger: confirmations": ledger.confirmation_states,
        "ledger: versions": [
            (version.number, version.distributions, version.kept) for version in ledger.versions()
        ],
    }
    for key, entry in ledger.entries.items():
        for name in fields:
            contents[f"ledger: {key} {name}"] = getattr(entry, name)
        contents[f"ledger: {key}  intermediate"] = entry.intermediate
        contents[f"ledger: {key} metrics"] = {n: _value(n, value) for n, value in entry.metrics.items()}
    return contents


def _study(ledger: Ledger) -> Trace:
    version, contents = ledger.versions()[-1], Trace()
    for trial in build_study(version, ledger.trials(version.number), "sweep").trials:
        parts = {
            "state": trial.state.name,
            "params": trial.params,
            "values": trial.values,
            "intermediate": trial.intermediate_values,
            "attrs": trial.user_attrs,
        }
        contents |= {f"study: {trial.number} {name}": part for name, part in parts.items()}
    return contents


def _runs(client: MlflowClient) -> list[Run]:
    ids = [experiment.experiment_id for experiment in client.search_experiments()]
    return list(client.search_runs(ids, max_results=1000))


def _name(run: Run) -> str:
    tags = run.data.tags
    return str(tags.get("mlcl.key", tags.get("mlcl.cell", tags.get("mlcl.kind"))))


def _mlflow(client: MlflowClient, runs: list[Run], names: dict[str, str]) -> Trace:
    contents: Trace = {"mlflow: runs": Counter(_name(run) for run in runs)}
    for run in runs:
        name, id = _name(run), run.info.run_id
        contents[f"mlflow: {name} status"] = run.info.status
        contents |= {f"mlflow: {name} param {key}": value for key, value in run.data.params.items()}
        contents |= {f"mlflow: {name} tag {key}": value for key, value in _tags(run, names).items()}
        contents[f"mlflow: {name} artifacts"] = sorted(_artifacts(client, id))
        for metric in run.data.metrics:
            points = client.get_metric_history(id, metric)
            # Points are sorted by step, since those that were delivered late have a later time.
            contents[f"mlflow: {name} metric {metric}"] = sorted(
                (point.step, _value(metric, point.value)) for point in points
            )
    return contents


def _tags(run: Run, names: dict[str, str]) -> dict[str, str]:
    """Returns the compared tags of a run except empty ones, which replace an outdated reason."""
    mlflow_tags = {"mlflow.parentRunId", "mlflow.runName"}
    return {
        key: _translated(value, names)
        for key, value in run.data.tags.items()
        if value and (key in mlflow_tags or (key.startswith("mlcl.") and not FOREIGN.match(key)))
    }


def _artifacts(client: MlflowClient, run: str, path: str | None = None) -> list[str]:
    names: list[str] = []
    for item in client.list_artifacts(run, path):
        names += _artifacts(client, run, item.path) if item.is_dir else [item.path]
    return names


def _models(client: MlflowClient, names: dict[str, str]) -> Trace:
    versions = client.search_model_versions()
    aliases = {model.name: model.aliases for model in client.search_registered_models()}
    return {
        "models: versions": [
            (version.name, version.version, names[version.run_id], version.tags) for version in versions
        ],
        "models: aliases": aliases,
    }


def _left(home: Path, folder: Path, runs: list[Run]) -> Trace:
    """Returns the states and files that are left; most lists are empty after a finished sweep or table."""
    ledger = Ledger(folder)
    return {
        "left: records": [record.state for _, record in RunFolders(home, folder.parent.name).records()],
        "left: running": [key for key, entry in ledger.entries.items() if not entry.ended],
        "left: running in mlflow": [_name(run) for run in runs if run.info.status == "RUNNING"],
        "left: half files": [path.name for path in home.rglob("*.partial")],
        "left: ray": [path.name for path in folder.glob("ray-*")],
        "left: stop": [path.name for path in home.rglob("STOP")],
        "left: logs": [(log.id, log.entries, log.refusal) for log in undelivered_logs(home)],
        # stderr.log is left out, since it may have Ray's messages about killed processes.
        "left: files": sorted(path.name for path in folder.glob("*.*") if path.name != "stderr.log"),
        "left: files of trainings": sorted(
            str(path.relative_to(folder)) for path in folder.glob("trials/**/*") if path.is_file()
        ),
    }


def _value(name: str, value: float) -> float | str:
    return "a time" if TIMED.match(name) else value


def _renamed(value: Any, names: dict[str, str]) -> Any:
    """Returns a document with names in place of ids at any depth."""
    if isinstance(value, str):
        return _translated(value, names)
    if isinstance(value, dict):
        return type(value)({_renamed(key, names): _renamed(item, names) for key, item in value.items()})
    if isinstance(value, list | tuple):
        return type(value)(_renamed(item, names) for item in value)
    return value


def _translated(text: str, names: dict[str, str]) -> str:
    for id, name in names.items():
        text = text.replace(id, name)
    return text
