"""Prepares a sweep for its report: frames of its trainings, the setting to use, and the next command."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import pandas as pd

from mlcl.config import POSTHOC, JobConfig, Space, load_job, load_space
from mlcl.config.safe_yaml import load_yaml
from mlcl.results.frame import frame_of, sweep_trainings
from mlcl.results.sweep_result import SweepResult
from mlcl.significance.verdict import Conclusion
from mlcl.store import State
from mlcl.tracking.names import space_file

MOST_SEEDS, MOST_SEARCHES = 50, 12
"""The largest numbers of seeds and searches that a suggested next command asks for."""
FIRST_SEEDS = 5
"""The number of fresh seeds in the suggested next command of a sweep without any."""
Histories = Callable[[str, str], list[tuple[int, float]]]
"""A function of a run's id and a metric's name that returns the metric's points (step, value)."""


@dataclass(frozen=True)
class SweepData:
    """A sweep with frames of its trainings, which have the columns of `frame_of`.

    `search` has the search trials that fit the latest space, `dropped` the others, `baselines` those of
    control and baselines, `races` the trainings of races, `confirmation` those of confirmed settings on fresh
    seeds. `varied` are the job's keys in which search trials differ. `history` returns the points of a metric
    of a run.
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
    races: pd.DataFrame = field(default_factory=pd.DataFrame)

    @classmethod
    def of(cls, result: SweepResult, history: Histories) -> SweepData:
        """Prepares the data of a sweep from its result."""
        job = load_job(result.job)
        space = load_space(space_file(0), job, load_yaml(result.space))
        frames = {stage: frame_of(trainings) for stage, trainings in sweep_trainings(result).items()}
        return cls(
            result, job, space, **frames, varied=_varied_columns(space, frames["search"]), history=history
        )

    @property
    def pruning_metric(self) -> str:
        """The metric that prunes trials; never one with post-hoc keys, which are chosen after a training."""
        return self.space.metric

    @property
    def chosen_keys(self) -> tuple[str, ...]:
        """The post-hoc keys that each trial chose for itself."""
        return tuple(key for key in self.result.free if key in self.search)

    @property
    def complete_trials(self) -> pd.DataFrame:
        """The complete search trials with a score."""
        trials = self.search[self.search["state"] == State.COMPLETE]
        return trials[trials["score"].notna()]

    @property
    def ranked_trials(self) -> pd.DataFrame:
        """The complete search trials ordered by score, best first; among equal scores the earliest first."""
        ascending = [self.result.mode == "min", True]
        return self.complete_trials.sort_values(["score", "number"], ascending=ascending, kind="stable")

    @property
    def best(self) -> pd.Series | None:
        """The row of the best search trial; None if no trial is complete."""
        return None if self.complete_trials.empty else self.ranked_trials.iloc[0]

    @property
    def confirmed_names(self) -> dict[str, str]:
        """The names of the confirmed settings with a trial's job or label, keyed by the trial's label."""
        trials, settings = self.result.trials, self.result.settings
        names = {key: setting.name for setting in settings for key in (setting.job_hash, setting.trial)}
        pairs = ((trial.label, names.get(trial.job_hash, names.get(trial.label))) for trial in trials)
        return {label: name for label, name in pairs if name is not None}

    @property
    def complete_runs(self) -> dict[str, list[str]]:
        """The ids of each confirmed setting's complete runs; without any, the best trial's run.

        Runs that MLflow does not have yet are left out.
        """
        trainings = self.confirmation[self.confirmation["state"] == State.COMPLETE]
        if trainings.empty:
            trainings = self.ranked_trials.head(1)
        trainings = trainings[trainings["run_id"].notna()]
        return {str(name): list(runs["run_id"]) for name, runs in trainings.groupby("setting", sort=False)}


def _varied_columns(space: Space, search: pd.DataFrame) -> tuple[str, ...]:
    """Returns the columns of `search` for the keys that the space varies, and for keys nested in these."""
    columns: list[str] = []
    for key in (key for parameter in space.parameters for key in parameter.keys):
        nested_columns = [name for name in search.columns if name.startswith(f"{key}.") and "/" not in name]
        varied_columns = [name for name in nested_columns if search[name].nunique(dropna=False) > 1]
        columns += nested_columns if f"{key}.0" in nested_columns else varied_columns or [key]
    return tuple(name for name in dict.fromkeys(columns) if name in search.columns)


def setting_to_use(data: SweepData) -> str | None:
    """Returns the name of the recommended setting or, without fresh seeds, of the best trial; else None."""
    if (best := data.result.recommended) is not None:
        return best.name
    if data.best is None:
        return None
    label, confirmation = str(data.best["setting"]), data.confirmation
    name = data.confirmed_names.get(label, label)
    is_complete = (confirmation["setting"] == name) & (confirmation["state"] == State.COMPLETE)
    return name if is_complete.any() else label


def headline_metrics(runs: pd.DataFrame, score: str) -> list[str]:
    """Returns the columns with the score's metric on test, or on validation if no test metric was logged.

    There may be five: with the grid's best k-NN parameters (`knn_best/`), with those of the job (`knn/`), of
    the ensemble (`ensemble/`), of the classifier alone, and of the linear probe (`probe/`). The column of the
    score itself comes first.
    """
    metric = score.rpartition("/")[2]
    for split in ("test", "val"):
        candidates = [
            f"{prefix}{split}/{metric}" for prefix in ("knn_best/", "knn/", "ensemble/", "", "probe/")
        ]
        columns = [name for name in candidates if name in runs.columns]
        if columns:
            score_name = score.replace("val/", f"{split}/")
            return sorted(columns, key=lambda name: name != score_name)
    return []


def chosen_settings(data: SweepData, setting: str, knn: str = "") -> dict[str, object]:
    """Returns the values of a setting's varied keys, and its k-NN parameters.

    If a race chose the k-NN parameters, these are returned. Otherwise they are `knn`, a text with the
    parameters of the best mean over fresh seeds, or if it is empty the parameters that most seeds chose.
    """
    seeds, trials = (
        runs[(runs["setting"] == setting) & (runs["state"] == State.COMPLETE)]
        for runs in (data.confirmation, data.search)
    )
    runs = seeds if len(seeds) else trials
    values = {key: runs[key].iloc[0] for key in data.varied if key in runs and pd.notna(runs[key].iloc[0])}
    raced = data.result.raced_neighbours  # a race chooses once for all seeds
    posthoc = [key for key in (POSTHOC if raced else data.chosen_keys) if key in runs]
    choices = Counter(runs[posthoc].dropna().itertuples(index=False, name=None)) if posthoc else Counter()
    if knn and not raced:
        values["neighbours"] = knn
    elif choices:
        values |= dict(zip(posthoc, choices.most_common(1)[0][0], strict=True))
    return values


def next_command(data: SweepData) -> tuple[str, str]:
    """Returns the suggested next step in words, and its command with JOB and SPACE for the sweep's files."""
    name, request, verdicts = data.result.name, data.result.asked, data.result.verdicts
    trials, seeds = (request.trials, request.seeds) if request else (0, 0)
    sweep = f"mlcl sweep JOB SPACE --name {name}"
    flag = "" if request is None or request.searches == 3 else f" --searches {request.searches}"
    if not seeds:
        return "Train the best on fresh seeds", f"{sweep} --trials {trials} --seeds {FIRST_SEEDS}{flag}"
    answers = [verdict.answer for verdict in verdicts]
    if not answers or (answers[-1] is Conclusion.HELPS and Conclusion.HURTS not in answers):
        return "Export the model", f"mlcl export {name}"
    if verdicts[0].search_deviation and verdicts[0].answer is Conclusion.CANNOT_TELL:
        return "Two more searches", f"{sweep} --trials {3 * trials} --seeds {3 * seeds} --searches 3"
    decider = verdicts[0].decider
    if verdicts[0].answer is Conclusion.CANNOT_TELL and decider is not None and decider.about:
        if decider.what == "seeds" and decider.about <= MOST_SEEDS:
            return "More seeds to decide", f"{sweep} --trials {trials} --seeds {decider.about}{flag}"
        if decider.what == "searches" and request and decider.about <= MOST_SEARCHES:
            times = decider.about / request.searches
            options = f"--trials {math.ceil(trials * times)} --seeds {math.ceil(seeds * times)}"
            return "More searches to decide", f"{sweep} {options} --searches {decider.about}"
    return "Search on", f"{sweep} --trials {2 * trials} --seeds {seeds}{flag}"
