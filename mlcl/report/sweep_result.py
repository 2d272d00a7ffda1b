"""What a sweep came to: the verdict, what to use, and what to do next."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

import pandas as pd

from mlcl.errors import UserError
from mlcl.report.compared_settings import AS_WRITTEN, FOUND, ComparedSetting, confirmed_settings
from mlcl.report.comparison import Comparison, compare_settings, is_fitted
from mlcl.report.runs import Runs
from mlcl.report.sweep_data import SweepData
from mlcl.report.sweep_tables import headline_metrics
from mlcl.significance.baseline_verdict import BaselineVerdict, Contender, Role, compare_baselines
from mlcl.tracking import State
from mlcl.tracking.names import Tag

MOST_SEEDS = 50
"""Most seeds in a next command."""
FIRST_SEEDS = 5
"""Fresh seeds in a next command where there are none yet."""
_MODEL = re.compile(rf"{AS_WRITTEN}|best found|no\. \d+ found|{FOUND.pattern}")


@dataclass(frozen=True)
class SweepResult:
    """The confirmed settings, the best baseline first, and how they compare.

    `setting` is the label of the one to use: the better one of the best model and the best baseline where
    that is decided, else the best model; of a sweep without fresh seeds its best trial. None where no trial
    is complete. `problem` says why nothing could be compared.
    """

    settings: tuple[ComparedSetting, ...]
    setting: str | None
    verdict: BaselineVerdict | None
    comparison: Comparison | None
    problem: str = ""


def sweep_result(runs: Runs, data: SweepData) -> SweepResult:
    """Reads the result of a sweep from its confirmation."""
    found = [each for each in confirmed_settings(runs, data.run, data.name) if each.runs]
    metric = next(iter(headline_metrics(data.confirmation, data.score)), "")
    contenders = [contender(each, data.score) for each in found if each.names != "no longer"]
    verdict = compare_baselines(contenders, f"test/{metric.rpartition('/')[2]}", data.mode)
    reference = "" if verdict is None else verdict.baseline
    settings = sorted(found, key=lambda each: each.label != reference)
    comparison, problem = None, ""
    if len(settings) > 1:
        try:
            comparison = compare_settings(settings)
        except UserError as error:
            problem = f"No test: {error.line()}."
    return SweepResult(tuple(settings), _chosen(data, verdict), verdict, comparison, problem)


def contender(setting: ComparedSetting, score: str) -> Contender:
    """A confirmed setting with its roles, which its names tell, and its figures."""
    names = (setting.names or setting.label).split(" = ")
    models = [bool(_MODEL.match(name)) and not is_fitted(setting) for name in names]
    role = Role(0)
    role |= Role.MODEL if any(models) else Role(0)
    role |= Role.BASELINE if not all(models) else Role(0)
    return Contender.of(setting.label, role, score, {seed: run.metrics for seed, run in setting.runs.items()})


def _chosen(data: SweepData, verdict: BaselineVerdict | None) -> str | None:
    if verdict is not None:
        return verdict.baseline if verdict.result == "loses to" else verdict.model
    if data.best is None:
        return None
    return data.confirmed.get(str(data.best["run_id"]), str(data.best["setting"]))


def chosen_settings(data: SweepData, setting: str, knn: str = "") -> dict[str, object]:
    """The values of the varied keys of a setting, and one choice of its neighbours.

    `knn` is the choice by the mean over fresh seeds; without it, the one that most seeds made.
    """
    runs = pd.concat([data.confirmation, data.search])
    its = runs[(runs["setting"] == setting) & (runs["state"] == State.COMPLETE)]
    found = {key: its[key].iloc[0] for key in data.varied if key in its and pd.notna(its[key].iloc[0])}
    answered = [key for key in data.answered if key in its]
    choices = Counter(its[answered].dropna().itertuples(index=False, name=None)) if answered else Counter()
    if knn:
        found["neighbours"] = knn
    elif choices:
        found |= dict(zip(answered, choices.most_common(1)[0][0], strict=True))
    return found


def next_command(data: SweepData, result: SweepResult) -> tuple[str, str]:
    """What to do next and the command for it; JOB and SPACE stand for the sweep's files."""
    tags, verdict = data.run.data.tags, result.verdict
    trials, seeds = (int(tags.get(tag) or 0) for tag in (Tag.SWEEP_TRIALS, Tag.SWEEP_SEEDS))
    sweep = f"mlcl sweep JOB SPACE --name {data.name}"
    if not seeds:
        return "Train the best on fresh seeds", f"{sweep} --trials {trials} --seeds {FIRST_SEEDS}"
    if verdict is not None and verdict.paired is not None and verdict.result == "undecided":
        further = verdict.paired.further_seeds()
        if further is not None and seeds + further <= MOST_SEEDS:
            return "More seeds to decide", f"{sweep} --trials {trials} --seeds {seeds + further}"
    if verdict is None or verdict.result == "beats":
        return "Export the model", f"mlcl export {data.name}"
    return "Search on", f"{sweep} --trials {2 * trials} --seeds {seeds}"
