"""Plugins in Python files that a job names: `plugins: [my_loss.py]`, relative to the job file.

Loading such a job runs these files, as `import` runs any Python file: do not load a job with plugins, or a
model exported from one, that you would not run a program from. A model is opened without them unless its
encoder is one of theirs. Commands that only read (list, status,
compare, report, doctor) run none.

A job that has been read carries its plugins' text. So they reach every process that loads the job and stay
with the run, and their content is part of the job's hash.
"""

from __future__ import annotations

import hashlib
import linecache
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Self

from pydantic import Field, model_validator

from mlcl.config.section import Section
from mlcl.errors import UserError
from mlcl.plugins import REGISTRIES, PluginError, files_are_run, registry

KEY = "plugins"
MOST_BYTES = 1 << 16


class PluginFile(Section):
    """A plugin file as a job carries it. `place` is where it was read; it is not written down."""

    file: str
    sha256: str
    source: str
    place: Path | None = Field(None, exclude=True)

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if _digest(self.source) != self.sha256:
            raise ValueError(f"{self.file}: the text has another SHA-256")
        return self

    @property
    def label(self) -> str:
        """What says which content it is, in few words."""
        return f"{self.file} sha256:{self.sha256[:8]}"


def read_plugins(tree: Mapping[str, Any], job_file: Path | None) -> dict[str, Any]:
    """The tree of a job with the files that its key `plugins` names read; nothing is run.

    Paths are relative to the job file, without one to the working directory. Raises UserError for a path that
    is none of a Python file there, and for a file that cannot be read.
    """
    named = tree.get(KEY)
    if not isinstance(named, (list, tuple)):
        return dict(tree)
    return {**tree, KEY: [_read(each, job_file) if isinstance(each, str) else each for each in named]}


def _read(name: str, job_file: Path | None) -> dict[str, Any]:
    folder = Path.cwd() if job_file is None else job_file.parent
    path = (folder / name).resolve()
    if path.suffix != ".py" or not name.isprintable():
        raise UserError(
            "is no Python file", file=job_file, key=KEY, found=name, allowed="a path that ends in .py"
        )
    inside = any(path.is_relative_to(root.resolve()) for root in (folder, Path.cwd()))
    if Path(name).is_absolute() or not inside:
        raise UserError(
            "lies elsewhere", file=job_file, key=KEY, found=name,
            allowed="a relative path, below the job file's folder or the working directory",
        )  # fmt: skip
    if not path.is_file():
        raise UserError("no such file", file=job_file, key=KEY, found=name)
    try:
        content = path.read_bytes()
        source = content.decode("utf-8")
    except (OSError, ValueError) as error:
        raise UserError("cannot be read", file=job_file, key=KEY, found=f"{name}: {error}") from None
    if len(content) > MOST_BYTES:
        raise UserError(
            "is too large", file=job_file, key=KEY, found=f"{name}: {len(content):,} bytes",
            allowed=f"{MOST_BYTES:,} bytes",
        )  # fmt: skip
    return {"file": name, "sha256": _digest(source), "source": source, "place": str(path)}


def run_plugins(plugins: Any) -> None:
    """Runs the files that a job carries and registers what they declare, once in a process.

    Raises UserError for a file that fails, that declares nothing, or that declares a name that is taken.
    """
    if isinstance(plugins, (list, tuple)) and files_are_run():
        for each in plugins:
            if isinstance(each, (PluginFile, Mapping)):
                _run(PluginFile.model_validate(each))


def _run(plugin: PluginFile) -> None:
    name = f"mlcl_plugin_{plugin.sha256}"
    if name in sys.modules:
        return
    module = sys.modules[name] = _module(name, plugin)
    try:
        _execute(plugin, module)
        if not _register(plugin, module):
            raise UserError(
                "declares no plugin", file=plugin.file, key=KEY, found="nothing", allowed=list(REGISTRIES)
            )
    except UserError:
        del sys.modules[name]
        raise


def _module(name: str, plugin: PluginFile) -> ModuleType:
    module = ModuleType(name)
    module.__file__ = plugin.file
    # For the lines of a traceback, as the text may come from elsewhere than a file.
    lines = plugin.source.splitlines(keepends=True)
    linecache.cache[plugin.file] = (len(plugin.source), None, lines, plugin.file)
    return module


def _execute(plugin: PluginFile, module: ModuleType) -> None:
    try:
        exec(compile(plugin.source, plugin.file, "exec"), module.__dict__)
    except SyntaxError as error:
        found = f"line {error.lineno}: {error.msg}"
        raise UserError("is no valid Python", file=plugin.file, key=KEY, found=found) from None
    except (Exception, SystemExit) as error:
        found = f"{type(error).__name__}: {error}"
        raise UserError("fails when it is run", file=plugin.file, key=KEY, found=found) from error


def _register(plugin: PluginFile, module: ModuleType) -> list[str]:
    """The names of what the module declares, registered: all of it or nothing."""
    added: list[str] = []
    try:
        for plural in REGISTRIES:
            added += registry(plural).add(module, plugin.label)
    except PluginError as error:
        for plural in REGISTRIES:
            registry(plural).remove(plugin.label)
        raise UserError(
            error.problem, file=plugin.file, key=KEY, allowed="another name; for a changed file a new process"
        ) from None
    return added


def _digest(source: str) -> str:
    return hashlib.sha256(source.encode()).hexdigest()
