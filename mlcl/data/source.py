"""What a data source declares: its options, and how it writes the format."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Generic, TypeVar

from pydantic import BaseModel

from mlcl.data.format import DatasetInfo

Options = TypeVar("Options", bound=BaseModel)


@dataclass(frozen=True)
class Source(Generic[Options]):
    """Where a data set comes from: a value at the top of a module of `mlcl.data.sources`, or of a plugin.

    `write(folder, options, split_seed)` writes the data set. It raises UserError, with the file, for bad
    input. `version` changes whenever the same options would give other rows; `packages` are the distributions
    that the rows depend on.

    A source with `state` reads files of the user's, named by its option `path`. `state(options)` gives plain
    data that tells one state of these files from another. What such a source writes is checked as any foreign
    data set is.
    """

    name: str
    title: str
    licence: str
    version: str
    options: type[Options]
    write: Callable[[Path, Options, int], DatasetInfo]
    state: Callable[[Options], object] | None = None
    packages: tuple[str, ...] = ()

    @property
    def needs_input(self) -> bool:
        """Whether it reads files of the user's."""
        return self.state is not None

    def full_version(self) -> str:
        """The version with those of the packages that the rows come from."""
        return " ".join([self.version, *(f"{name} {metadata.version(name)}" for name in self.packages)])
