"""The plan of a table: the table's file, and the options of the command."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from mlcl.config import covers
from mlcl.config.table.cells import Cell, cells_of
from mlcl.config.table.schema import FOLDER, Table
from mlcl.service.engine.packing import Resources


@dataclass(frozen=True)
class TablePlan:
    """A table with the options of a command.

    `scale` names a preset of the table's file; `data` has the path of the files of each source by name;
    `overrides` change every job.
    """

    table: Table
    file: Path
    scale: str | None = None
    seeds: int | None = None
    only: Sequence[str] = ()
    data: Mapping[str, str] = field(default_factory=dict)
    overrides: Mapping[str, Any] = field(default_factory=dict)
    resources: Resources = field(default_factory=Resources)

    @property
    def name(self) -> str:
        """The file's name, with the scale."""
        return self.file.stem if self.scale is None else f"{self.file.stem}@{self.scale}"

    @property
    def command(self) -> str:
        """The command line that makes this table again; options for resources are left out."""
        known = self.file.parent == FOLDER and self.file.suffix == ".yaml"
        words = ["mlcl", "reproduce", self.file.stem if known else str(self.file)]
        words += [] if self.scale is None else ["--scale", self.scale]
        words += [] if self.seeds is None else ["--seeds", str(self.seeds)]
        for option, values in (("--only", self.only), ("--data", map("=".join, self.data.items()))):
            words += [word for value in values for word in (option, value)]
        words += [f"{key}={_text(value)}" for key, value in self.overrides.items()]
        return shlex.join(words)

    @property
    def about(self) -> str:
        """The differences to the paper that the file names, of the scale and of the table."""
        scale = "" if self.scale is None else self.table.scales[self.scale].about
        return " ".join(part for part in (scale, self.table.about) if part)

    def tolerance(self, figure: str) -> float | None:
        """The largest difference between a mean and the printed figure of this name that counts as equal.

        None where means are not compared: the table sets no tolerance, or an override changes more than a
        path, so that the setting is not the paper's.
        """
        elsewhere = any(not self._is_place(key, value) for key, value in self.overrides.items())
        return None if elsewhere else self.table.tolerance_of(figure, self.scale)

    def _is_place(self, key: str, value: object) -> bool:
        """Whether an override only moves data: its key is a path, and the path exists."""
        named = any(covers(place, key) for place in self.table.places)
        return named and isinstance(value, str) and Path(value).expanduser().exists()

    @cached_property
    def cells(self) -> list[Cell]:
        """The cells of the table, of `only` where that names some."""
        return cells_of(
            self.table,
            self.file,
            scale=self.scale,
            seeds=self.seeds,
            only=self.only,
            data=self.data,
            overrides=self.overrides,
        )


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
