import pytest
from builders import tiny_job
from report.made_up_runs import Store
from sweeps import World

from mlcl.service.engine.budget import parse_budget
from mlcl.tracking import Tracker

BUDGET = parse_budget("2h")
SPACE = """
space:
  objective.heads.*.temperature: {log_float: [0.05, 1.0]}
  objective.heads.*.weight: {simplex: {total: [0.1, 0.6]}}
  evaluation.knn.k: {choice: [1, 3]}
search: {scheduler: asha, reduction_factor: 2, startup: 3}
"""


@pytest.fixture(scope="session")
def store(tmp_path_factory):
    """Returns one store for all tests, since its tables take seconds; each test uses names of its own."""
    return Store(Tracker(tmp_path_factory.mktemp("store"), None))


@pytest.fixture(scope="session")
def searched(store, tiny, tmp_path_factory):
    """Runs a sweep of ten trials with three fresh seeds and a baseline; returns its home and its result."""
    with pytest.MonkeyPatch.context() as patch:
        world = World(tmp_path_factory.mktemp("searched"), patch, store.tracker.uri)
        world.formula.fails = lambda job, epoch: job.objective.heads["detail"].temperature > 0.9
        job = tiny_job(tiny, "train.epochs=4", "experiment=searched")
        baseline = tiny_job(tiny, "train.epochs=4", "encoder.dropout=0.1")
        plan = world.plan(
            job,
            SPACE,
            trials=10,
            seeds=3,
            baselines=[("colder", baseline)],
            name="searched <b>",
            budget=BUDGET,
        )
        return world.home, world.run(plan)
