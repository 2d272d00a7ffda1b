"""Writes tables in memory to files of a home: frames, Hugging Face data sets, columns, lists of contents."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import torch
from PIL import Image

from mlcl.data.images import read_images, to_png
from mlcl.data.tables.rows import IMAGE
from mlcl.errors import UserError
from mlcl.files import write_if_missing
from mlcl.service.starter.table_options import SOURCES

FRAMES = "frames"
"""The folder of tables from memory, under the home."""
SPLIT = "split"
"""The column with the split of each row, for a mapping of splits to data sets."""
LABEL = "label"
"""The column of the labels of a list of contents."""
OF_ROWS = (SPLIT, "group", "id")
"""Options that may be a list of values, not the name of a column, if the data are a list of contents."""
ALLOWED = (
    "a path, a DataFrame, a Dataset, a mapping of column names to values, or a list of texts, images or "
    "vectors with labels=VALUES"
)


def in_columns(data: Any, columns: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Returns a list of texts, images or vectors as a mapping of columns, and options that name the columns.

    Other data, and their options `columns`, are returned as they are. For a list, `labels` in `columns` has a
    value for each row, or is a mapping or frame of such columns; `split`, `group` and `id` may have values,
    too. Raises UserError if `labels` has no values, or two columns have one name.
    """
    _check_dense("data", data)
    kind = _content_kind(data)
    if kind is None:
        return data, dict(columns)
    labels = columns.get("labels")
    _check_dense("labels", labels)
    if labels is None or isinstance(labels, str):
        problem = f"a list of {kind.removesuffix('s')}s needs the values of its labels"
        allowed = f"{len(data)} values, or a mapping of column names to {len(data)} values each"
        raise UserError(problem, key="labels", found=labels or "none", allowed=allowed)
    is_mapping = isinstance(labels, Mapping) or hasattr(labels, "columns")
    spaces = {str(name): values for name, values in labels.items()} if is_mapping else {LABEL: labels}
    rows = {key: columns[key] for key in OF_ROWS if not isinstance(columns.get(key), str | None)}
    if clashes := sorted(spaces.keys() & {kind, *rows}):
        raise UserError("another column has this name", key="labels", found=clashes)
    names = {**dict.fromkeys(rows), "labels": list(spaces)} | {key: key for key in rows}
    return {kind: data, **spaces, **rows}, {**columns, **names, kind: kind}


def _check_dense(key: str, values: Any) -> None:
    """Raises UserError for a sparse matrix of SciPy."""
    if hasattr(values, "toarray"):
        raise UserError("sparse", key=key, found=type(values).__name__, allowed="its toarray(), a dense one")


def _content_kind(data: Any) -> str | None:
    """Returns `text`, `image` or `vectors` for a list of these; None for other data and lists of files."""
    if isinstance(data, (str, Mapping)) or not (hasattr(data, "__len__") and hasattr(data, "__getitem__")):
        return None
    if hasattr(data, "columns") or hasattr(data, "to_pandas") or not len(data):
        return None
    sample = next((item for item in data if item is not None), None)
    if isinstance(sample, Image.Image):
        return "image"
    if isinstance(sample, str):
        texts = [item for item in data if isinstance(item, (str, Path))]
        are_files = all(text and (_exists(text) or Path(text).suffix.lower() in SOURCES) for text in texts)
        return None if are_files else "text"
    numbers = isinstance(sample, (list, tuple)) and all(isinstance(value, (int, float)) for value in sample)
    return "vectors" if numbers or getattr(sample, "ndim", 0) == 1 else None


def _exists(name: str | Path) -> bool:
    try:
        return Path(name).exists()
    except OSError:  # the text is too long for a file name
        return False


def data_paths(data: Any, home: Path) -> list[Path]:
    """Returns the files or the folder of a user's data, see `mlcl.prepare`.

    A table from memory is written to a file in the home, named by its digest, so that equal tables give the
    same runs.
    """
    if isinstance(data, (str, Path)):
        if not str(data):
            raise UserError("no path", key="data", found="''", allowed="a file or a folder")
        return [Path(data)]
    if isinstance(data, (list, tuple)) and data and all(isinstance(path, (str, Path)) for path in data):
        return [Path(path) for path in data]
    return [_write_parquet(_to_frame(data), home)]


