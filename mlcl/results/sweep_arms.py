"""The arms of a sweep with their searches and races, and the verdicts on their confirmed trainings."""

from __future__ import annotations

import math
import re
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Annotated, Any

from pydantic import PlainSerializer

from mlcl.results.training_result import Number, RoleField, SettingResult, TrainingResult
from mlcl.significance.arms import Arm, search_deviation
from mlcl.significance.roles import Role, figure_name
from mlcl.significance.verdict import Question, Verdict, compare_arms
from mlcl.tracking import State

HEAD_WEIGHT = re.compile(r"objective\.heads\.[^.]+\.weight")
Verdicts = Annotated[
    tuple[Verdict, ...], PlainSerializer(lambda verdicts: [verdict.as_dict() for verdict in verdicts])
]


@dataclass(frozen=True)
class Entrant:
    """A setting that takes part in a race: it is trained on the race's fresh seeds.

    Attributes:
        name: The setting's name: `as written`, or the name of its trial.
        scores: The validation score on each seed of the race, NaN where the training failed.
        found: The score of its trial in the search; None for the job as written if it is no trial.
        alone: If the race chooses k-NN parameters, the search's metric on each seed before that choice.
        knn: The k, lambda and temperature that gave `scores`; lambda 0 means without neighbours.
    """

    name: str
    scores: tuple[Number, ...]
    found: float | None = None
    alone: tuple[Number, ...] = ()
    knn: Mapping[str, float] = field(default_factory=dict)

    @property
    def neighbours(self) -> str:
        """The k-NN parameters that the race chose, in words; empty if it chose none."""
        if not self.knn:
            return ""
        if not self.knn["lambda"]:
            return ", without neighbours"
        return " with " + ", ".join(f"{key} {value:g}" for key, value in self.knn.items())

    @property
    def mean(self) -> float:
        """The mean of `scores` over the seeds, NaN where a training failed."""
        return fmean(self.scores) if self.scores else math.nan


@dataclass(frozen=True)
class ArmSearch:
    """One hyperparameter search of an arm, with its race.

    Attributes:
        number: The number of the search in its arm, counted from 1.
        trials: The number of complete trials of the search.
        race: The entrants of the race, the job as written first; empty if the search has no race.
        pick: The name of the entrant with the best mean; empty where the race has not ended.
        kept: The fraction of the pick's lead over the median trial that remains on fresh seeds; see
            `mlcl.service.search.confirmation.kept_share`.
        stopped: If the search stopped early, a text on how many trials were skipped and why; else empty.
        tried: The number of complete and pruned trials of the search.
    """

    number: int
    trials: int
    race: tuple[Entrant, ...] = ()
    pick: str = ""
    kept: float | None = None
    stopped: str = ""
    tried: int = 0

    @property
    def sentence(self) -> str:
        """The outcome of the race in words; empty where no race has ended."""
        by_name = {entrant.name: entrant for entrant in self.race}
        if self.pick not in by_name:
            return ""
        job, best = self.race[0], by_name[self.pick]
        seeds = f"{len(best.scores)} fresh seed{'s' if len(best.scores) > 1 else ''}"
        if best is job:
            other_scores = ", ".join(f"{entrant.name} {entrant.mean:.4f}" for entrant in self.race[1:])
            scores = ", ".join(part for part in (f"{job.mean:.4f} on {seeds}", other_scores) if part)
            return f"use the job as written{job.neighbours}: {scores}"
        scores = f"{best.name}{best.neighbours} {best.mean:.4f} on {seeds}, {job.name} {job.mean:.4f}"
        if self.kept is None:
            return scores
        # A share outside 0 to 1 says how small the lead was, not how much of it is left.
        share = "nothing" if self.kept <= 0 else "all" if self.kept >= 1 else f"{self.kept:.0%}"
        return f"{scores}; fresh seeds keep {share} of its lead"


@dataclass(frozen=True)
class ArmResult:
    """An arm of a sweep: the model, the control or a baseline, each searched with the same budget.

    Attributes:
        name: `heads` (or `job` if the job has no heads), `control`, or the name of a baseline.
        role: Model or baseline; the control is both a control and a baseline.
        searches: The searches of the arm. For a job that was not searched, one entry with the race, or none.
    """

    name: str
    role: RoleField
    searches: tuple[ArmSearch, ...] = ()

    @property
    def sentences(self) -> list[str]:
        """A line of text for each race of the arm that has ended."""
        return self._label_lines([search.sentence for search in self.searches])

    @property
    def stops(self) -> list[str]:
        """A line of text for each search of the arm that stopped early."""
        return self._label_lines([search.stopped for search in self.searches])

    def _label_lines(self, texts: Sequence[str]) -> list[str]:
        """Returns the texts that are not empty, each preceded by the arm's name and the search's number."""
        several = len(self.searches) > 1
        names = [f"{self.name}, search {search.number}" if several else self.name for search in self.searches]
        return [f"{name}: {text}" for name, text in zip(names, texts, strict=True) if text]


