"""Writes tables in memory to files of a home: pandas frames, Hugging Face data sets, mappings of columns."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlcl.errors import UserError

if TYPE_CHECKING:
    import pandas as pd

FRAMES = "frames"
"""The folder of tables from memory, under the home."""
SPLIT = "split"
"""The column with the split of each row, for a mapping of splits to data sets."""
ALLOWED = "a path, a DataFrame, a Dataset, or a mapping of column names to values"


def data_paths(data: Any, home: Path) -> list[Path]:
    """Returns the files or the folder of a user's data.

    Args:
        data: A path or several; a pandas DataFrame; a Dataset or DatasetDict of Hugging Face; or a mapping of
            column names to values.
        home: The folder of results. A table from memory is written to it, under a name by its content, so
            that equal tables give the same runs.

    Raises:
        UserError: For data of another type, without rows, or with values that Parquet cannot hold.
    """
    if isinstance(data, (str, Path)):
        return [Path(data)]
    if isinstance(data, (list, tuple)) and data and all(isinstance(each, (str, Path)) for each in data):
        return [Path(each) for each in data]
    return [_written(_frame(data), home)]


def _frame(data: Any) -> pd.DataFrame:
    import pandas as pd

    if isinstance(data, pd.DataFrame):
        return data
    if hasattr(data, "features") and hasattr(data, "to_pandas"):
        return _named(data.to_pandas(), data.features)
    if isinstance(data, Mapping):
        if data and all(hasattr(each, "to_pandas") for each in data.values()):
            return pd.concat([_frame(its).assign(**{SPLIT: name}) for name, its in data.items()])
        try:
            return pd.DataFrame({name: list(values) for name, values in data.items()})
        except ValueError as error:
            raise UserError("columns of different lengths", key="data", found=error) from None
    raise UserError("no data", key="data", found=type(data).__name__, allowed=ALLOWED)


def _named(frame: pd.DataFrame, features: Mapping[str, Any]) -> pd.DataFrame:
    """Returns a frame of a Hugging Face data set with the names of classes in place of their indices."""
    for column, feature in features.items():
        if (names := getattr(feature, "names", None)) is not None:
            frame[column] = [None if each is None or each < 0 else names[each] for each in frame[column]]
        elif (names := getattr(getattr(feature, "feature", None), "names", None)) is not None:
            frame[column] = [[names[each] for each in its] for its in frame[column]]
    return frame


def _plain(value: Any) -> Any:
    """Converts a cell to a value that Parquet can hold: a set or a tuple becomes a list."""
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    return list(value) if isinstance(value, tuple) else value


def _written(frame: pd.DataFrame, home: Path) -> Path:
    """Writes a frame to a Parquet file in the home, named by its content's digest, and returns the file."""
    import pyarrow as pa

    from mlcl.files import new_file

    if frame.empty:
        raise UserError("no rows", key="data", allowed=ALLOWED)
    try:
        content = frame.reset_index(drop=True).map(_plain).to_parquet(index=False)
    except (pa.ArrowInvalid, pa.ArrowTypeError, ValueError) as error:
        raise UserError("cannot be a Parquet table", key="data", found=error) from None
    file = home / FRAMES / f"{hashlib.sha256(content).hexdigest()[:16]}.parquet"
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        with new_file(file) as work:
            work.write_bytes(content)
    return file
