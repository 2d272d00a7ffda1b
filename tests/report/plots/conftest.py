import functools
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from stored_runs import trained

from mlcl.config import Goal, JobConfig, Space
from mlcl.config.space.domains import Choice, Float, Int
from mlcl.config.space.search import SearchConfig
from mlcl.config.space.space import Parameter
from mlcl.report.sweep_data import SweepData
from mlcl.results.sweep_result import SweepResult
from mlcl.results.training_result import TrainingResult
from mlcl.tracking import State
from mlcl.tracking.names import CLASSIFIER_WEIGHT

HEADS = ("section", "chapter", "category")


@pytest.fixture(scope="session")
def trained_once(tiny, tmp_path_factory):
    """Returns a function that trains with settings, once for each, and returns folder, data and metrics."""
    return functools.cache(lambda *settings: trained(tiny, tmp_path_factory.mktemp("run"), *settings))


def _trial(number, heads, rng):
    """Returns a trial whose score falls with the first head's temperature; every fourth trial is pruned."""
    settings = {f"objective.heads.{head}.temperature": float(rng.uniform(0.05, 1.0)) for head in heads}
    *weights, classifier_weight = rng.dirichlet(np.ones(len(heads) + 1)).tolist()
    settings |= {
        f"objective.heads.{head}.weight": weight for head, weight in zip(heads, weights, strict=True)
    }
    encoder = ("cnn_text", "transformer")[number % 2]
    return {
        "kind": "search",
        "setting": f"trial {number}",
        "number": number,
        "state": "PRUNED" if number % 4 == 3 else "COMPLETE",
        "score": 1 - 0.5 * settings[f"objective.heads.{heads[0]}.temperature"] + 0.1 * classifier_weight,
        "run_id": f"run{number}",
        **settings,
        CLASSIFIER_WEIGHT: classifier_weight,
        "encoder.name": encoder,
        "encoder.width": 32 + number if encoder == "cnn_text" else None,
        "val/loss": float(rng.uniform()),
    }


def _space(heads, goals):
    parameters = [
        Parameter(f"objective.heads.{head}.temperature", Float(0.05, 1.0, log=True)) for head in heads
    ]
    parameters += [
        Parameter("encoder.name", Choice(("cnn_text", "transformer"))),
        Parameter("encoder.width", Int(32, 256)),
    ]
    return Space(tuple(parameters), {}, SearchConfig(), goals, goals[0])


@pytest.fixture
def search_of():
    """Returns a function that makes a search of made-up trials.

    `change` edits the frame of trials; `fields` replace those of SweepData.
    """

    def make(
        trials=20, heads=HEADS[:2], change=lambda frame: frame, goals=None, rungs=lambda _: (), **fields
    ):
        rng = np.random.default_rng(0)
        frame = pd.DataFrame([_trial(number, heads, rng) for number in range(trials)])
        frame = change(frame.astype({"number": "Int64", "encoder.width": "float64"}))
        goals = goals or (Goal("val/accuracy", "max"),)
        result = SweepResult(
            "made-up-1", "made-up", State.COMPLETE, "", Path(), goals, "val/accuracy", goals[0].mode,
            tuple(_training(row, goals, rungs) for _, row in frame.iterrows()),
        )  # fmt: skip
        prefixes = ("objective.heads.", "encoder.")
        defaults = {
            "result": result,
            "job": JobConfig.model_validate(_job(heads)),
            "space": _space(heads, goals),
            "search": frame,
            "confirmation": frame.iloc[:0],
            "varied": tuple(key for key in frame if key.startswith(prefixes)),
            "dropped": pd.DataFrame(),
            "baselines": pd.DataFrame(),
            "history": lambda run_id, metric: [],
        }
        return SweepData(**(defaults | fields))

    return make


def _training(row, goals, rungs):
    values = tuple(row[goal.metric] for goal in goals if goal.metric in row)
    fields = {
        "score": row["score"],
        "values": values,
        "number": int(row["number"]),
        "intermediate": rungs(row),
    }
    return TrainingResult(row["run_id"], row["setting"], State(row["state"]), **fields)


def _job(heads):
    return {
        "experiment": "made-up",
        "data": {"source": "icd10cm"},
        "encoder": {"name": "cnn_text"},
        "objective": {
            "heads": {head: {"loss": "supcon", "labels": head, "weight": 0.1} for head in heads},
            "classifier": {"loss": "cross_entropy", "labels": "section"},
        },
        "train": {"epochs": 1, "batch_size": 8},
    }