def _to_frame(data: Any) -> pd.DataFrame:
    if isinstance(data, pd.DataFrame):
        return data
    if hasattr(data, "features") and hasattr(data, "to_pandas"):
        return _name_classes(data.to_pandas(), data.features)
    if isinstance(data, Mapping):
        if data and all(
            isinstance(part, pd.DataFrame) or hasattr(part, "to_pandas") for part in data.values()
        ):
            return pd.concat([_to_frame(part).assign(**{SPLIT: name}) for name, part in data.items()])
        return pd.DataFrame(_list_columns(data))
    if isinstance(data, (list, tuple)) and all(isinstance(row, Mapping) for row in data):
        return pd.DataFrame(list(data))
    raise UserError("no data", key="data", found=type(data).__name__, allowed=ALLOWED)


def _list_columns(data: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Returns the values of each column as a list. Raises UserError for columns of different lengths."""
    from mlcl.evaluation.tasks import array

    columns: dict[str, list[Any]] = {}
    for name, values in data.items():
        if isinstance(values, str) or not hasattr(values, "__iter__"):
            problem, allowed = "no values of a column", "a list, array or tensor with a value for each row"
            raise UserError(problem, key=f"data.{name}", found=repr(values)[:60], allowed=allowed)
        columns[name] = list(array(values) if isinstance(values, torch.Tensor) else values)
    lengths = {name: len(values) for name, values in columns.items()}
    if len({*lengths.values()}) > 1:
        raise UserError("columns of different lengths", key="data", found=lengths)
    return columns


def _name_classes(frame: pd.DataFrame, features: Mapping[str, Any]) -> pd.DataFrame:
    """Returns a frame of a Hugging Face data set with the names of classes in place of their indices."""
    for column, feature in features.items():
        inner_feature = getattr(feature, "feature", None)
        if (names := getattr(feature, "names", None)) is not None:
            validity = (index is not None and index >= 0 for index in frame[column])
            frame[column] = [
                names[int(index)] if valid else None
                for index, valid in zip(frame[column], validity, strict=True)
            ]
        elif (names := getattr(inner_feature, "names", None)) is not None:
            lists: Any = [row if row is None else [names[index] for index in row] for row in frame[column]]
            frame[column] = lists
    return frame


def _to_plain_frame(frame: pd.DataFrame) -> pd.DataFrame:
    """Returns the frame with cells that Parquet can store, images as PNG; a named index becomes a column.

    Raises UserError for images that cannot be read.
    """
    index_names = [name for name in frame.index.names if isinstance(name, str) and name not in frame.columns]
    result = frame.reset_index(level=index_names).reset_index(drop=True).map(_to_plain_cell)
    for position, column in enumerate(result.columns):
        cells = result.iloc[:, position].tolist()
        places = [row for row, value in enumerate(cells) if isinstance(value, Image.Image)]

        def refuse(
            image: int, problem: str, places: Sequence[int] = places, key: str = str(column)
        ) -> UserError:
            return UserError(f"no image that can be read at row {places[image]}", key=key, found=problem)

        if places:
            other_rows = [row for row, value in enumerate(cells) if isinstance(value, (str, list))]
            if other_rows:
                problem = f"no image at row {other_rows[0]}, beside images of Pillow"
                raise UserError(problem, key=str(column), found=repr(cells[other_rows[0]])[:60])
            images = read_images([cells[row] for row in places], to_png, refuse)
            png_by_row = dict(zip(places, images, strict=True))
            result.isetitem(position, [png_by_row.get(row, value) for row, value in enumerate(cells)])
    return result


def _to_plain_cell(value: Any) -> Any:
    """Returns a cell as Parquet stores it: sets and tuples as lists, paths of images as absolute paths."""
    if isinstance(value, (set, frozenset)):
        return sorted(value, key=repr)
    if isinstance(value, str):
        return str(Path(value).absolute()) if IMAGE.search(value[-6:]) and _exists(value) else value
    if isinstance(value, Path):
        return str(value.absolute())
    if isinstance(value, torch.Tensor):
        return value.tolist()
    return list(value) if isinstance(value, tuple) else value


def _write_parquet(frame: pd.DataFrame, home: Path) -> Path:
    """Writes a frame to a Parquet file in the home, named by its content's digest, and returns the file."""
    if frame.empty:
        raise UserError("no rows", key="data", allowed=ALLOWED)
    try:
        content = _to_plain_frame(frame).to_parquet(index=False)
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        raise UserError("cannot be a Parquet table", key="data", found=error) from None
    return write_if_missing(home / FRAMES / f"{hashlib.sha256(content).hexdigest()[:16]}.parquet", content)
