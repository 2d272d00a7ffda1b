"""Declares data sources, and builds multi-label spaces from the names of labels."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from importlib import metadata
from itertools import chain
from pathlib import Path
from typing import Generic, TypeVar

from pydantic import BaseModel

from mlcl.data.format import DatasetInfo, LabelSpace
from mlcl.data.validation import check
from mlcl.data.writer import NewDataset as NewDataset
from mlcl.data.writer import write_dataset
from mlcl.errors import UserError
from mlcl.files import scratch_beside

Options = TypeVar("Options", bound=BaseModel)
Names = Sequence[Collection[str]]
"""The names of the labels of each row."""


class Workspace(ExitStack):
    """A source's `folder` for scratch files, and a stack of files to close once its rows are written."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder


@dataclass(frozen=True)
class Source(Generic[Options]):
    """Declares a source of data sets, as a module-level value in `mlcl.data.sources` or in a plugin.

    Attributes:
        name: The name of the source in a job.
        title: One line on the data, for lists.
        licence: The licence of the data.
        version: A text that changes whenever the same options would give other rows.
        options: The schema of the options.
        read: Returns the data set, given the options, the seed of the split and a workspace on the disk that
            the data set is written to. Raises UserError, with the file, for bad input.
        origin: Who published the data, for `dataset.json`.
        state: Returns plain data that changes when the user's files change. A source with `state` reads the
            files that its option `path` names, and its data set is checked after it is written.
        packages: The Python packages that the rows depend on, whose versions are part of the version.
        groups: The label space whose classes are groups of rows that are not independent samples.

    Example:
        def read(options: Options, split_seed: int, work: Workspace) -> NewDataset:
            rows = {"id": ["a", "b"], "split": ["train", "test"], "text": ["one", "two"], "topic": [0, 1]}
            return NewDataset("text", {"topic": LabelSpace(kind="single", classes=("x", "y"))}, [rows])

        TWO = Source("two", "two texts", "CC0", version="1", options=Options, read=read)
    """

    name: str
    title: str
    licence: str
    version: str
    options: type[Options]
    read: Callable[[Options, int, Workspace], NewDataset]
    origin: str = ""
    state: Callable[[Options], object] | None = None
    packages: tuple[str, ...] = ()
    groups: str | None = None

    @property
    def needs_input(self) -> bool:
        """Whether the source reads files of the user."""
        return self.state is not None

    def full_version(self) -> str:
        """Returns the version, with the versions of `packages`."""
        return " ".join([self.version, *(f"{name} {metadata.version(name)}" for name in self.packages)])

    def write(self, folder: Path, options: Options, split_seed: int) -> DatasetInfo:
        """Writes the data set to `folder`, and checks it if it is read from the user's files.

        Raises the errors of `read` and `write_dataset`, and those of `check` with the user's file.
        """
        with scratch_beside(folder) as scratch, Workspace(scratch) as work:
            dataset = self.read(options, split_seed, work)
            fields = {
                name: getattr(dataset, name) or getattr(self, name) for name in ("name", "origin", "licence")
            }
            info = write_dataset(folder, replace(dataset, **fields))
        if self.needs_input:
            try:
                check(folder, with_audit=False)
            except UserError as error:
                raise _locate_error(error, dataset.place_of, getattr(options, "path", folder)) from None
        return info


def _locate_error(
    error: UserError, place_of: Callable[[str], tuple[Path, str]] | None, path: Path | tuple[Path, ...]
) -> UserError:
    """Returns an error of `check` with the user's file, and the line there if it names a row of a table."""
    problem, _, row_id = error.problem.rpartition(", id ")
    with suppress(ValueError):  # an id that contains ", id " is cut and not found
        if problem and place_of is not None:
            file, place = place_of(row_id)
            return error.with_fields(file=file, problem=re.sub(r"row \d+$", place, problem))
    return error.with_fields(file=path[0] if isinstance(path, tuple) else path)


def space_of(classes: Iterable[str]) -> LabelSpace:
    """Returns a multi-label space with these classes, in this order."""
    return LabelSpace(kind="multi_label", classes=tuple(classes))


def space_of_rows(rows: Names, file: Path) -> LabelSpace:
    """Returns a multi-label space with the classes that occur, sorted. Raises UserError if none occurs."""
    return space_of(check_class_names(sorted(set(chain.from_iterable(rows))), file))


def indices(rows: Names, space: LabelSpace) -> list[list[int]]:
    """Returns the labels of each row as class indices, ascending and without repeats."""
    index = {name: i for i, name in enumerate(space.classes)}
    return [sorted({index[name] for name in row}) for row in rows]


def count(splits: Sequence[str], rows: Sequence[Collection[Hashable]]) -> dict[str, float]:
    """Returns the number of rows of each split and of `classes` that occur, and the mean `labels a row`.

    The result is the argument `counts` of `compare_counts`.
    """
    labels = sum(len(set(row)) for row in rows)
    classes = len(set(chain.from_iterable(rows)))
    return Counter(splits) | {"classes": classes, "labels a row": labels / max(1, len(rows))}


def check_class_names(classes: Iterable[str], file: Path) -> tuple[str, ...]:
    """Returns the class names as a tuple. Raises UserError if there is no name, or if a name occurs twice."""
    counts = Counter(classes)
    if not counts:
        raise UserError("names no class", file=file)
    if repeated_names := [name for name, count in counts.items() if count > 1]:
        raise UserError("names a class twice", file=file, found=repeated_names)
    return tuple(counts)
