"""Table files by name or by path."""

from __future__ import annotations

from pathlib import Path

from mlcl.config.safe_yaml import read_yaml
from mlcl.config.section import validate
from mlcl.config.table.schema import Table
from mlcl.errors import UserError, did_you_mean

FOLDER = Path("tables")
"""Where tables are looked for by name, from the folder that a command is run in."""


def table_files(folder: Path = FOLDER) -> list[Path]:
    """All table files of a folder, by name."""
    return sorted(folder.glob("*.yaml"))


def find_table(name: str, folder: Path = FOLDER) -> Path:
    """The file of a table, by path or by its name in `folder`. Raises UserError for an unknown one."""
    if name.endswith((".yaml", ".yml")):
        return Path(name)
    names = {file.stem: file for file in table_files(folder)}
    if name not in names:
        problem = f"no such table{did_you_mean(name, names)}"
        raise UserError(problem, key="TABLE", found=name, allowed=sorted(names) or f"{folder}/*.yaml")
    return names[name]


def load_table(file: Path) -> Table:
    """The checked table of a file. Raises UserError that names file, key, what was found and is allowed."""
    return validate(Table, read_yaml(file), file)
