"""Sends a log to a run of MLflow so that each entry counts once, also after an earlier sender was killed.

An entry that may have been sent before is sent again, which changes nothing: MLflow identifies a point by its
time, step and value, and replaces parameters, tags and artifacts. Only the run must not be created twice.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from mlflow.entities import Dataset, DatasetInput, InputTag, LifecycleStage, Metric, Param, RunTag

from mlcl.files import new_file, remove_partial
from mlcl.store import State
from mlcl.tracking.cursor import CURSOR, Cursor
from mlcl.tracking.log import LOG, TEXTS, decode, first_entry, log_folder, read_lines
from mlcl.tracking.names import MLFLOW_STATUS, Tag
from mlcl.tracking.refusal import Refused, refusal
from mlcl.tracking.shared_view import view_note, view_tag, view_text
from mlcl.tracking.tracker import Tracker

POINTS = 1000
"""The number of metric points that are sent in one request. MLflow's client splits larger entries."""
RUN_NAME = 250
"""The length in characters to which a run's name is cut: MLflow's databases keep no more."""


class Sender:
    """Sends one log, also the entries that were refused before. The caller must hold the log's lock."""

    def __init__(self, tracker: Tracker, id: str, announce: Callable[[str], None]) -> None:
        self.id = id
        self.folder = log_folder(tracker.home, id)
        remove_partial(self.folder, CURSOR)
        self.cursor = Cursor.read(self.folder)
        self.cursor.try_again()
        self._tracker, self._client, self._announce = tracker, tracker.client, announce
        self._artifact_uri: str | None = None

    @property
    def parent(self) -> str | None:
        """The id of the log whose run must exist before this log's run is created, if there is one."""
        if self.cursor.run_id is not None:
            return None
        return first_entry(self.folder / LOG).get("parent")

    def deliver(self) -> Iterator[None]:
        """Sends the entries after the cursor, and yields after each; consecutive metrics are sent together.

        If MLflow refuses an entry of an existing run, such as a file, the cursor records the refusal and the
        rest of the log is sent. Raises any other error.
        """
        for entries, end in _batches(self.folder / LOG, self.cursor.offset):
            entry, kind = entries[0], entries[0].get("kind")
            with self._record_refusal():
                if kind != "start" and self.cursor.run_id is None:
                    raise Refused("the log does not say where it belongs")
                match kind:
                    case "start":
                        self._start_run(entry)
                    case "metrics":
                        self._log_metrics(entries)
                    case "params":
                        self._log_params(entry["values"])
                    case "tags":
                        self._log_tags(entry["values"])
                    case "artifact":
                        self._log_artifact(self._tracker.home / entry["path"])
                    case "text":
                        self._log_text(entry["file"], entry["name"])
                    case "view":
                        self._set_view(entry["key"], entry["view"])
                    case "state":
                        self._set_state(State(entry["state"]), entry.get("reason"), entry["time"])
            self.cursor.offset = end
            self.cursor.ended = kind == "state" and entry["state"] != State.RUNNING
            self.cursor.write(self.folder)
            yield

    @contextmanager
    def _record_refusal(self) -> Iterator[None]:
        """Records a refusal in the context if the run exists and is not deleted; raises any other error."""
        try:
            yield
        except Exception as error:
            reason = refusal(error)
            id = self.cursor.run_id
            if reason is None or id is None:
                raise
            if self._client.get_run(id).info.lifecycle_stage != LifecycleStage.ACTIVE:
                raise
            self.cursor.refuse(self._tracker.hide_password(reason))

    def _start_run(self, entry: Mapping[str, Any]) -> None:
        if self.cursor.run_id is None:
            self._create_run(entry)
        self._log_params(entry["params"])
        self._log_dataset(entry["tags"])
        for name, file in entry["texts"].items():
            self._log_text(file, name)

    def _create_run(self, entry: Mapping[str, Any]) -> None:
        """Creates the run, or finds the one that was created before an answer was lost."""
        cursor = self.cursor
        experiment = self._find_experiment(entry)
        run_ids = self._find_runs(experiment) if cursor.creating else []
        if not run_ids:
            # An earlier request without an answer may still be carried out after this one.
            cursor.twice = cursor.twice or cursor.creating
            cursor.creating = True
            cursor.write(self.folder)
            tags = {
                **entry["tags"],
                Tag.LOG: self.id,
                Tag.OWNER: entry["owner"],
                Tag.STATE: str(State.RUNNING),
            }
            if entry["parent"] is not None:
                tags[Tag.PARENT] = Cursor.of(self._tracker.home, entry["parent"]).run_id
            name = entry["name"][:RUN_NAME]
            run = self._client.create_run(experiment, start_time=entry["time"], tags=tags, run_name=name)
            run_ids, self._artifact_uri = [run.info.run_id], str(run.info.artifact_uri)
        cursor.run_id, cursor.creating, cursor.experiment_id = run_ids[0], False, experiment
        cursor.write(self.folder)

    def _find_experiment(self, entry: Mapping[str, Any]) -> str:
        """Returns the id of the parent run's experiment, even if renamed; else of the named one."""
        home, parent = self._tracker.home, entry["parent"]
        experiment = None if parent is None else Cursor.of(home, parent).experiment_id
        return self._tracker.experiment(entry["experiment"]) if experiment is None else experiment

    def _find_runs(self, experiment: str) -> list[str]:
        runs = self._client.search_runs([experiment], f"tags.`{Tag.LOG}` = '{self.id}'")
        return [run.info.run_id for run in runs]

    def _log_metrics(self, entries: list[Any]) -> None:
        points = [
            Metric(name, float(value), entry["time"], entry["step"])
            for entry in entries
            for name, value in entry["values"].items()
        ]
        # Waits for the answer also if MLflow logs asynchronously.
        self._client.log_batch(self.cursor.run_id, metrics=points, synchronous=True)

    def _log_params(self, values: Mapping[str, str]) -> None:
        params = [Param(*item) for item in values.items()]
        self._client.log_batch(self.cursor.run_id, params=params, synchronous=True)

    def _log_tags(self, values: Mapping[str, str]) -> None:
        tags = [RunTag(*item) for item in values.items()]
        self._client.log_batch(self.cursor.run_id, tags=tags, synchronous=True)

    def _log_dataset(self, tags: Mapping[str, str]) -> None:
        if Tag.ROWS not in tags:
            return
        rows = json.loads(tags[Tag.ROWS])
        profile = json.dumps({"num_rows": sum(rows.values()), **rows})
        name, source = tags[Tag.DATA], json.dumps({"name": tags[Tag.DATA]})
        data = Dataset(name, tags[Tag.FINGERPRINT], "mlcl", source, profile=profile)
        context = InputTag("mlflow.data.context", "training")
        self._client.log_inputs(self.cursor.run_id, [DatasetInput(data, [context])])

    def _log_artifact(self, path: Path) -> None:
        if path.exists() and link_artifact(path, self._find_artifact_uri(), path.name):
            return
        if path.is_dir():
            self._client.log_artifacts(self.cursor.run_id, str(path), path.name)
        elif path.exists():
            self._client.log_artifact(self.cursor.run_id, str(path))
        else:
            self._announce(f"{path} was removed before MLflow had it")

    def _find_artifact_uri(self) -> str:
        if self._artifact_uri is None:
            self._artifact_uri = str(self._client.get_run(self.cursor.run_id).info.artifact_uri)
        return self._artifact_uri

    def _log_text(self, file: str, name: str) -> None:
        path = self.folder / TEXTS / file
        if not link_artifact(path, self._find_artifact_uri(), name):
            text = path.read_text(encoding="utf-8", errors="replace")
            self._client.log_text(self.cursor.run_id, text, name)

    def _set_view(self, key: str, view: Mapping[str, Any]) -> None:
        """Sets the view as a tag of the experiment, and its links as the run's description if it has none."""
        run = self._client.get_run(self.cursor.run_id)
        experiment = str(run.info.experiment_id)
        self._client.set_experiment_tag(experiment, view_tag(key), view_text(view, run.info.run_id))
        if not run.data.tags.get(Tag.NOTE):
            self._log_tags({Tag.NOTE: view_note(experiment, key)})

    def _set_state(self, state: State, reason: str | None, time: int) -> None:
        """Sets the run's status and tags; the tag of the reason is not changed if `reason` is None."""
        run_id = self.cursor.run_id
        tags: dict[str, str] = {Tag.STATE: state.value}
        self._log_tags(tags if reason is None else {**tags, Tag.REASON: reason})
        if state is State.RUNNING:
            self._client.update_run(run_id, status=MLFLOW_STATUS[state])
            return
        self._client.set_terminated(run_id, MLFLOW_STATUS[state], end_time=time)
        if self.cursor.twice:
            experiment = self._client.get_run(run_id).info.experiment_id
            for other_run in self._find_runs(experiment):
                if other_run != run_id:
                    self._client.delete_run(other_run)
            self.cursor.twice = False


