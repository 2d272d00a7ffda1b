"""Finds packaged files by name: the jobs, spaces, tables and cluster files of the package."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from mlcl.errors import UserError, did_you_mean

FOLDERS = {"job": "jobs", "space": "tune_spaces", "table": "tables", "cluster": "cluster"}
"""The name of the folder of each kind of file."""
REFERENCE = re.compile(r"(?<![\w./-])(?:\.\./)?((?:jobs|tune_spaces)/)?([\w{}.-]+\.yaml)")
"""The pattern of a reference to a file, in a table also with variables: `../jobs/{data}_features.yaml`."""


@dataclass(frozen=True)
class PackagedFile:
    """A packaged `job`, `space`, `table` or `cluster` file; commands find it by `name`, without `.yaml`."""

    kind: str
    name: str
    path: Path

    @property
    def display_path(self) -> Path:
        """The path, relative to the current folder if the file is below it."""
        cwd = Path.cwd()
        return self.path.relative_to(cwd) if self.path.is_relative_to(cwd) else self.path

    @property
    def about(self) -> str:
        """The first sentence of the comment with which the file begins."""
        text = self.path.read_text(encoding="utf-8").removeprefix("#!/usr/bin/env bash\n")
        comment = re.match(r"(?:# [^\n]*\n)*", text)
        words = " ".join(line.removeprefix("# ") for line in (comment[0] if comment else "").splitlines())
        return re.split(r"(?<=\.) ", words, maxsplit=1)[0].rstrip(":")


def packaged_root() -> Path:
    """Returns the folder that contains the folders in `FOLDERS`; in a clone, the root of the clone."""
    package_folder = Path(__file__).parents[1] / "packaged"
    return package_folder if package_folder.is_dir() else Path(__file__).parents[2]


def packaged_files(kind: str) -> dict[str, PackagedFile]:
    """Returns the packaged files of a kind by name."""
    folder = packaged_root() / FOLDERS[kind]
    files = sorted(file for file in folder.rglob("*") if file.suffix in (".yaml", ".sbatch"))
    entries = [PackagedFile(kind, file.name.removesuffix(".yaml"), file) for file in files]
    return {entry.name: entry for entry in entries}


def find_file(kind: str, name_or_path: str | Path) -> Path:
    """Returns the path of a job or space file, given by its path or, if it is a packaged file, by its name.

    `name_or_path` is a path, returned unchecked, if it has a suffix or a folder, or if it is a file. Else it
    names a file in the user's own `jobs` or `tune_spaces` or, if there is none, a packaged file. Raises
    UserError for an unknown name, and for an override, `key.path=value`.

    Example:
        >>> find_file("job", "icd10cm_ce").name
        'icd10cm_ce.yaml'
    """
    if not isinstance(name_or_path, (str, Path)):
        raise UserError(
            f"no {kind}", found=type(name_or_path).__name__, allowed="a file, a name, or a mapping"
        )
    path = Path(name_or_path)
    if re.match(r"[\w.*]+=", str(name_or_path)) and not path.exists():
        raise UserError(
            f"an override where the {kind} file is expected: overrides come last", found=str(name_or_path)
        )
    if path.suffix or len(path.parts) != 1 or path.is_file():
        return path
    user_file = Path(FOLDERS[kind], f"{name_or_path}.yaml")
    if user_file.is_file():
        return user_file
    files = packaged_files(kind)
    if str(name_or_path) not in files:
        problem = f"no such file, and no packaged {kind} of this name{did_you_mean(str(name_or_path), files)}"
        raise UserError(problem, found=str(name_or_path), allowed="a file, or a name of `mlcl jobs`")
    return files[str(name_or_path)].display_path


def job_and_space(text: str | Path) -> tuple[Path, Path | None]:
    """Returns the job file and the space file of `JOB` or `JOB:SPACE`; the latter is None for `JOB`."""
    job, _, space = str(text).partition(":")
    return Path(job), Path(space) if space else None


def is_packaged(name_or_path: str | Path) -> bool:
    """Whether the file is a packaged one, which the mlcl on a cluster has, too.

    In a clone, files below the current folder do not count, since they may have been changed.
    """
    path, package_folder = Path(name_or_path).resolve(), Path(__file__).parents[1] / "packaged"
    if package_folder.is_dir():
        return path.is_relative_to(package_folder)
    folders = (packaged_root() / folder for folder in FOLDERS.values())
    return any(map(path.is_relative_to, folders)) and not path.is_relative_to(Path.cwd())


def with_references(file: Path) -> list[Path]:
    """Returns a packaged file and all packaged files that it names (jobs, spaces, bases), directly or not."""
    files, queue, root = dict[Path, None](), [file], packaged_root()
    while queue:
        file = queue.pop()
        if file in files:
            continue
        files[file] = None
        text = re.sub(r"^\s*#.*$", "", file.read_text(encoding="utf-8"), flags=re.MULTILINE)
        for folder, name in REFERENCE.findall(text):
            pattern = re.sub(r"\{.*?\}", "*", name)
            queue += sorted((root / folder if folder else file.parent).glob(pattern))
    return list(files)
