"""The home of results, sources of jobs, and lines of progress, which all functions of `mlcl.api` share."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlcl.config import JobConfig, dump_job, load_job, read_job
from mlcl.config.loader import plain_data
from mlcl.config.section import LONGEST_NAME
from mlcl.errors import UserError

if TYPE_CHECKING:
    from mlcl.models.encoder import Reads

JobSource = str | Path | Mapping[str, Any] | JobConfig
"""A job file, a mapping with a job's keys, or a loaded job."""
Overrides = Mapping[str, Any] | None
"""Dotted keys of a job with their values."""
Say = Callable[[str], None] | None
"""A function that is called with each line of progress; None prints nothing."""


def print_line(text: str) -> None:
    """Prints a line to standard error, which notebooks show below the cell.

    The line goes to the original standard error, even while that of libraries is redirected to a file.
    """
    from mlcl.service.process.stderr import own_stderr

    print(text, file=own_stderr() or sys.stderr, flush=True)


def home_of(home: str | Path | None) -> Path:
    """Returns the folder of results: `home`, else MLCL_HOME, else `outputs`. Raises UserError for a file."""
    if not isinstance(home, str | os.PathLike | None):
        raise UserError("no folder", key="home", found=repr(home)[:60], allowed="a path")
    folder = Path(home if home is not None else os.environ.get("MLCL_HOME", "outputs")).expanduser()
    if folder.is_file():
        raise UserError("is a file", key="home", found=folder, allowed="a folder, which need not exist")
    return folder


def checked_overrides(overrides: Overrides) -> dict[str, Any]:
    """Returns overrides as a dict, empty for None. Raises UserError for anything but a mapping of keys."""
    mapping = {} if overrides is None else overrides
    if not isinstance(mapping, Mapping) or not all(isinstance(key, str) for key in mapping):
        allowed = "a mapping such as {'train.epochs': 30}"
        raise UserError("no overrides", key="overrides", found=repr(overrides)[:60], allowed=allowed)
    result: dict[str, Any] = plain_data(mapping)
    return result


def with_encoder(
    encoder: Any,
    tokenizer: Any,
    source: JobSource,
    overrides: Overrides,
    home: Path,
    say: Callable[[str], None],
    *,
    collate: Any = None,
    elsewhere: bool = False,
) -> dict[str, Any]:
    """Returns the overrides, with a caller's module as the job's encoder if one is given.

    The encoder is built once, to check it. `elsewhere` says that the job's data are on another machine.
    """
    from mlcl.api.caller_encoder import caller_encoder_of, modality_of

    user_overrides = checked_overrides(overrides)
    if encoder is None and tokenizer is None and collate is None:
        return user_overrides
    written_job = read_job(_to_plain_source(source)).with_overrides(user_overrides)
    section = written_job.tree.get("encoder") or {}
    modality: Reads | None = "vectors" if list(section.get("inputs") or ()) == ["column"] else None
    if collate is not None and "name" in section:
        modality = modality_of(job_of(source, user_overrides))
    caller_encoder = caller_encoder_of(encoder, tokenizer, home, modality=modality, collate=collate)
    changes = caller_encoder.overrides(written_job.with_plugins(written_job.tree))
    all_overrides = {"encoder": changes["encoder"], **user_overrides, "plugins": changes["plugins"]}
    caller_encoder.check(job_of(source, all_overrides), None if elsewhere else home, say)
    return all_overrides


def job_of(source: JobSource, overrides: Overrides = None) -> JobConfig:
    """Returns the checked job of a source with overrides. Raises UserError for an invalid job."""
    return load_job(_to_plain_source(source), overrides or {})


def _to_plain_source(source: JobSource) -> str | Path | Mapping[str, Any]:
    """Returns a loaded job as plain data, without defaults that depend on keys that overrides may set."""
    if not isinstance(source, JobConfig):
        return source
    tree = dump_job(source)
    if "views" not in source.train.model_fields_set:
        del tree["train"]["views"]
    if "metric" not in source.evaluation.model_fields_set:
        del tree["evaluation"]["metric"]
    return tree


def baseline_files(baselines: Sequence[str | Path] | None) -> Sequence[str | Path]:
    """Returns the job files of the option `baselines`, none for None. Raises UserError for a single name."""
    if isinstance(baselines, (str, Path, bool)):
        allowed = "a list of job files; fitted=False leaves out the baselines of scikit-learn"
        raise UserError("no list", key="baselines", found=baselines, allowed=allowed)
    return baselines or ()


def check_name(name: Any, key: str) -> None:
    """Raises UserError, which names `key`, for a name that a sweep or comparison cannot have; allows None."""
    if name is None:
        return
    is_name = isinstance(name, str) and re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name)
    if not is_name or len(name) > LONGEST_NAME:
        allowed = f"at most {LONGEST_NAME} letters, digits and . _ -, first a letter or digit"
        raise UserError("not a name", key=key, found=name, allowed=allowed)


def say_of(progress: Say) -> Callable[[str], None]:
    """Returns `progress`, or for None a function that prints nothing. Raises UserError for anything else."""
    if progress and not callable(progress):
        allowed = "a function of a text, or None"
        raise UserError("no function", key="progress", found=repr(progress), allowed=allowed)
    return progress or (lambda _: None)
