"""Data sources: what one declares, and the data set that it reads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Generic, TypeVar

from pydantic import BaseModel

from mlcl.data.format import DatasetInfo, LabelSpace, Modality
from mlcl.data.writer import Batch, write_dataset
from mlcl.files import scratch_beside

Options = TypeVar("Options", bound=BaseModel)


@dataclass(frozen=True)
class NewDataset:
    """A data set that is to be written.

    Args:
        modality: text, image or vectors.
        label_spaces: The label spaces by name.
        batches: The rows, see `mlcl.data.writer.Batch`. They are read once, in order.
        notes: What a reader should know of how the rows came about.
        allow_untrained: Accept classes that only the test split has, as a part of a set may have.
        dim: The size of vectors.
        name, origin, licence: Where they are not those of the source.
    """

    modality: Modality
    label_spaces: dict[str, LabelSpace]
    batches: Iterable[Batch]
    notes: Sequence[str] = ()
    allow_untrained: bool = False
    dim: int | None = None
    name: str | None = None
    origin: str | None = None
    licence: str | None = None


@dataclass(frozen=True)
class Source(Generic[Options]):
    """Where a data set comes from: a value at the top of a module of `mlcl.data.sources`, or of a plugin.

    Args:
        name: What a job calls it.
        title: One line on the data, for lists.
        licence: The licence of the data.
        version: Changes whenever the same options would give other rows.
        options: The schema of the options.
        read: A context manager that gives the data set, from the options, the seed of the split and a folder
            for scratch files, on the disk that the data set is written to. Files that the rows come from stay
            open until it is left. Raises UserError, with the file, for bad input.
        origin: Who published the data, for `dataset.json`.
        state: Plain data that tells one state of the user's files from another. A source with it reads files
            named by its option `path`, and what it reads is checked as any foreign data set is.
        packages: The distributions that the rows depend on.
    """

    name: str
    title: str
    licence: str
    version: str
    options: type[Options]
    read: Callable[[Options, int, Path], AbstractContextManager[NewDataset]]
    origin: str = ""
    state: Callable[[Options], object] | None = None
    packages: tuple[str, ...] = ()

    @property
    def needs_input(self) -> bool:
        """Whether the source reads files of the user's."""
        return self.state is not None

    def full_version(self) -> str:
        """The version, with the versions of `packages`."""
        return " ".join([self.version, *(f"{name} {metadata.version(name)}" for name in self.packages)])

    def write(self, folder: Path, options: Options, split_seed: int) -> DatasetInfo:
        """Writes the data set to `folder`. Raises UserError as `read` and `write_dataset` do."""
        with scratch_beside(folder) as scratch, self.read(options, split_seed, scratch) as made:
            return write_dataset(
                folder,
                name=self.name if made.name is None else made.name,
                modality=made.modality,
                dim=made.dim,
                label_spaces=made.label_spaces,
                batches=made.batches,
                source=self.origin if made.origin is None else made.origin,
                licence=self.licence if made.licence is None else made.licence,
                allow_untrained=made.allow_untrained,
                notes=made.notes,
            )