def sweep_verdicts(
    settings: Iterable[SettingResult],
    score: str,
    mode: str,
    *,
    margin: float,
    rows: int,
    given: Container[str] = (),
) -> tuple[Verdict, ...]:
    """Returns the verdicts of a sweep: heads against control, then the best model against the best baseline.

    The validation metric `score` selects the best arm of each role, and one setting of each search; verdicts
    compare the same metric on test. A verdict is left out where one of its arms has no complete training.
    `margin` is the largest difference that does not matter, in the metric's units, `rows` the number of test
    rows, 0 if unknown, `given` the arms whose settings no search chose. An arm with one search has the error
    of searches that `search_deviation` assumes.
    """
    arms = _confirmed_arms(settings, score, mode, given)
    metric = score.replace("val/", "test/")

    def compare(question: Question, reference: str, treated: str) -> Verdict:
        pair = arms[reference].tested(score), arms[treated].tested(score)
        return compare_arms(*pair, question=question, metric=metric, mode=mode, margin=margin, rows=rows)

    sign = 1 if mode == "max" else -1

    def best(role: Role, candidates: Iterable[str] = arms) -> str | None:
        names = [name for name in candidates if role in arms[name].role]
        return max(names, key=lambda name: sign * arms[name].validation(score), default=None)

    model, control = best(Role.MODEL), best(Role.CONTROL)
    heads = not (model and control) or only_treated_has_heads(arms[control].params, arms[model].params)
    # The first verdict is against the control; the second one, too, if there is no other baseline.
    other_arms = [name for name in arms if Role.CONTROL not in arms[name].role]
    baseline = best(Role.BASELINE, other_arms) or control
    comparisons: tuple[tuple[Question, str | None], ...] = (
        ("heads" if heads else "settings", control),
        ("baseline", baseline),
    )
    return tuple(
        compare(question, reference, model) for question, reference in comparisons if reference and model
    )


def best_setting(
    settings: Iterable[SettingResult], score: str, mode: str, *, role: Role = Role.MODEL
) -> SettingResult | None:
    """Returns the setting of a role with the best mean on validation; None without a training."""
    return _best_setting((setting for setting in settings if role in setting.role), score, mode)


def _best_setting(settings: Iterable[SettingResult], score: str, mode: str) -> SettingResult | None:
    candidates = [setting for setting in settings if _complete_trainings(setting.seeds, score)]
    sign = 1 if mode == "max" else -1
    return max(
        candidates,
        key=lambda setting: sign * _mean_value(_complete_trainings(setting.seeds, score), score),
        default=None,
    )


def best_seed(setting: SettingResult, score: str, mode: str) -> TrainingResult:
    """Returns the complete training of a setting with the best score on validation."""
    sign = 1 if mode == "max" else -1
    return max(
        _complete_trainings(setting.seeds, score), key=lambda training: sign * _metric_value(training, score)
    )


def only_treated_has_heads(reference: Mapping[str, Any], treated: Mapping[str, Any]) -> bool:
    """Whether only the second of two jobs, given by dotted keys, has heads; True if a job is unknown."""
    return (_has_heads(treated) and not _has_heads(reference)) or not (reference and treated)


def _has_heads(job: Mapping[str, Any]) -> bool:
    """Whether a job has a head of a weight above 0, or any head if no weight is given."""
    weights = [value for key, value in job.items() if HEAD_WEIGHT.fullmatch(key)]
    heads = any(key.startswith("objective.heads.") for key in job)
    return any(float(weight) > 0 for weight in weights) if weights else heads


@dataclass(frozen=True)
class _ConfirmedArm:
    """An arm with the complete trainings of the best setting of each of its searches.

    `params` are the parameters of the first of these settings.
    """

    name: str
    role: Role
    fitted: bool
    searched: bool
    searches: tuple[tuple[TrainingResult, ...], ...]
    params: Mapping[str, Any]

    def validation(self, score: str) -> float:
        """Returns the mean score on validation: the mean over searches of their means over trainings."""
        return fmean(_mean_value(search, score) for search in self.searches)

    def tested(self, score: str) -> Arm:
        """Returns the arm with the test values of the metric whose validation values are the `score`."""
        metric = score.replace("val/", "test/")
        searches = (
            tuple(training.outcome(figure_name(metric, training.metrics)) for training in search)
            for search in self.searches
        )
        deviation = search_deviation(metric)
        return Arm(self.name, tuple(searches), self.fitted, self.searched, deviation)


def _confirmed_arms(
    settings: Iterable[SettingResult], score: str, mode: str, given_arms: Container[str]
) -> dict[str, _ConfirmedArm]:
    """Returns, by name, the arms with complete trainings, with the best setting of each search by `score`."""
    groups: dict[str, dict[int, list[SettingResult]]] = {}
    for setting in settings:
        groups.setdefault(setting.arm or setting.name, {}).setdefault(setting.search, []).append(setting)
    arms = {}
    for name, searches in groups.items():
        picks = [_best_setting(candidates, score, mode) for _, candidates in sorted(searches.items())]
        valid_picks = [pick for pick in picks if pick is not None]
        if valid_picks:
            trainings, first = (
                tuple(_complete_trainings(pick.seeds, score) for pick in valid_picks),
                valid_picks[0],
            )
            searched = bool(first.arm) and name not in given_arms
            arms[name] = _ConfirmedArm(name, first.role, first.is_fitted, searched, trainings, first.params)
    return arms


def _complete_trainings(seeds: Sequence[TrainingResult], score: str) -> tuple[TrainingResult, ...]:
    """Returns the complete trainings that have a finite score on validation and on test."""
    names = (score, score.replace("val/", "test/"))
    return tuple(
        training
        for training in seeds
        if training.state is State.COMPLETE
        and all(math.isfinite(_metric_value(training, name)) for name in names)
    )


def _metric_value(training: TrainingResult, name: str) -> float:
    return training.metrics.get(figure_name(name, training.metrics), math.nan)


def _mean_value(trainings: Sequence[TrainingResult], score: str) -> float:
    return fmean(_metric_value(training, score) for training in trainings)
