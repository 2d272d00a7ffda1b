"""A sweep as its report needs it: frames of its trainings, its conclusion, and what to do next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

import pandas as pd

from mlcl.config import POSTHOC, Goal, JobConfig, Space, load_job, load_space
from mlcl.config.safe_yaml import load_yaml
from mlcl.errors import UserError
from mlcl.results.comparison import Comparison, compare_settings
from mlcl.results.frame import frame_of, sweep_trainings
from mlcl.results.settings import ComparedSetting, confirmed_settings
from mlcl.results.sweep_result import SweepResult
from mlcl.significance.baseline_verdict import BaselineVerdict, compare_baselines
from mlcl.store import State
from mlcl.tracking.names import space_file

MOST_SEEDS = 50
"""Most seeds in a next command."""
FIRST_SEEDS = 5
"""Fresh seeds in a next command where there are none yet."""
Histories = Callable[[str, str], list[tuple[int, float]]]
"""Gives the points (step, value) of a metric by the run's id and the metric's name."""


@dataclass(frozen=True)
class SweepData:
    """A sweep with frames of its trainings, see `frame_of`.

    Attributes:
        search: The search trials; `dropped` those that do not fit the latest space.
        baselines: The trials of the searches of baselines.
        confirmation: The trainings on fresh seeds.
        varied: The job's keys in which search trials differ.
        history: Gives the points of a metric of a run.
    """

    result: SweepResult
    job: JobConfig
    space: Space
    search: pd.DataFrame
    dropped: pd.DataFrame
    baselines: pd.DataFrame
    confirmation: pd.DataFrame
    varied: tuple[str, ...]
    history: Histories

    @classmethod
    def of(cls, result: SweepResult, history: Histories) -> SweepData:
        """The data of a sweep."""
        job = load_job(result.job)
        space = load_space(space_file(0), job, load_yaml(result.space))
        frames = {stage: frame_of(trainings) for stage, trainings in sweep_trainings(result).items()}
        return cls(result, job, space, **frames, varied=_varied(space, frames["search"]), history=history)

    @property
    def score(self) -> str:
        """The metric that ranks trials."""
        return self.result.score

    @property
    def mode(self) -> str:
        """max or min, for the score."""
        return self.result.mode

    @property
    def goals(self) -> tuple[Goal, ...]:
        """All metrics that are searched for."""
        return self.result.goals

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
    def confirmed(self) -> dict[str, str]:
        """The name of the confirmed setting with a trial's job, by the trial's label."""
        names = {setting.job_hash: setting.name for setting in self.result.settings}
        return {each.label: names[each.job_hash] for each in self.result.trials if each.job_hash in names}

    @property
    def complete_runs(self) -> dict[str, list[str]]:
        """The ids of the complete runs of each confirmed setting; without one, that of the best trial."""
        done = self.confirmation[self.confirmation["state"] == State.COMPLETE]
        if done.empty:
            done = self.best_first.head(1)
        return {str(name): list(runs["run_id"]) for name, runs in done.groupby("setting", sort=False)}


def _varied(space: Space, search: pd.DataFrame) -> tuple[str, ...]:
    """The columns of the keys that the space draws: the items of a list, the differing keys of a section."""
    found: list[str] = []
    for key in (key for parameter in space.parameters for key in parameter.keys):
        inside = [name for name in search.columns if name.startswith(f"{key}.") and "/" not in name]
        differing = [name for name in inside if search[name].nunique(dropna=False) > 1]
        found += inside if f"{key}.0" in inside else differing or [key]
    return tuple(name for name in dict.fromkeys(found) if name in search.columns)


@dataclass(frozen=True)
class SweepConclusion:
    """The confirmed settings, the best baseline first, and how they compare.

    `setting` is the name of the one to use: the better one of the best model and the best baseline where
    that is decided, else the best model; of a sweep without fresh seeds its best trial. None where no trial
    is complete. `problem` says why nothing could be compared.
    """

    settings: tuple[ComparedSetting, ...]
    setting: str | None
    verdict: BaselineVerdict | None
    comparison: Comparison | None
    problem: str = ""

    @classmethod
    def of(cls, data: SweepData) -> SweepConclusion:
        """The conclusion from the confirmation of a sweep."""
        found = [each for each in confirmed_settings(data.result, data.result.name) if each.runs]
        metric = next(iter(headline_metrics(data.confirmation, data.score)), "")
        contenders = [
            replace(each.contender(data.score), label=each.name) for each in data.result.confirmations
        ]
        verdict = compare_baselines(contenders, f"test/{metric.rpartition('/')[2]}", data.mode)
        reference = "" if verdict is None else verdict.baseline
        settings = sorted(found, key=lambda each: each.label != reference)
        comparison, problem = None, ""
        if len(settings) > 1:
            try:
                comparison = compare_settings(settings)
            except UserError as error:
                problem = f"No test: {error.line()}."
        return cls(tuple(settings), _setting_to_use(data, verdict), verdict, comparison, problem)


def _setting_to_use(data: SweepData, verdict: BaselineVerdict | None) -> str | None:
    if verdict is not None:
        return verdict.baseline if verdict.result == "loses to" else verdict.model
    if data.best is None:
        return None
    label = str(data.best["setting"])
    return data.confirmed.get(label, label)


def headline_metrics(runs: pd.DataFrame, score: str) -> list[str]:
    """The columns with the score's metric on test, or on validation where nothing was tested.

    There may be four: with the neighbours of the grid, with those of the job, without, and of the probe. The
    score's own column comes first.
    """
    metric = score.rpartition("/")[2]
    for split in ("test", "val"):
        found = [f"{prefix}{split}/{metric}" for prefix in ("knn_best/", "knn/", "", "probe/")]
        there = [name for name in found if name in runs.columns]
        if there:
            own = score.replace("val/", f"{split}/")
            return sorted(there, key=lambda name: name != own)
    return []


def chosen_settings(data: SweepData, setting: str, knn: str = "") -> dict[str, object]:
    """The values of the varied keys of a setting, and one choice of its neighbours.

    `knn` is the choice by the mean over fresh seeds; without it, the one that most seeds made.
    """
    fresh, searched = (
        runs[(runs["setting"] == setting) & (runs["state"] == State.COMPLETE)]
        for runs in (data.confirmation, data.search)
    )
    its = fresh if len(fresh) else searched
    found = {key: its[key].iloc[0] for key in data.varied if key in its and pd.notna(its[key].iloc[0])}
    answered = [key for key in data.answered if key in its]
    choices = Counter(its[answered].dropna().itertuples(index=False, name=None)) if answered else Counter()
    if knn:
        found["neighbours"] = knn
    elif choices:
        found |= dict(zip(answered, choices.most_common(1)[0][0], strict=True))
    return found


def next_command(data: SweepData, conclusion: SweepConclusion) -> tuple[str, str]:
    """The next step in words, and its command, in which JOB and SPACE stand for the sweep's files."""
    name, asked, verdict = data.result.name, data.result.asked, conclusion.verdict
    trials, seeds = (asked.trials, asked.seeds) if asked else (0, 0)
    sweep = f"mlcl sweep JOB SPACE --name {name}"
    if not seeds:
        return "Train the best on fresh seeds", f"{sweep} --trials {trials} --seeds {FIRST_SEEDS}"
    if verdict is not None and verdict.paired is not None and verdict.result == "undecided":
        further = verdict.paired.further_seeds()
        if further is not None and seeds + further <= MOST_SEEDS:
            return "More seeds to decide", f"{sweep} --trials {trials} --seeds {seeds + further}"
    if verdict is None or verdict.result == "beats":
        return "Export the model", f"mlcl export {name}"
    return "Search on", f"{sweep} --trials {2 * trials} --seeds {seeds}"
