"""Runs the baselines of a job, one after the other."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mlcl.config import JobConfig, default_mode, dump_job, job_hash
from mlcl.errors import UserError
from mlcl.service.process.signals import stop_on_signal
from mlcl.service.run_job import RunReport, run_job
from mlcl.tracking import State, hide_password, tracking_uri
from mlcl.training.baseline_fits import redrawn_scores
from mlcl.training.baselines.jobs import baseline_job, fitting_baselines
from mlcl.training.events import Listener, Stopped
from mlcl.training.job_data import JobData, open_dataset


@dataclass(frozen=True)
class BaselinePlan:
    """The jobs of the baselines to fit, and the reasons why others are left out, both by baseline name."""

    jobs: dict[str, JobConfig]
    left_out: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, job: JobConfig, names: Sequence[str], home: Path) -> BaselinePlan:
        """Plans the named baselines; without names, all that can be fitted to the job's data."""
        info = open_dataset(job, home, verify=True).info
        selected_names, left_out = (list(names), dict[str, str]()) if names else fitting_baselines(job, info)
        one_process = {"train": job.train.model_copy(update={"workers": 1})}
        jobs = {name: baseline_job(job, name).model_copy(update=one_process) for name in selected_names}
        for planned_job in jobs.values():
            JobData.of(planned_job, home, verify=False)
        return cls(jobs, left_out)

    def describe(self, home: Path) -> dict[str, Any]:
        """Returns the plan as plain data, for `--dry-run`."""
        return {
            "baselines": {name: {"job_hash": job_hash(job)} for name, job in self.jobs.items()},
            "left_out": self.left_out,
            "writes": {
                "folders": str(home / "runs" / "<run id>"),
                "tracking": hide_password(tracking_uri(home)),
            },
            "job": dump_job(next(iter(self.jobs.values()))),
        }


def run_baselines(
    plan: BaselinePlan, *, home: Path, listener: Listener, announce: Callable[[str], None]
) -> dict[str, RunReport]:
    """Runs the baselines in turn, until a request to stop, and returns their reports by name.

    A baseline that fails is announced and has no report. If no baseline could be fitted, raises the last
    UserError of a baseline, or a new UserError if there is none.
    """
    reports: dict[str, RunReport] = {}
    last_error: UserError | None = None
    with stop_on_signal(announce) as stop:
        for name, job in plan.jobs.items():
            announce(f"baseline {name}")
            try:
                reports[name] = run_job(job, home=home, listener=listener, announce=announce, stop=stop)
            except (ArithmeticError, RuntimeError, UserError, ValueError) as error:
                # A run that began is recorded as FAILED; the other baselines can still be fitted.
                announce(f"{name} FAILED: {type(error).__name__}: {error}")
                last_error = error if isinstance(error, UserError) else last_error
                continue
            if reports[name].state is State.STOPPED:
                break
    if not reports:
        raise last_error or UserError("no baseline could be fitted", found=", ".join(plan.jobs))
    return reports


def best_baseline(
    plan: BaselinePlan, reports: Mapping[str, RunReport], *, home: Path, announce: Callable[[str], None]
) -> tuple[str | None, dict[str, float]]:
    """Returns the name of the best of the fitted baselines, None if none has a score, and mean scores.

    If validation rows are few, the mean scores are those of `redrawn_scores`, and the largest one decides.
    Otherwise, after a stop, or if a mean score is NaN, they are empty, and the metric on validation decides.
    """
    metric = next(iter(plan.jobs.values())).evaluation.metric
    sign = 1 if default_mode(metric) == "max" else -1
    scores = {
        name: sign * report.metrics[metric] for name, report in reports.items() if metric in report.metrics
    }
    mean_scores: dict[str, float] = {}
    if all(report.state is State.COMPLETE for report in reports.values()):
        with stop_on_signal(announce) as stop:

            def check_stop() -> None:
                if stop():
                    raise Stopped

            with suppress(Stopped):
                mean_scores = redrawn_scores({name: plan.jobs[name] for name in scores}, home, check_stop)
    if any(map(math.isnan, mean_scores.values())):
        mean_scores = {}
    ranked = mean_scores or scores
    best_name = max(ranked, key=lambda name: ranked[name], default=None)
    return best_name, {name: sign * value for name, value in mean_scores.items()}
