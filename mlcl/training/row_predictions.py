"""Stores the predictions of a run for its test rows, and its metrics without each block of these rows.

A block is a set of rows that the jackknife leaves out together, see `mlcl.evaluation.jackknife`.

Shapes: N test rows, B blocks, A aspects, C classes or labels, H levels of a hierarchy.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor
from typing_extensions import Self

from mlcl.data.columns import label_rows, vectors
from mlcl.data.row_groups import row_groups
from mlcl.evaluation import Decision, LabelFacts, Targets, Task, metric_names
from mlcl.evaluation.jackknife import blocks_of_groups, values_without_blocks
from mlcl.evaluation.tasks import Array, known_rows
from mlcl.files import new_file, replace_text
from mlcl.labels import LabelRows
from mlcl.training.job_data import JobData

BLOCKS = "test_blocks.json"
"""The file of the test metrics without each block of rows, keyed by the name that the run logs."""
PREDICTIONS = "test_predictions.parquet"
MAIN = ("micro_f1", "macro_f1", "accuracy", "map")
"""The metrics that are recorded besides the job's own, if the task has them."""
DIGITS = 6
"""The number of significant digits of recorded values."""
FACTS = b"mlcl"
"""The key of a JSON text in the metadata of `PREDICTIONS`, with task, aspects and the predictors' decisions.

The text also has the labels' frequency bands, and their paths in a hierarchy."""

Values = dict[str, tuple[float, ...]]


@dataclass(frozen=True)
class PredictedRows:
    """The test rows of a run, with everything that metrics of predictions are computed from.

    `aspects` has the names of aspects, and is empty without them; `targets` are as `evaluate` takes them;
    `facts` has the labels' frequency bands and paths in a hierarchy; `block` (N,) has the number of each
    row's block. `probabilities`, (N, C) or (N, A, C), and `decisions`, which say which labels are predicted,
    are keyed by the prefix of the predictor's metrics.
    """

    task: Task
    aspects: tuple[str, ...]
    targets: Targets
    facts: LabelFacts
    block: Array
    probabilities: Mapping[str, Tensor]
    decisions: Mapping[str, Decision]

    def without_blocks(self, prefix: str, requested_metrics: Collection[str]) -> Values:
        """Returns a predictor's metrics without each block (B,), keyed by the name that the run logs.

        Values have `DIGITS` significant digits. Names in `requested_metrics` that the task does not have are
        left out, and all names if no row has a known target.
        """
        if not known_rows(self.task, self.targets).any():
            return {}
        p = self.probabilities[prefix]
        task_names = metric_names(self.task, self.aspects, p.shape[1], groups=None)
        names = [name for name in dict.fromkeys(requested_metrics) if name in task_names]
        metrics = values_without_blocks(
            self.task, p, self.targets, self.block, self.decisions[prefix], self.aspects, names, self.facts
        )
        return {
            f"{prefix}test/{name}": tuple(float(f"{value:.{DIGITS}g}") for value in values)
            for name, values in metrics.items()
        }

    def write(self, file: Path, ids: pa.Array) -> None:
        """Writes the columns `id`, `block`, `target` and, for each predictor, float16 probabilities.

        The column `unknown` is added if targets have unknown entries, and `path` if rows have a class at
        every level of a hierarchy.
        """
        columns = {"id": ids, "block": pa.array(self.block.astype(np.int16))}
        if isinstance(self.targets, LabelRows):
            columns["target"] = as_lists(self.targets)
            if self.targets.unknown is not None:
                columns["unknown"] = as_lists(self.targets.unknown)
        else:
            columns["target"] = as_column(self.targets.cpu().numpy().astype(np.int32))
        if self.facts.row_path is not None:
            columns["path"] = as_column(self.facts.row_path.astype(np.int32))
        for prefix, p in self.probabilities.items():
            columns[_predictor_name(prefix)] = as_column(p.reshape(len(p), -1).numpy().astype(np.float16))
        document = {
            "task": self.task,
            "aspects": self.aspects,
            "decisions": {prefix: self.decisions[prefix].to_json() for prefix in self.probabilities},
            "band": None if self.facts.band is None else self.facts.band.tolist(),
            "path": None if self.facts.path is None else self.facts.path.tolist(),
        }
        table = pa.table(columns).replace_schema_metadata({FACTS: json.dumps(document)})
        split_columns = [f"{_predictor_name(prefix)}.list.element" for prefix in self.probabilities]
        with new_file(file) as path:  # byte streams save a fifth, since exponents compress well
            pq.write_table(
                table, path, compression="zstd", use_dictionary=False, use_byte_stream_split=split_columns
            )

    @classmethod
    def read(cls, file: Path) -> Self | None:
        """Reads a file that `write` wrote; None for a file of an earlier version, without targets."""
        metadata = pq.read_schema(file).metadata or {}
        if FACTS not in metadata:
            return None
        table, document = pq.read_table(file), json.loads(metadata[FACTS])
        aspects = [len(document["aspects"])] if document["task"] == "aspects" else []
        probabilities = {
            prefix: torch.from_numpy(vectors(table[_predictor_name(prefix)]).astype(np.float32)).reshape(
                len(table), *aspects, -1
            )
            for prefix in document["decisions"]
        }
        targets: Targets
        if document["task"] == "multi_label":
            width = next(iter(probabilities.values())).shape[1]
            unknown = label_rows(table["unknown"], width) if "unknown" in table.column_names else None
            targets = replace(label_rows(table["target"], width), unknown=unknown)
        else:
            values = vectors(table["target"]) if aspects else table["target"].to_numpy()
            targets = torch.from_numpy(values.astype(np.int64))
        band, path = (
            None if document[name] is None else np.array(document[name]) for name in ("band", "path")
        )
        row_path = vectors(table["path"]) if "path" in table.column_names else None
        return cls(
            task=document["task"],
            aspects=tuple(document["aspects"]),
            targets=targets,
            facts=LabelFacts(band, path, row_path),
            block=table["block"].to_numpy().astype(np.int64),
            probabilities=probabilities,
            decisions={prefix: Decision.from_json(entry) for prefix, entry in document["decisions"].items()},
        )


