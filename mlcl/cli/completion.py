"""Candidates for the shell's completion: names of the home, keys of a job, keys that a sweep sets, metrics.

Each function returns the candidates that begin with what is typed; a file or a name that cannot be read has
none, because completion prints no errors.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import typer

from mlcl.errors import UserError
from mlcl.store import RunFolders

DEFAULT_HOME = Path("outputs")


def local_names(incomplete: str) -> list[str]:
    """The names of sweeps and tables of the home."""
    records = (record for kind in ("sweeps", "tables") for _, record in RunFolders(_home(), kind).records())
    return _beginning(incomplete, (record.name for record in records))


def job_keys(context: typer.Context, incomplete: str) -> list[str]:
    """`key.path=` for the keys of the job file that the command line names before."""
    from mlcl.config import dump_job, flatten, load_job

    try:
        job = load_job(Path(str(context.params.get("job"))), [])
    except UserError:
        return []
    return _beginning(incomplete, (f"{key}=" for key in flatten(dump_job(job))))


def trial_keys(context: typer.Context, incomplete: str) -> list[str]:
    """The keys that the trials of the named sweep set."""
    from mlcl.cli.local_runs import local_run
    from mlcl.config import flatten
    from mlcl.service.engine.ledger import Ledger

    try:
        run = local_run(_home(), str(context.params.get("sweep")))
        trials = Ledger(run.folder).counted() if run.kind == "sweep" else []
    except (UserError, OSError):
        return []
    return _beginning(incomplete, (key for trial in trials for key in flatten(trial.settings)))


def metric_names(incomplete: str) -> list[str]:
    """Every metric, and behind `val/` or `test/`."""
    from mlcl.plugins import registry

    names = list(registry("metrics"))
    return _beginning(incomplete, names + [f"{split}/{name}" for split in ("val", "test") for name in names])


def _home() -> Path:
    return Path(os.environ.get("MLCL_HOME", DEFAULT_HOME))


def _beginning(incomplete: str, candidates: Iterable[str]) -> list[str]:
    return sorted({each for each in candidates if each.startswith(incomplete)})
