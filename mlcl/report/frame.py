"""Runs as a tidy frame: a row for each training, a column for each key of the job and each metric."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import pandas as pd
from mlflow.entities import Run

from mlcl.tracking import written
from mlcl.tracking.names import Tag

COSTS = {"seconds": Tag.SECONDS, "cpu_seconds": Tag.CPU_SECONDS, "gpu_seconds": Tag.GPU_SECONDS}
"""Columns with what a run took, by their tags."""
COLUMNS = ("kind", "setting", "number", "seed", "state", "reason", "score", "run_id", "started", *COSTS)
"""The first columns of every frame."""
WHOLE = re.compile(r"-?[0-9]+")
NUMBER = re.compile(r"-?([0-9]+(\.[0-9]*)?(e[+-]?[0-9]+)?|inf)|nan")
"""Numbers as Python writes them; `float` would also read the word 2020_01 as one."""
LabelledRun = tuple[str, str, Run]
"""(kind, setting, run)."""


def frame_of(runs: Iterable[LabelledRun]) -> pd.DataFrame:
    """A row for each run, in the order given.

    After `COLUMNS` come the dotted keys of the jobs, with numbers as numbers, then the metrics' last values.
    Missing values are NA in `number` and `seed`, NaN in other columns.
    """
    rows, params, metrics = [], dict[str, None](), set[str]()
    for kind, setting, run in runs:
        its = {name: _value(text) for name, text in written(run.data.params).items()}
        params |= dict.fromkeys(its)
        metrics |= set(run.data.metrics)
        rows.append({**its, **run.data.metrics, **_row(kind, setting, run)})
    names = [*COLUMNS, *params, *sorted(metrics - {"score"})]
    frame = pd.DataFrame(rows, columns=pd.Index(names))
    whole = {"number": "Int64", "seed": "Int64"} | dict.fromkeys(("score", *COSTS), "float64")
    return frame.astype(whole)


def _row(kind: str, setting: str, run: Run) -> dict[str, Any]:
    tags = run.data.tags
    return {
        "kind": kind,
        "setting": setting,
        "number": _whole(tags.get(Tag.TRIAL)),
        "seed": _whole(tags.get(Tag.SEED)),
        "state": tags.get(Tag.STATE, ""),
        "reason": tags.get(Tag.REASON, ""),
        "score": run.data.metrics.get("score"),
        "run_id": run.info.run_id,
        "started": pd.Timestamp(int(run.info.start_time), unit="ms", tz="UTC"),
        **{name: _number(tags.get(tag)) for name, tag in COSTS.items()},
    }


def _whole(text: str | None) -> int | None:
    return int(text) if text and text.isdigit() else None


def _number(text: str | None) -> float | None:
    try:
        return float(text) if text else None
    except ValueError:
        return None


def _value(text: str) -> Any:
    """The value of a parameter, which MLflow stores as text."""
    if text in ("True", "False"):
        return text == "True"
    if WHOLE.fullmatch(text):
        return int(text)
    return float(text) if NUMBER.fullmatch(text) else text
