"""Models on storage that many machines read, such as `s3://`, and each machine's copies on its disk."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from fnmatch import fnmatch
from hashlib import sha256
from pathlib import Path
from typing import Any

from mlcl.errors import MachineError, UserError
from mlcl.files import lock_folder, new_folder

FILES = ("*.json", "*.safetensors", "*.txt", "*.model")
"""The files of a model: configuration, weights and tokenizer, neither pickled files nor code."""
CONFIG = "config.json"
"""The file without which a folder is no model; it is written last, so that a partial copy is no model."""


def cache_folder() -> Path:
    """Returns the folder with this machine's copies of models: HF_HOME, by default in the user's cache."""
    default = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")) / "huggingface"
    return Path(os.environ.get("HF_HOME") or default).expanduser()


def check_room(folder: Path, size: int, model: str) -> None:
    """Raises MachineError if the disk of `folder`, which need not exist, has less than `size` free bytes."""
    parent = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if (free := shutil.disk_usage(parent).free) < size:
        sizes = f"{size / 2**30:.1f} GiB, and {free / 2**30:.1f} GiB are free in {folder}"
        raise MachineError(f"no room for {model}: it has {sizes}; set HF_HOME (cluster file: cache)")


def stored_model(uri: str) -> Path:
    """Returns the folder of this machine's copy of the model at `uri`; one process of the machine copies it.

    A model that has changed since is copied again. Raises UserError if there is no model, and MachineError if
    there is no room for the copy.
    """
    system, path = _locate(uri)
    files = _find_model_files(system, path, uri)
    version = sha256(repr([uri, *((file.base_name, file.size, file.mtime_ns) for file in files)]).encode())
    folder = cache_folder() / "mlcl" / f"{Path(path).name}-{version.hexdigest()[:16]}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with lock_folder(folder, folder.parent):
        if not folder.is_dir():
            check_room(folder, sum(file.size for file in files), uri)
            with new_folder(folder) as work:
                _copy_files([(file.path, work / file.base_name) for file in files], source=system)
    return folder


def store_model(folder: Path, uri: str) -> None:
    """Copies a model's folder to `uri`.

    Raises UserError if files other than those of an interrupted copy are there, or if writing fails.
    """
    system, path = _locate(uri)
    try:
        names = [file for file in folder.iterdir() if any(fnmatch(file.name, pattern) for pattern in FILES)]
        pairs = {file.name: (file.resolve(), f"{path}/{file.name}") for file in sorted(names)}
        config, target = pairs.pop(CONFIG)
        partial_target = f"{target}.partial"
        if {item.base_name for item in _list_folder(system, path)} - {*pairs, Path(partial_target).name}:
            raise UserError("already exists", key="--to", found=uri)
        system.create_dir(path, recursive=True)
        _copy_files([*pairs.values(), (config, partial_target)], target=system)
        system.move(partial_target, target)
    except OSError as error:
        raise UserError("cannot be written", key="--to", found=f"{uri} ({error})") from error


def _locate(uri: str) -> tuple[Any, str]:
    from pyarrow import ArrowException, fs

    try:
        system, path = fs.FileSystem.from_uri(uri if "://" in uri else str(Path(uri).expanduser().absolute()))
    except (ArrowException, OSError, ValueError) as error:
        raise UserError("no filesystem for this URI", found=f"{uri} ({error})") from None
    return system, path.rstrip("/")


def _list_folder(system: Any, path: str) -> list[Any]:
    from pyarrow import fs

    return list(system.get_file_info(fs.FileSelector(path, allow_not_found=True)))


def _find_model_files(system: Any, path: str, uri: str) -> list[Any]:
    try:
        items = _list_folder(system, path)
    except OSError as error:
        raise UserError("cannot be read", key="encoder.model", found=f"{uri} ({error})") from error
    files = [file for file in items if file.is_file and any(fnmatch(file.base_name, name) for name in FILES)]
    if not any(file.base_name == CONFIG for file in files):
        raise UserError("no model is there", key="encoder.model", found=uri)
    return sorted(files, key=lambda file: str(file.path))


def _copy_files(
    pairs: Sequence[tuple[str | Path, str | Path]], *, source: Any = None, target: Any = None
) -> None:
    """Copies each file to its target path; `source` and `target` are by default this machine's filesystem."""
    from pyarrow import fs

    local = fs.LocalFileSystem()
    for file, place in pairs:
        with (
            (source or local).open_input_stream(str(file)) as content,
            (target or local).open_output_stream(str(place)) as copy,
        ):
            shutil.copyfileobj(content, copy, 2**24)
