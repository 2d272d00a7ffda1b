"""Results as JSON: `sweep.json` and `table.json`, which the engine writes, and what `--json` prints."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from mlcl.errors import UserError
from mlcl.files import replace_text
from mlcl.results.sweep_result import SweepResult
from mlcl.results.table_result import CellResult, TableResult
from mlcl.store import State
from mlcl.tracking.names import SWEEP_JSON, TABLE_JSON

ResultT = TypeVar("ResultT")


def sweep_document(result: SweepResult) -> dict[str, Any]:
    """The sweep as one tree of values that JSON has: the model, and what follows from it."""
    tree = _tree(result)
    for name in ("trials", "dropped", "baseline_trials", "earlier_baseline_trials"):
        for training, its in zip(getattr(result, name), tree[name], strict=True):
            its["epoch"] = training.epoch
    for name in ("confirmations", "earlier"):
        for setting, its in zip(getattr(result, name), tree[name], strict=True):
            its["label"] = setting.label
            for training, seed in zip(setting.seeds, its["seeds"], strict=True):
                seed["epoch"] = training.epoch
    tree["verdict"] = result.verdict and result.verdict.as_dict()
    tree["best"] = result.best and result.best.label
    tree["front"] = [trial.label for trial in result.front]
    plain: dict[str, Any] = finite(tree)
    return plain


def table_document(result: TableResult) -> dict[str, Any]:
    """The table as one tree of values that JSON has: the model, and what follows from it."""
    tree = _tree(result) | {"outside": result.outside, "missing": result.missing}
    tree["verdicts"] = [{"cells": title, **its.as_dict()} for title, its in result.verdicts]
    tree["cells"] = [cell_document(cell) for cell in result.cells]
    plain: dict[str, Any] = finite(tree)
    return plain


def cell_document(cell: CellResult) -> dict[str, Any]:
    """The cell as one tree, without what is None."""
    tree = {name: value for name, value in _tree(cell).items() if value is not None}
    if cell.search is not None:
        tree["search"] |= {"kept": cell.search.kept}
    for figure, its in zip(cell.figures, tree["figures"], strict=True):
        its |= {"mean": figure.mean, "deviation": figure.deviation}
        its |= {"difference": figure.difference, "verdict": figure.verdict}
    return tree


def _tree(result: object) -> dict[str, Any]:
    tree: dict[str, Any] = TypeAdapter(type(result)).dump_python(result, mode="json", by_alias=True)
    return tree


def finite(value: Any) -> Any:
    """The tree with null for NaN and infinity, which JSON does not have."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    return value


def write_sweep(result: SweepResult) -> Path:
    """Writes `sweep.json` in the sweep's folder, whole or not at all, and returns its path."""
    return _write(result.folder / SWEEP_JSON, sweep_document(result))


def write_table(result: TableResult) -> Path:
    """Writes `table.json` in the table's folder, whole or not at all, and returns its path."""
    return _write(result.folder / TABLE_JSON, table_document(result))


def _write(file: Path, tree: Mapping[str, Any]) -> Path:
    replace_text(file, json.dumps(tree, indent=1, allow_nan=False) + "\n")
    return file


def read_result(kind: type[ResultT], text: str, file: Path) -> ResultT:
    """The model in the text of a document. Raises UserError that names `file` for any other text."""
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
    """The stored result of the sweep in a folder of a home. Raises UserError where there is none."""
    file = folder / SWEEP_JSON
    try:
        text = file.read_text(encoding="utf-8")
    except OSError:
        raise UserError("has no results yet", file=file, allowed="what the sweep's command writes") from None
    return replace(read_result(SweepResult, text, file), folder=folder)


def stop_sweep(folder: Path, reason: str) -> None:
    """Writes STOPPED where the document of a killed sweep says RUNNING; does nothing without a document."""
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