def write_test_rows(
    folder: Path, job_data: JobData, probabilities: Mapping[str, Tensor], decisions: Mapping[str, Decision]
) -> None:
    """Writes `BLOCKS` and `PREDICTIONS` into a run's folder; both maps are keyed by prefixes of metrics."""
    split = job_data.dataset.split("test")
    rows = PredictedRows(
        task=job_data.task,
        aspects=tuple(job_data.space.aspects or ()),
        targets=job_data.targets(split),
        facts=job_data.facts_of(split),
        block=blocks_of_groups(row_groups(split)),
        probabilities=probabilities,
        decisions=decisions,
    )
    values: Values = {}
    for prefix in probabilities:
        values |= rows.without_blocks(prefix, (job_data.scoring.metric, *MAIN))
    rows.write(folder / PREDICTIONS, split.id_column(range(len(split))))
    _write_blocks(folder, values)


def blocks_of(folder: Path, requested_metrics: Collection[str] = ()) -> Values:
    """Returns the metrics without each block of test rows (B,), keyed by the name that the run logs.

    The dict is empty for a run that did not read the test split. Metrics in `requested_metrics` that are not
    recorded yet are computed from `PREDICTIONS`, whose probabilities have the precision of float16, and then
    recorded, if that file is there.
    """
    file = folder / BLOCKS
    if not file.is_file():
        return {}
    recorded: dict[str, list[float | None]] = json.loads(file.read_text())
    values = {
        name: tuple(math.nan if value is None else value for value in entries)
        for name, entries in recorded.items()
    }
    missing = [name.rpartition("test/") for name in requested_metrics if name not in values]
    rows = PredictedRows.read(folder / PREDICTIONS) if missing and (folder / PREDICTIONS).is_file() else None
    if rows is None:
        return values
    computed: Values = {}
    for prefix in rows.probabilities:
        computed |= rows.without_blocks(
            prefix, [name for name_prefix, _, name in missing if name_prefix == prefix]
        )
    if computed:
        values |= computed
        with suppress(OSError):  # a home that may only be read
            _write_blocks(folder, values)
    return values


def _write_blocks(folder: Path, values: Values) -> None:
    """Writes `BLOCKS`; NaN is written as null, since JSON has no NaN."""
    tree = {name: [value if math.isfinite(value) else None for value in row] for name, row in values.items()}
    replace_text(folder / BLOCKS, json.dumps(tree, sort_keys=True) + "\n")


def _predictor_name(prefix: str) -> str:
    """Returns the name of a predictor's column, from the prefix of its metrics."""
    return prefix.strip("/") or "classifier"


def as_column(values: Array) -> pa.Array:
    """Returns an Arrow column of values (N,), or of rows (N, D) as lists of one size; nulls if D is 0."""
    if values.ndim == 1:
        return pa.array(values)
    if not values.shape[1]:
        return pa.nulls(len(values), pa.list_(pa.float32()))
    return pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), values.shape[1])


def as_lists(rows: LabelRows) -> pa.Array:
    """Returns an Arrow column with a list of each row's labels, as int32."""
    offsets, columns = (tensor.cpu().numpy().astype(np.int32) for tensor in (rows.offsets, rows.columns))
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(columns))
