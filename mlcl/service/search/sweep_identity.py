"""Which sweep a command goes on with, and what a sweep keeps over all of its commands."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from mlcl.config import job_hash
from mlcl.errors import UserError
from mlcl.service.engine.ledger import Ledger
from mlcl.service.search.sweep_plan import SweepPlan
from mlcl.store import RunFolder, RunFolders
from mlcl.tracking import tracking_uri
from mlcl.tracking.provenance import submitted_id
from mlcl.tracking.uri import is_stored_uri, stored_uri
from mlcl.training.job_data import JobData


def sweep_folder(plan: SweepPlan, home: Path, identity: Mapping[str, object]) -> RunFolder:
    """The folder of the sweep with the plan's name, or a new one. Raises UserError for another sweep's."""
    folders = RunFolders(home, "sweeps")
    # A job that is resumed goes on with its own sweep, which --fresh began.
    folder = folders.find(submitted_id()) or (None if plan.fresh else folders.named(plan.name))
    if folder is None:
        return folders.new(submitted_id())
    head = Ledger(folder.path).head
    for key, value in identity.items():
        same = (
            is_stored_uri(head.get(key), tracking_uri(home), home) if key == "uri" else head.get(key) == value
        )
        if head and not same:
            raise UserError(
                f"the sweep of this name has another {NAMES[key]}",
                key="--name",
                found=plan.name,
                allowed="another --name, or --fresh to begin anew",
            )
    return folder


NAMES = {
    "job_hash": "job",
    "fingerprint": "data set",
    "scores": "score: its space has other goals, or other free keys",
    "modes": "mode",
    "prune_by": "metric to prune by",
    "free": "set of free keys",
    "scheduler": "scheduler",
    "uri": "tracking store",
}
"""How the parts of an identity are called."""


def sweep_identity(plan: SweepPlan, job_data: JobData, home: Path) -> dict[str, object]:
    """What a sweep keeps: trials that differ in one of these could not be compared, or would not be found."""
    search = plan.space.search
    return {
        "job_hash": job_hash(plan.job),
        "fingerprint": job_data.fingerprint,
        "scores": list(plan.scores),
        "modes": [goal.mode for goal in plan.space.goals],
        "prune_by": plan.space.metric,
        "free": list(plan.free),
        "scheduler": [search.scheduler, search.grace, search.reduction_factor, search.startup],
        "uri": stored_uri(tracking_uri(home), home),
    }