def _batches(path: Path, offset: int) -> Iterator[tuple[list[Any], int]]:
    """Yields consecutive metrics for one request, or a single other entry, with the offset of its end."""
    batch: list[Any] = []
    points = end = 0
    for line, line_end in read_lines(path, offset):
        entry = decode(line)
        n_values = len(entry.get("values", ())) if entry.get("kind") == "metrics" else 0
        if batch and (n_values == 0 or points + n_values > POINTS):
            yield batch, end
            batch, points = [], 0
        if n_values:
            batch.append(entry)
            points += n_values
        else:
            yield [entry], line_end
        end = line_end
    if batch:
        yield batch, end


def link_artifact(path: Path, uri: str, name: str) -> bool:
    """Links a file or folder as the artifact `name`; False if `uri` is no folder on the same disk."""
    parts = urlsplit(uri)
    if parts.scheme != "file" or parts.netloc not in ("", "localhost"):
        return False
    target = Path(unquote(parts.path), name)
    try:
        files = [item for item in sorted(path.rglob("*")) if item.is_file()] if path.is_dir() else [path]
        for file in files:
            _link_file(file, target / file.relative_to(path))
    except OSError:  # another disk, or one without links: then MLflow copies
        return False
    return True


def _link_file(file: Path, target: Path) -> None:
    """Replaces `target` by a hard link to `file`; readers of `target` find the old or the new content."""
    if target.exists() and target.samefile(file):
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    remove_partial(target.parent, target.name)  # left by a killed sender of the log
    with new_file(target) as work:
        os.link(file, work)
