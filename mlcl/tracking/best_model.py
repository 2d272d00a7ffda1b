"""The alias `best` of a registered model: it moves to a new version unless the present one is as good."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mlflow.entities.model_registry import ModelVersion
from mlflow.exceptions import MlflowException

from mlcl.config import covers
from mlcl.tracking.tracker import Tracker

BEST = "best"
"""The alias."""
LONGEST = 60
"""Longest value of a key, in characters, that a version keeps; of a longer one it keeps a digest."""
NEUTRAL = ("train.threads", "tracking.system_metrics")
"""Keys that two jobs may differ in and still be compared."""


@dataclass(frozen=True)
class Score:
    """The score of a version: a `metric` with its `mode`, max or min.

    `job` has the dotted keys of the job that the search began with, `searched` those that it set.
    """

    metric: str
    value: float
    mode: str
    job: Mapping[str, Any]
    searched: Sequence[str]

    def tags(self) -> dict[str, str]:
        """What a version keeps of it."""
        job = {key: _short(value) for key, value in self.job.items() if key not in NEUTRAL}
        return {
            "metric": self.metric,
            "score": repr(self.value),
            "job": json.dumps(job),
            "searched": json.dumps(list(self.searched)),
        }

    def difference(self, held: Mapping[str, str]) -> str:
        """Why it does not compare with the score of a version with the tags `held`; empty where it does."""
        if "job" not in held:
            return "its job is not known"
        if held["metric"] != self.metric:
            return f"its metric is {held['metric']}"
        ours, theirs = json.loads(self.tags()["job"]), json.loads(held["job"])
        searched = (*self.searched, *json.loads(held["searched"]))
        differ = sorted(
            key
            for key in ours.keys() | theirs.keys()
            if ours.get(key) != theirs.get(key) and not any(covers(prefix, key) for prefix in searched)
        )
        if not differ:
            return ""
        first, more = differ[0], len(differ) - 1
        text = f"its {first} is {theirs.get(first)}, here {ours.get(first)}"
        return f"{text}, and {more} more differ" if more else text

    def beats(self, held: Mapping[str, str]) -> bool:
        """Whether it is better than the score of a version with the tags `held`."""
        other = float(held["score"])
        return self.value > other if self.mode == "max" else self.value < other


def move_best(tracker: Tracker, name: str, version: str, score: Score) -> str:
    """Gives a version its score, and the alias unless its present version is as good; a line for the user.

    Versions compare by the same metric of the same job but for what was searched; where they do not, the
    alias moves and the line says why. Raises MlflowException.
    """
    client, held = tracker.client, _held(tracker, name)
    for key, value in score.tags().items():
        client.set_model_version_tag(name, version, key, value)
    why = ""
    if held is not None and str(held.version) != version:
        why = score.difference(held.tags)
        if not why and not score.beats(held.tags):
            return f"models:/{name}/{version} ({BEST} stays with version {held.version})"
        why = f"; not compared with version {held.version}: {why}" if why else ""
    client.set_registered_model_alias(name, BEST, version)
    return f"models:/{name}@{BEST} (version {version}{why})"


def _held(tracker: Tracker, name: str) -> ModelVersion | None:
    try:
        return tracker.client.get_model_version_by_alias(name, BEST)
    except MlflowException:
        return None


def _short(value: Any) -> Any:
    text = json.dumps(value)
    return value if len(text) <= LONGEST else hashlib.sha256(text.encode()).hexdigest()[:16]
