"""Sources by name, and preparing one once: the folder is there whole, or it is not there."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

from filelock import FileLock
from pydantic import BaseModel

from mlcl.config.load import validate
from mlcl.data.check import check
from mlcl.data.files import remove_partial, scratch_beside
from mlcl.data.format import INFO_FILE
from mlcl.errors import UserError, nearest


@dataclass(frozen=True)
class Source:
    """Where a data set comes from. `module` has `Options` and `write`; with `needs_input` also `state`.

    `version` changes whenever the same options would give other rows. A source that `needs_input` takes files
    of the user's, named by its option `path`; what it writes is checked like any foreign data set.
    """

    name: str
    title: str
    licence: str
    needs_input: bool
    version: str
    packages: tuple[str, ...] = ()

    @property
    def module(self) -> Any:
        """The source's module, imported when it is wanted."""
        return import_module(f"mlcl.data.sources.{self.name}")

    @property
    def options(self) -> type[BaseModel]:
        """The model of its options."""
        model: type[BaseModel] = self.module.Options
        return model

    def write(self, folder: Path, options: BaseModel, split_seed: int) -> None:
        """Write the data set into `folder`."""
        self.module.write(folder, options, split_seed)

    def full_version(self) -> str:
        """The version with those of the packages that the rows come from."""
        return " ".join([self.version, *(f"{name} {metadata.version(name)}" for name in self.packages)])


SOURCES: dict[str, Source] = {
    source.name: source
    for source in (
        Source(
            "icd10cm",
            "ICD-10-CM diagnosis descriptions: chapter > section > category",
            "public domain",
            False,
            "1",
            ("simple-icd-10-cm",),
        ),
        Source(
            "digits",
            "scenes of one to three handwritten digits: multi-label images",
            "CC BY 4.0",
            False,
            "1",
            ("scikit-learn", "pillow", "numpy"),
        ),
        Source("csv", "a CSV file of texts or image files, labels by column", "the file's own", True, "1"),
        Source("parquet", "a Parquet file of texts or images, labels by column", "the file's own", True, "1"),
        Source("image_folder", "image files in a folder a class", "the files' own", True, "1"),
    )
}


def prepare(
    source_name: str, home: Path, options: Mapping[str, Any] | None = None, split_seed: int = 0
) -> Path:
    """The folder of a prepared source, made by the first call and found by every later one.

    Its name carries a hash of the options, the split seed, the source's version and the state of the files it
    reads. Several processes may call this at once: one writes, the others wait. Raises UserError for an
    unknown source, wrong options and bad input; then no folder is there.
    """
    source = find_source(source_name)
    checked = _options(source, options or {})
    folder = home / f"{source.name}-{_key(source, checked, split_seed)}"
    if (folder / INFO_FILE).exists():
        return folder
    try:
        home.mkdir(parents=True, exist_ok=True)
        with FileLock(home / f".{folder.name}.lock"):
            if not (folder / INFO_FILE).exists():
                _write(source, folder, checked, split_seed)
    except OSError as error:
        raise UserError("cannot be written", file=folder, found=error) from None
    return folder


def find_source(name: str) -> Source:
    """A source by name. Raises UserError that names the nearest for an unknown one."""
    if name not in SOURCES:
        near = nearest(name, SOURCES)
        hint = f"; did you mean {near}?" if near else ""
        raise UserError(f"unknown source{hint}", key="data.source", found=name, allowed=sorted(SOURCES))
    return SOURCES[name]


def _options(source: Source, options: Mapping[str, Any]) -> BaseModel:
    try:
        return validate(source.options, options, None)
    except UserError as error:
        key = f"data.options.{error.key}" if error.key else "data.options"
        raise UserError(error.problem, key=key, found=error.found, allowed=error.allowed) from None


def _key(source: Source, options: BaseModel, split_seed: int) -> str:
    state = source.module.state(options) if source.needs_input else None
    content = [source.full_version(), options.model_dump(mode="json"), split_seed, state]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:12]


def _write(source: Source, folder: Path, options: BaseModel, split_seed: int) -> None:
    remove_partial(folder)
    with scratch_beside(folder) as scratch:
        made = scratch / "data"
        source.write(made, options, split_seed)
        if source.needs_input:
            _check(made, options)
        made.rename(folder)


def _check(made: Path, options: BaseModel) -> None:
    """What `check` finds is told of the user's file: the scratch folder is gone by then."""
    try:
        check(made)
    except UserError as error:
        file = getattr(options, "path", made)
        raise UserError(
            error.problem, file=file, key=error.key, found=error.found, allowed=error.allowed
        ) from None
