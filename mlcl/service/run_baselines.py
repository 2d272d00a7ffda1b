"""Runs the baselines of a job, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mlcl.config import JobConfig, dump_job, job_hash
from mlcl.errors import UserError
from mlcl.service.process.signals import stop_on_signal
from mlcl.service.run_job import RunReport, run_job
from mlcl.tracking import State, shown, tracking_uri
from mlcl.training.baselines.jobs import baseline_job, fitting_baselines
from mlcl.training.events import Listener
from mlcl.training.job_data import JobData, open_dataset


@dataclass(frozen=True)
class BaselinePlan:
    """The jobs of baselines by name, and the names of those left out with the reasons."""

    jobs: dict[str, JobConfig]
    left_out: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, job: JobConfig, names: Sequence[str], home: Path) -> BaselinePlan:
        """Plans the named baselines; without names, all that can be fitted to the job's data.

        Raises UserError for a named baseline that cannot be fitted.
        """
        info = open_dataset(job, home, verify=True).info
        found, left_out = (list(names), dict[str, str]()) if names else fitting_baselines(job, info)
        one_process = {"train": job.train.model_copy(update={"workers": 1})}
        jobs = {name: baseline_job(job, name).model_copy(update=one_process) for name in found}
        for each in jobs.values():
            JobData.of(each, home, verify=False)
        return cls(jobs, left_out)

    def described(self, home: Path) -> dict[str, Any]:
        """Returns the plan as plain data, for `--dry-run`."""
        return {
            "baselines": {name: {"job_hash": job_hash(job)} for name, job in self.jobs.items()},
            "left_out": self.left_out,
            "writes": {"folders": str(home / "runs" / "<run id>"), "tracking": shown(tracking_uri(home))},
            "job": dump_job(next(iter(self.jobs.values()))),
        }


def run_baselines(
    plan: BaselinePlan, *, home: Path, listener: Listener, announce: Callable[[str], None]
) -> dict[str, RunReport]:
    """Runs the baselines one after the other, until a request to stop, and returns their reports by name.

    A baseline that fails is announced and has no report. Raises UserError if there is no report.
    """
    reports: dict[str, RunReport] = {}
    with stop_on_signal(announce) as stop:
        for name, job in plan.jobs.items():
            announce(f"baseline {name}")
            try:
                reports[name] = run_job(job, home=home, listener=listener, announce=announce, stop=stop)
            except (ArithmeticError, RuntimeError, ValueError) as error:
                # Its run says FAILED with the reason: the others are no worse for it.
                announce(f"{name} FAILED: {type(error).__name__}: {error}")
                continue
            if reports[name].state is State.STOPPED:
                break
    if not reports:
        raise UserError("no baseline could be fitted", found=", ".join(plan.jobs))
    return reports
