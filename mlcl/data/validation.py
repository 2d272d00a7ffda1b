"""Checks a whole data set, up to the first bad row: hashes, ids, splits, labels and contents.

Shapes: N rows, L labels, E stored entries.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mlcl.data import columns
from mlcl.data.audit import LabelTable, content_notes, label_notes, label_tables
from mlcl.data.dataset import Dataset
from mlcl.data.format import GROUP, INFO_FILE, SPLITS, label_columns
from mlcl.data.hierarchies import check_class_parents, check_class_trees
from mlcl.data.images import decode_split
from mlcl.data.split import check_labels
from mlcl.errors import UserError

CHECK_SIZE = 32
"""The side in pixels to which images are decoded for the check; a small one is quick."""


@dataclass(frozen=True)
class CheckReport:
    """The result of a check: name, fingerprint, rows of each split, shards, and warnings."""

    name: str
    fingerprint: str
    rows: dict[str, int]
    shards: int
    warnings: tuple[str, ...]


def check(place: str | Path, allow_untrained: bool = False, *, with_audit: bool = True) -> CheckReport:
    """Checks every row of a data set. With `with_audit`, unusual findings in valid data become warnings.

    Raises UserError for the first problem, with shard, row and id if it has them: of hashes, truncation, ids,
    splits, contents, labels and their parents; also if there is no training row, and (without
    `allow_untrained` here or in `dataset.json`) for a label that only the test split has.
    """
    data = Dataset.open(place, verify=True)
    shard_of_id: dict[str, int] = {}
    splits: Counter[str] = Counter()
    for number in range(len(data.info.shards)):
        splits += _check_shard(data, number, shard_of_id)
    _check_counts(data, splits)
    if data.info.modality == "image":
        for split in splits:
            for _ in decode_split(data.split(split), CHECK_SIZE):
                pass
    tree_notes = [*check_class_trees(data, splits), *check_class_parents(data, splits)]
    tables = label_tables(data)
    findings = [*tree_notes, *_untrained_notes(data, tables, allow_untrained or data.info.allow_untrained)]
    if with_audit:
        absent_notes = [f"no row is for {split}" for split in SPLITS if not data.info.rows.get(split)]
        findings += [
            *_unknown_notes(tables),
            *absent_notes,
            *label_notes(tables),
            *content_notes(data, tables),
        ]
    warnings = tuple(dict.fromkeys((*data.info.notes, *findings)))
    return CheckReport(data.info.name, data.info.fingerprint, dict(splits), len(data.info.shards), warnings)


def _check_shard(data: Dataset, number: int, shard_of_id: dict[str, int]) -> Counter[str]:
    file = data.reader.shard_file(number)
    ids = data.reader.column(number, "id").to_pylist()

    def row_error(
        row: int, problem: str, key: str, found: object = None, allowed: object = None
    ) -> UserError:
        message = f"{problem} at row {row}, id {ids[row]}"
        return UserError(message, file=file, key=key, found=found, allowed=allowed)

    for row, row_id in enumerate(ids):
        if not row_id:
            raise row_error(row, "id is empty", "id")
        if row_id in shard_of_id:
            raise row_error(row, f"id is also in shard {shard_of_id[row_id]}", "id")
        shard_of_id[row_id] = number
    if data.info.grouped:
        for row in np.flatnonzero(data.reader.column(number, GROUP).is_null())[:1].tolist():
            raise row_error(row, "group is missing", GROUP)
    splits = data.reader.column(number, "split").to_pylist()
    for row, split in enumerate(splits):
        if split not in SPLITS:
            raise row_error(row, "unknown split", "split", split, SPLITS)
    if data.info.modality == "text":
        for row, text in enumerate(data.reader.column(number, "text").to_pylist()):
            if not (text and text.strip()):
                raise row_error(row, "text is empty", "text")
    if data.info.modality == "vectors":
        finite = np.isfinite(columns.vectors(data.reader.column(number, "vectors"))).all(axis=1)
        for row in np.flatnonzero(~finite)[:1].tolist():
            raise row_error(row, "vector has numbers that are not finite", "vectors")
    for name, space in data.info.label_spaces.items():
        space_columns = [data.reader.column(number, column) for column in label_columns(name, space)]
        check_labels(name, space, space_columns, file, lambda row: f"row {row}, id {ids[row]}")
    return Counter(splits)


def _check_counts(data: Dataset, splits: Counter[str]) -> None:
    declared_rows = {split: rows for split, rows in data.info.rows.items() if rows}
    if declared_rows != dict(splits):
        file = f"{data.place}/{INFO_FILE}"
        problem = "rows of the splits differ from the shards'"
        raise UserError(problem, file=file, key="rows", found=declared_rows, allowed=dict(splits))
    if not splits["train"]:
        raise UserError("no row is for training", file=data.place, key="split", found=dict(splits))


def _unknown_notes(tables: Sequence[LabelTable]) -> Iterator[str]:
    """Yields a note on the number of unknown entries for each label space that has some."""
    for table in tables:
        count = sum(len(rows.unknown.columns) for rows in table.rows.values() if rows.unknown is not None)
        cells = int(table.sizes.sum()) * table.space.n_classes
        if count:
            yield f"{table.name}: {count:,} of {cells:,} entries are unknown ({count / cells:.1%})"


def _untrained_notes(data: Dataset, tables: Sequence[LabelTable], allowed: bool) -> Iterator[str]:
    for table in tables:
        train, validation, test = (table.count_of(split) > 0 for split in SPLITS)
        only_test = [table.space.classes[c] for c in np.flatnonzero(test & ~train & ~validation)]
        # A rating without a training row is still a point of the known scale, so it is no error.
        if only_test and not allowed and not table.is_aspect:
            raise _test_only_error(data, table, only_test[0], len(only_test))
        untrained_classes = [table.space.classes[c] for c in np.flatnonzero(~train & (test | validation))]
        if untrained_classes:
            examples = ", ".join(untrained_classes[:5]) + (", ..." if len(untrained_classes) > 5 else "")
            yield f"{table.name}: {len(untrained_classes)} classes have no training row: {examples}"


def _test_only_error(data: Dataset, table: LabelTable, label: str, count: int) -> UserError:
    test, rows = data.split("test"), table.rows["test"]
    entry = int((rows.columns == table.space.classes.index(label)).nonzero()[0])
    row = int(rows.row_index()[entry])
    shard_file, shard_row = test.place(row)
    more = f" (and {count - 1} more)" if count > 1 else ""
    return UserError(
        f"label in the test split only{more}, at row {shard_row}, id {test.ids[row]}",
        file=shard_file,
        key=table.name,
        found=label,
        allowed="labels that other rows have; with allow_untrained any",
    )
