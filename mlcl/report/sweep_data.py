"""A sweep, read from MLflow: what was asked, and its trainings."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd
from mlflow.entities import Run

from mlcl.config import POSTHOC, Goal, JobConfig, Space, load_job, load_space
from mlcl.report.compared_settings import seed_groups, setting_label
from mlcl.report.frame import LabelledRun, frame_of
from mlcl.report.runs import Runs, kind
from mlcl.tracking import State
from mlcl.tracking.names import SWEEP_MODE, SWEEP_SCORE, Tag, space_file
from mlcl.training.run_files import JOB


@dataclass(frozen=True)
class SweepData:
    """A sweep. `search`, `dropped`, `baselines` and `confirmation` are frames of trainings, see `frame_of`.

    `search` has the search trials, `dropped` those that do not fit the latest space, `baselines` those of the
    searches of baselines. `varied` are the job's keys in which search trials differ. `confirmed`: the label
    of the confirmed setting that has a trial's job, by the trial's run id. `groups`: the id of the run that
    holds the seeds of a setting, by label. `history` gives the points (step, value) of a metric by run id and
    name.
    """

    run: Run
    job: JobConfig
    space: Space
    space_text: str
    search: pd.DataFrame
    confirmation: pd.DataFrame
    varied: tuple[str, ...]
    dropped: pd.DataFrame
    baselines: pd.DataFrame
    confirmed: Mapping[str, str]
    groups: Mapping[str, str]
    history: Callable[[str, str], list[tuple[int, float]]]

    @property
    def name(self) -> str:
        """The name of the sweep."""
        return str(self.run.data.tags[Tag.NAME])

    @property
    def score(self) -> str:
        """The metric that ranks trials."""
        return str(self.run.data.params[SWEEP_SCORE])

    @property
    def mode(self) -> str:
        """max or min, for the score."""
        return str(self.run.data.params[SWEEP_MODE])

    @property
    def goals(self) -> tuple[Goal, ...]:
        """All metrics that are searched for; without a word on them, the score."""
        told = json.loads(self.run.data.tags.get(Tag.SWEEP_GOALS, "[]")) or [[self.score, self.mode]]
        return tuple(Goal(metric, mode) for metric, mode in told)

    @property
    def conclusions(self) -> tuple[str, ...]:
        """Whether the best model beats the best baseline, as its command said; empty where it did not."""
        said = self.run.data.tags.get(Tag.SWEEP_VERDICT)
        return (said,) if said else ()

    @property
    def pruned_by(self) -> str:
        """The metric that prunes trials: post-hoc keys are not chosen yet during training."""
        return self.space.metric

    @property
    def answered(self) -> tuple[str, ...]:
        """The post-hoc keys of the trials: all of them where the space names one."""
        return tuple(key for key in POSTHOC if self.space.posthoc and key in self.search)

    @property
    def complete(self) -> pd.DataFrame:
        """The complete search trials with a score."""
        done = self.search[self.search["state"] == State.COMPLETE]
        return done[done["score"].notna()]

    @property
    def best_first(self) -> pd.DataFrame:
        """The complete search trials from the best on, of equals the earliest first."""
        ascending = [self.mode == "min", True]
        return self.complete.sort_values(["score", "number"], ascending=ascending, kind="stable")

    @property
    def best(self) -> pd.Series | None:
        """The best search trial; None for none."""
        return None if self.complete.empty else self.best_first.iloc[0]

    @property
    def complete_runs(self) -> dict[str, list[str]]:
        """The ids of the complete runs of each confirmed setting; without one, that of the best trial."""
        done = self.confirmation[self.confirmation["state"] == State.COMPLETE]
        if done.empty:
            done = self.best_first.head(1)
        return {str(name): list(runs["run_id"]) for name, runs in done.groupby("setting", sort=False)}


def read_sweep(runs: Runs, sweep: Run) -> SweepData:
    """Reads a sweep with its trainings. Raises UserError where its artifacts are gone."""
    generation = int(sweep.data.tags.get(Tag.SWEEP_GENERATION, "0"))
    job_text, space_text = runs.text(sweep, JOB), runs.text(sweep, space_file(generation))
    job, space = _parsed(job_text, space_text)
    trials, dropped = search_runs(runs, sweep)
    groups = seed_groups(runs, sweep)
    search = frame_of(trials)
    return SweepData(
        run=sweep,
        job=job,
        space=space,
        space_text=space_text,
        search=search,
        confirmation=frame_of(confirmation_runs(runs, sweep)),
        varied=_varied(space, search),
        dropped=frame_of(dropped),
        baselines=frame_of(baseline_runs(runs, sweep)),
        confirmed=_confirmed(groups, [run for _, _, run in trials]),
        groups={setting_label(group): str(group.info.run_id) for group in groups},
        history=runs.history,
    )


def search_runs(runs: Runs, sweep: Run) -> tuple[list[LabelledRun], list[LabelledRun]]:
    """The search trials by number: those that fit the latest space, then the dropped ones."""
    kept, dropped = list[LabelledRun](), list[LabelledRun]()
    trials = [run for run in _trials(runs, sweep) if Tag.SCOPE not in run.data.tags]
    for run in sorted(trials, key=lambda run: int(run.data.tags[Tag.TRIAL])):
        its = dropped if run.data.tags.get(Tag.DROPPED) else kept
        its.append(("search", str(run.info.run_name), run))
    return kept, dropped


def baseline_runs(runs: Runs, sweep: Run) -> list[LabelledRun]:
    """The search trials of baselines, search by search, by number."""
    trials = [run for run in _trials(runs, sweep) if Tag.SCOPE in run.data.tags]
    ordered = sorted(trials, key=lambda run: (run.data.tags[Tag.SCOPE], int(run.data.tags[Tag.TRIAL])))
    return [("baseline search", str(run.info.run_name), run) for run in ordered]


def _trials(runs: Runs, sweep: Run) -> list[Run]:
    return [run for run in runs.children(sweep) if kind(run) == "trial"]


def confirmation_runs(runs: Runs, sweep: Run) -> list[LabelledRun]:
    """The trainings on fresh seeds by setting and seed."""
    return [
        ("confirmation", setting_label(group), run)
        for group in seed_groups(runs, sweep)
        for run in sorted(runs.children(group), key=lambda run: int(run.data.tags[Tag.SEED]))
    ]


def trainings_of(runs: Runs, sweep: Run) -> list[LabelledRun]:
    """Search trials, those of baselines, and confirmations."""
    return [*search_runs(runs, sweep)[0], *baseline_runs(runs, sweep), *confirmation_runs(runs, sweep)]


def _confirmed(groups: Sequence[Run], trials: Sequence[Run]) -> dict[str, str]:
    """The label of the confirmed setting with a trial's job, by the trial's run id."""
    names = {run.data.tags.get(Tag.JOB_HASH): setting_label(run) for run in groups}
    jobs = {str(run.info.run_id): run.data.tags.get(Tag.JOB_HASH) for run in trials}
    return {id: names[job] for id, job in jobs.items() if job in names}


def _parsed(job_text: str, space_text: str) -> tuple[JobConfig, Space]:
    with TemporaryDirectory(prefix="mlcl-") as folder:
        files = [Path(folder, name) for name in (JOB, space_file(0))]
        for file, text in zip(files, (job_text, space_text), strict=True):
            file.write_text(text, encoding="utf-8")
        job = load_job(files[0])
        return job, load_space(files[1], job)


def _varied(space: Space, search: pd.DataFrame) -> tuple[str, ...]:
    """The columns of the keys that the space draws: the items of a list, the differing keys of a section."""
    found: list[str] = []
    for key in (key for parameter in space.parameters for key in parameter.keys):
        inside = [name for name in search.columns if name.startswith(f"{key}.") and "/" not in name]
        differing = [name for name in inside if search[name].nunique(dropna=False) > 1]
        found += inside if f"{key}.0" in inside else differing or [key]
    return tuple(name for name in dict.fromkeys(found) if name in search.columns)
