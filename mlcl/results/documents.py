"""Reads and writes results as JSON: `sweep.json`, `table.json`, and the output of `--json`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from mlcl.errors import UserError
from mlcl.files import replace_text
from mlcl.results.sweep_result import SweepResult
from mlcl.results.table_result import TableResult
from mlcl.store import State
from mlcl.tracking.names import SWEEP_JSON, TABLE_JSON

ResultT = TypeVar("ResultT")


def document(value: Any) -> dict[str, Any]:
    """Returns a dataclass as a tree of dicts, lists and JSON values, with null for NaN and infinity.

    The tree of a result also has its computed fields, such as the mean of a figure or a sweep's verdicts.
    """
    tree: dict[str, Any] = json.loads(TypeAdapter(type(value)).dump_json(value, by_alias=True))
    return tree


def write_result(result: SweepResult | TableResult) -> Path:
    """Writes `sweep.json` or `table.json` atomically to the result's folder and returns the file's path."""
    name = SWEEP_JSON if isinstance(result, SweepResult) else TABLE_JSON
    return _write(result.folder / name, document(result))


def _write(file: Path, tree: Mapping[str, Any]) -> Path:
    replace_text(file, json.dumps(tree, indent=1, allow_nan=False) + "\n")
    return file


def read_result(kind: type[ResultT], text: str, file: Path) -> ResultT:
    """Parses a `SweepResult` or `TableResult` (`kind`) from the JSON text of `file`.

    Raises a UserError that names `file` where the text is not valid JSON of that type.
    """
    try:
        return TypeAdapter(kind).validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise UserError(
            "is damaged, or was written by another mlcl",
            file=file,
            key=".".join(map(str, first["loc"])) or None,
            found=first["msg"],
            allowed="what the same command writes when it is run again",
        ) from None


def local_sweep(folder: Path) -> SweepResult:
    """Reads the result of a sweep from `sweep.json` in its folder. Raises UserError where there is none."""
    file = folder / SWEEP_JSON
    try:
        text = file.read_text(encoding="utf-8")
    except OSError:
        raise UserError("has no results yet", file=file, allowed="what the sweep's command writes") from None
    return replace(read_result(SweepResult, text, file), folder=folder)


def stop_sweep(folder: Path, reason: str) -> None:
    """Changes each state RUNNING in the `sweep.json` of a killed sweep to STOPPED, and sets its reason.

    Does nothing where the folder has no `sweep.json`.
    """
    file = folder / SWEEP_JSON
    if file.is_file():
        tree = _stopped(json.loads(file.read_text(encoding="utf-8")))
        _write(file, {**tree, "reason": reason})


def _stopped(tree: Any) -> Any:
    if isinstance(tree, list):
        return [_stopped(each) for each in tree]
    if not isinstance(tree, dict):
        return tree
    state = {"state": State.STOPPED} if tree.get("state") == State.RUNNING else {}
    return {key: _stopped(value) for key, value in tree.items()} | state
