"""The alias `best`: what it compares, and what it says where it does not."""

from types import SimpleNamespace

import pytest
from mlflow.exceptions import MlflowException

from mlcl.tracking.registry import BEST, Score, move_best

JOB = {"train.epochs": 10, "train.lr": 0.1, "train.threads": 1, "objective.heads.a.weight": 0.2}


class Registry:
    """What of MLflow's client the alias needs."""

    def __init__(self):
        self.tags: dict[str, dict[str, str]] = {}
        self.best: str | None = None

    def set_model_version_tag(self, name, version, key, value):
        self.tags.setdefault(version, {})[key] = value

    def get_model_version_by_alias(self, name, alias):
        if self.best is None:
            raise MlflowException("none")
        return SimpleNamespace(version=self.best, tags=self.tags.get(self.best, {}))

    def set_registered_model_alias(self, name, alias, version):
        assert alias == BEST
        self.best = version


@pytest.fixture
def move():
    registry = Registry()

    def move(version, value, metric="val/accuracy", mode="max", searched=("train.lr",), **changes):
        job = JOB | {key.replace("__", "."): its for key, its in changes.items()}
        score = Score(metric, value, mode, job, searched)
        return move_best(SimpleNamespace(client=registry), "m", version, score)

    move.registry = registry
    return move


def test_it_stays_with_an_earlier_version_that_is_as_good(move):
    assert move("1", 0.5) == "models:/m@best (version 1)"
    assert move("1", 0.5) == "models:/m@best (version 1)"
    assert move("2", 0.5) == "models:/m/2 (best stays with version 1)"
    assert move("3", 0.6) == "models:/m@best (version 3)"


def test_less_may_be_better(move):
    move("1", 0.5, mode="min")
    assert move("2", 0.6, mode="min") == "models:/m/2 (best stays with version 1)"
    assert move("3", 0.4, mode="min") == "models:/m@best (version 3)"


def test_jobs_may_differ_in_what_either_searched_and_in_threads(move):
    move("1", 0.5, searched=("objective.heads",))
    told = move("2", 0.4, train__lr=0.2, train__threads=2, objective__heads__a__weight=0.3)
    assert told == "models:/m/2 (best stays with version 1)"


@pytest.mark.parametrize(
    ("other", "why"),
    [
        ({"metric": "val/macro_f1"}, "its metric is val/accuracy"),
        ({"train__epochs": 20}, "its train.epochs is 10, here 20"),
        ({"train__epochs": 20, "new": 1}, "its new is None, here 1, and 1 more differ"),
    ],
)
def test_what_does_not_compare_is_said(move, other, why):
    move("1", 0.5)
    assert move("2", 0.4, **other) == f"models:/m@best (version 2; not compared with version 1: {why})"


def test_a_version_of_an_earlier_release(move):
    move.registry.best = "7"
    assert move("8", 0.1).endswith("(version 8; not compared with version 7: its job is not known)")
