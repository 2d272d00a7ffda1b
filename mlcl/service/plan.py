"""What a command would do, without doing it: the answer to `--dry-run`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mlcl.config import JobConfig, Simplex, dump_job, job_hash
from mlcl.data import EpochSampler
from mlcl.service.sweep_plan import SweepPlan, check_plan
from mlcl.service.tuning import rungs
from mlcl.tracking import Tracker
from mlcl.training.context import pick_device
from mlcl.training.files import EMBEDDINGS, MODEL, RESULT
from mlcl.training.material import Material


def plan_run(job: JobConfig, home: Path) -> dict[str, Any]:
    """The plan of one run. Checks everything; prepares the data set where that has not been done."""
    if job.train.workers == 1:
        pick_device(job.train.device)
    return _plan(Material.of(job, home)) | {
        "writes": {
            "folder": str(home / "runs" / "<run id>"),
            "files": ["run.json", "checkpoint.pt", RESULT, EMBEDDINGS, f"{MODEL}/"],
            "tracking": Tracker.uri_for(home),
        },
        "job": dump_job(job),
    }


def plan_sweep(plan: SweepPlan, home: Path) -> dict[str, Any]:
    """The plan of a sweep."""
    material = check_plan(plan, home)
    confirmations = plan.seeds * (2 + len(plan.baselines)) if plan.seeds else 0
    posthoc = {key: len(values) for key, values in plan.space.posthoc.items()}
    return {
        "sweep": {
            "trials": plan.trials,
            "confirmation_runs": confirmations,
            "score": plan.score,
            "mode": plan.space.mode,
            "sampler": plan.space.search.sampler,
            "scheduler": plan.space.search.scheduler,
            "rungs_at_epochs": rungs(plan.space, plan.search_job()),
            "most_epochs": (plan.trials + confirmations) * plan.job.train.epochs,
            "searched": {p.name: _domain(p.domain) for p in plan.space.parameters},
            "answered_after_training": posthoc,
        },
        **_plan(material),
        "writes": {
            "folder": str(home / "sweeps" / "<sweep id>"),
            "files": ["study.journal", f"trials/<run id>/{{checkpoint.pt,{RESULT},{EMBEDDINGS},{MODEL}/}}"],
            "tracking": Tracker.uri_for(home),
        },
    }


def _domain(domain: Any) -> dict[str, Any]:
    fields = dict(vars(domain))
    if isinstance(domain, Simplex):
        fields["keys"] = list(domain.keys)
    return {"kind": type(domain).__name__.lower(), **{k: _plain(v) for k, v in fields.items()}}


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _plan(material: Material) -> dict[str, Any]:
    job, info = material.job, material.dataset.info
    sampler = EpochSampler(
        len(material.train), job.train.batch_size, job.train.seed, drop_last=job.train.drop_last
    )
    return {
        "experiment": job.experiment,
        "job_hash": job_hash(job),
        "data": {
            "name": info.name,
            "fingerprint": material.fingerprint,
            "train": len(material.train),
            "validation": len(material.dataset.split("validation")),
        },
        "task": material.task,
        "training": {
            "epochs": job.train.epochs,
            "steps_per_epoch": sampler.steps_per_epoch,
            "steps": job.train.epochs * sampler.steps_per_epoch,
            "rows_per_step": job.train.batch_size * job.train.views,
            "workers": job.train.workers,
        },
    }
