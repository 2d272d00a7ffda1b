"""Reads and runs the Python files with plugins that a job names: `plugins: [my_loss.py]`.

Loading a job runs its plugin files, as `import` runs a module: load a job with plugins, or a model that was
exported from such a job, only from a source whose programs you would run. Opening an exported model runs them
only if they declare its encoder or a baseline. Commands that only read (list, status, compare, report,
doctor) run none.

A job contains the texts of its plugin files once it has been read. The texts are passed to every process that
loads the job, are stored with the run, and are part of the job's hash.
"""

from __future__ import annotations

import hashlib
import linecache
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from pydantic import Field, model_validator
from typing_extensions import Self

from mlcl.config.section import Section
from mlcl.errors import UserError
from mlcl.plugins import REGISTRIES, PluginError, files_are_run, registry

KEY = "plugins"
MOST_BYTES = 1 << 16
MODULE, TEXT = "mlcl_plugin_", "__text__"
"""The beginning of the names of plugin files' modules, and the attribute with the text of each."""


class PluginFile(Section):
    """A plugin file with its text. `path`, from which it was read, is not stored with the job."""

    file: str
    sha256: str
    source: str
    path: Path | None = Field(None, exclude=True)

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if _hash_source(self.source) != self.sha256:
            raise ValueError(f"{self.file}: the text has another SHA-256")
        return self

    @property
    def label(self) -> str:
        """The name of the file and the first digits of the SHA-256 of its text."""
        return f"{self.file} sha256:{self.sha256[:8]}"


def read_plugins(tree: Mapping[str, Any], job_file: Path | None) -> dict[str, Any]:
    """Returns a job's tree in which the content of each file replaces its path in `plugins`. Runs no file.

    Paths are relative to the folder of `job_file`, or without it to the working directory. Raises UserError
    for `plugins` that are no list, a path that does not end in `.py` or leads out of both folders, and a file
    that is missing, too large or unreadable.
    """
    files = tree.get(KEY, ())
    if not isinstance(files, (list, tuple)):  # later the unknown names of its plugins would be reported first
        raise UserError(
            "is not a list of files", file=job_file, key=KEY, found=files, allowed="[FILE.py, ...]"
        )
    contents = [_read(file, job_file) if isinstance(file, str) else file for file in files]
    return {**tree, KEY: contents} if KEY in tree else dict(tree)


def _read(name: str, job_file: Path | None) -> dict[str, Any]:
    def refusal(problem: str, found: str = name, allowed: str | None = None) -> UserError:
        return UserError(problem, file=job_file, key=KEY, found=found, allowed=allowed)

    folder = Path.cwd() if job_file is None else job_file.parent
    path = (folder / name).resolve()
    if path.suffix != ".py" or not name.isprintable():
        raise refusal("is no Python file", allowed="a path that ends in .py")
    inside = any(path.is_relative_to(root.resolve()) for root in (folder, Path.cwd()))
    if Path(name).is_absolute() or not inside:
        allowed = "a relative path, below the job file's folder or the working directory"
        raise refusal("lies elsewhere", allowed=allowed)
    if not path.is_file():
        raise refusal("no such file")
    try:
        content = path.read_bytes()
        source = content.decode("utf-8")
    except (OSError, ValueError) as error:
        raise refusal("cannot be read", f"{name}: {error}") from None
    if len(content) > MOST_BYTES:
        raise refusal("is too large", f"{name}: {len(content):,} bytes", f"{MOST_BYTES:,} bytes")
    return {"file": name, "sha256": _hash_source(source), "source": source, "path": str(path)}


def run_plugins(plugins: Any) -> None:
    """Runs a job's plugin files, each text once per process, and registers their plugins.

    Does nothing in the context `only_reading`. Raises UserError for a file that fails, or declares no plugin
    or a name that is taken.
    """
    if isinstance(plugins, (list, tuple)) and files_are_run():
        for plugin in plugins:
            if isinstance(plugin, (PluginFile, Mapping)):
                _run(PluginFile.model_validate(plugin))


def text_that_ran(file: str) -> str | None:
    """Returns the text of the plugin file of this name that this process has run; None if it has run none."""
    modules = [module for name, module in sys.modules.items() if name.startswith(MODULE)]
    return next((vars(module)[TEXT] for module in modules if module.__file__ == file), None)


def _run(plugin: PluginFile) -> None:
    name = f"{MODULE}{plugin.sha256}"
    if name in sys.modules:
        return
    module = sys.modules[name] = ModuleType(name)
    module.__file__ = plugin.file
    vars(module)[TEXT] = plugin.source
    # Tracebacks show these lines, since the text may have been read from a stored job.
    lines = plugin.source.splitlines(keepends=True)
    linecache.cache[plugin.file] = (len(plugin.source), None, lines, plugin.file)
    try:
        _execute(plugin, module)
        _register(plugin, module)
    except BaseException as error:
        del sys.modules[name]
        if isinstance(error, UserError):
            raise error.with_fields(file=plugin.file, key=KEY) from error.__cause__
        raise


def _execute(plugin: PluginFile, module: ModuleType) -> None:
    try:
        exec(compile(plugin.source, plugin.file, "exec"), module.__dict__)
    except SyntaxError as error:
        raise UserError("is no valid Python", found=f"line {error.lineno}: {error.msg}") from None
    except (Exception, SystemExit) as error:
        raise UserError("fails when it is run", found=f"{type(error).__name__}: {error}") from error


def _register(plugin: PluginFile, module: ModuleType) -> None:
    """Registers all plugins of a module, or none of them if a name is taken."""
    names: list[str] = []
    try:
        for plural in REGISTRIES:
            names += registry(plural).add(module, plugin.label)
    except PluginError as error:
        for plural in REGISTRIES:
            registry(plural).remove(plugin.label)
        raise UserError(error.problem, allowed="another name; for a changed file a new process") from None
    if not names:
        raise UserError("declares no plugin", found="nothing", allowed=list(REGISTRIES))


def _hash_source(source: str) -> str:
    return hashlib.sha256(source.encode()).hexdigest()
