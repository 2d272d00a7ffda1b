"""The data sources, and `prepare`, which writes a source's folder as a whole or not at all.

Each module here declares a source, or a few of a kind, as values of `Source`.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from filelock import FileLock
from pydantic import BaseModel

from mlcl.config.section import validate
from mlcl.data.format import INFO_FILE
from mlcl.data.source import Source
from mlcl.errors import UserError
from mlcl.files import remove_partial, scratch_beside
from mlcl.plugins import PluginError, Registry, UnknownPluginError

SOURCES: Registry[Source[Any]] = Registry("source", "mlcl.sources", "mlcl.data.sources", Source)
LONGEST_NAME = 60
"""The most characters of a data set's name in the name of its folder."""


def find_source(name: str) -> Source[Any]:
    """Returns a source by name. Raises UserError for an unknown name or a plugin that fails to load."""
    try:
        return SOURCES[name]
    except UnknownPluginError as error:
        raise UserError(
            f"unknown source{error.hint}", key="data.source", found=name, allowed=sorted(error.allowed)
        ) from None
    except PluginError as error:
        raise UserError(str(error), key="data.source", found=name) from None


def prepare(
    source_name: str, home: Path, options: Mapping[str, Any] | None = None, split_seed: int = 0
) -> Path:
    """Returns the folder of a prepared source, which the first call writes and every later one finds.

    Several processes may call this at once: one writes, the others wait.

    Args:
        source_name: The name of the source.
        home: The folder that contains the prepared folders. A prepared folder is called NAME-HASH-HASH: the
            name of the source, or of the data set if the source has the option `name`; a hash of the source's
            version, options and split seed; and a hash of the state of the files that the source reads.
        options: The options of the source.
        split_seed: The seed of the split.

    Raises:
        UserError: For an unknown source, wrong options and bad input. No folder is left then.
    """
    source = find_source(source_name)
    source_options = _validate_options(source, options or {})
    state = None if source.state is None else source.state(source_options)
    folder = home / f"{_cache_stem(source, source_options, split_seed)}-{_hash_content(state)}"
    if (folder / INFO_FILE).exists():
        return folder
    try:
        home.mkdir(parents=True, exist_ok=True)
        with FileLock(home / f".{folder.name}.lock"):
            if not (folder / INFO_FILE).exists():
                _write(source, folder, source_options, split_seed)
    except OSError as error:
        file = Path(os.fsdecode(error.filename)) if isinstance(error.filename, str | bytes) else folder
        place, target = file.resolve(), folder.resolve()
        if home.resolve() in place.parents or place in target.parents:
            raise UserError("cannot be written", file=folder, found=error) from None
        raise UserError("cannot be read", file=file, found=error.strerror) from None
    return folder


def find_prepared(
    source_name: str, home: Path, options: Mapping[str, Any] | None = None, split_seed: int = 0
) -> Path | None:
    """Returns the folder that was prepared last with these options, even if the source's files are gone.

    Returns None if there is no such folder. The arguments are those of `prepare`.
    """
    source = find_source(source_name)
    stem = _cache_stem(source, _validate_options(source, options or {}), split_seed)
    info_files = list(home.glob(f"{stem}-*/{INFO_FILE}"))
    return max(info_files, key=lambda file: file.stat().st_mtime).parent if info_files else None


def _data_name(source: Source[Any], options: Any) -> str:
    if "name" not in source.options.model_fields:
        return source.name
    path = options.path[0] if isinstance(options.path, tuple) else options.path.resolve()
    return re.sub(r"[^\w.-]+", "_", options.name or path.stem).strip("._-")[:LONGEST_NAME] or source.name


def _validate_options(source: Source[Any], options: Mapping[str, Any]) -> BaseModel:
    try:
        model: BaseModel = validate(source.options, options, None)
    except UserError as error:
        raise error.with_fields(key=f"data.options.{error.key}" if error.key else "data.options") from None
    return model


def _cache_stem(source: Source[Any], options: BaseModel, split_seed: int) -> str:
    content = [source.full_version(), options.model_dump(mode="json"), split_seed]
    return f"{_data_name(source, options)}-{_hash_content(content)}"


def _hash_content(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:8]


def _write(source: Source[Any], folder: Path, options: BaseModel, split_seed: int) -> None:
    remove_partial(folder.parent, folder.name)
    with scratch_beside(folder) as scratch:
        work_folder = scratch / "data"
        source.write(work_folder, options, split_seed)
        work_folder.rename(folder)
