"""Tests of the alias `best`: which models it compares, and its message if it cannot compare them."""

import json
from types import SimpleNamespace

import pytest
from mlflow.exceptions import MlflowException

from mlcl.tracking.registry import BEST, Score, move_best

JOB = {"train.epochs": 10, "train.lr": 0.1, "train.threads": 1, "objective.heads.a.weight": 0.2}


class Registry:
    """A stand-in for the part of MLflow's client that the alias needs."""

    def __init__(self, best=None):
        self.tags, self.best = {}, best

    def set_model_version_tag(self, name, version, key, value):
        self.tags.setdefault(version, {})[key] = value

    def get_model_version_by_alias(self, name, alias):
        if self.best is None:
            raise MlflowException("none")
        return SimpleNamespace(version=self.best, tags=self.tags.get(self.best, {}))

    def set_registered_model_alias(self, name, alias, version):
        assert alias == BEST
        self.best = version


def move(registry, version, value=0.5, metric="val/accuracy", mode="max", searched=("train.lr",), **changes):
    job = JOB | {key.replace("__", "."): change for key, change in changes.items()}
    score = Score(metric, value, mode, job, searched)
    return move_best(SimpleNamespace(client=registry), "m", version, score)


MOVED, STAYS = "models:/m@best (version 2)", "models:/m/2 (best stays with version 1)"
NEUTRAL = {"train__threads": 2, "tracking__keep": "all", "tracking__notify__env": "URL"}
OTHERS = {"train__lr": 0.2, "objective__heads__a__weight": 0.3, **NEUTRAL}
"""Keys that at least one of the searches varied, and keys on which no result depends."""


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        ({}, {}, STAYS),
        ({}, {"value": 0.6}, MOVED),
        ({"mode": "min"}, {"mode": "min", "value": 0.6}, STAYS),
        ({"mode": "min"}, {"mode": "min", "value": 0.4}, MOVED),
        ({"searched": ("objective.heads",)}, {"value": 0.4, **OTHERS}, STAYS),
        ({}, {"metric": "val/macro_f1"}, "version 1: its metric is val/accuracy)"),
        ({}, {"train__epochs": 20}, "version 1: its train.epochs is 10, here 20)"),
        ({}, {"train__epochs": 20, "new": 1}, "version 1: its new is None, here 1, and 1 more differ)"),
    ],
)
def test_the_alias_moves_to_a_better_version_and_where_none_compares(first, second, said):
    registry = Registry()
    for _ in range(2):  # a repeated command moves nothing
        assert move(registry, "1", **first) == "models:/m@best (version 1)"
    message = move(registry, "2", **second)
    assert message == said or message == f"models:/m@best (version 2; not compared with {said}"


def test_tags_that_an_earlier_mlcl_wrote_may_have_keys_that_no_result_depends_on():
    registry = Registry()
    move(registry, "1", value=0.6)
    job = json.loads(registry.tags["1"]["job"])
    assert set(job) == JOB.keys() - {"train.threads"}
    registry.tags["1"]["job"] = json.dumps(job | {"tracking.keep": "confirmed"})
    assert move(registry, "2", value=0.5, **NEUTRAL) == STAYS


def test_a_version_that_a_person_gave_the_alias():
    message = move(Registry("7"), "8")
    assert message == "models:/m@best (version 8; not compared with version 7: its job is not known)"
