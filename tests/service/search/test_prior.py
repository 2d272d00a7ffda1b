"""Tests that a search begins with the job as written and then the settings of a prior."""

import pytest
import yaml
from builders import tiny_job

from mlcl.config import dump_job, flatten, load_space
from mlcl.config.space.prior import FOLDER, begin_at, read_prior
from mlcl.errors import UserError
from mlcl.service.search.sampling import prior_starts, start
from mlcl.service.starter.first_job import PRIORS

SPACE = """
space:
  objective.heads.*.temperature: {log_float: [0.05, 1.0]}
  train.lr: {log_float: [1.0e-4, 1.0e-1]}
  train.optimizer: {choice: [adamw, sgd]}
search: {prior: prior.yaml, scheduler: none, startup: 1}
"""
POINTS = [
    {"objective.heads.*.temperature": 0.3, "train.lr": 0.02, "train.optimizer": "sgd"},
    {"objective.heads.*.temperature": 7.0, "encoder.dropout": 0.9},
    {"train.optimizer": "lion", "train.lr": 0.003},
]
HEAD = "objective.heads.detail.temperature"


@pytest.fixture
def space(tmp_path, tiny):
    (tmp_path / "prior.yaml").write_text(yaml.safe_dump({"about": "a test", "points": POINTS}))
    (tmp_path / "space.yaml").write_text(SPACE)
    return load_space(tmp_path / "space.yaml", tiny_job(tiny))


def test_values_are_those_of_the_point_within_the_space(space, tiny):
    job = flatten(dump_job(tiny_job(tiny)))
    first, second, third = (begin_at(space.parameters, job, point) for point in POINTS)
    assert (first[HEAD], first["train.lr"], first["train.optimizer"]) == (0.3, 0.02, "sgd")
    assert (second[HEAD], second["encoder.dropout"]) == (1.0, job["encoder.dropout"])
    assert (third["train.lr"], third["train.optimizer"]) == (0.003, job["train.optimizer"])


def test_the_first_trials_are_the_job_as_written_and_the_points(world, space, tiny):
    plan = world.plan(
        tiny_job(tiny), SPACE.replace("prior.yaml", str(space.file.parent / "prior.yaml")), trials=6
    )
    world.run(plan)
    job_values = flatten(dump_job(plan.job))
    trials = world.ledger.trials()
    expected = [start(plan.space, job_values), *prior_starts(plan.space, job_values)]
    assert len(expected) == 4
    assert [trial.params for trial in trials[:4]] == [pytest.approx(point) for point in expected]
    assert trials[4].params not in expected


@pytest.mark.parametrize(
    ("search", "problem"),
    [
        ("{prior: nothing.yaml}", "no such prior"),
        ("{prior: space.yaml}", "about"),
        ("{prior: empty.yaml}", r"empty\.yaml: must be a mapping"),
        (
            "{prior: typo.yaml}",
            r"space\.yaml, key search\.prior: has no key that this space varies.*train\.optimiser",
        ),
        (
            "{prior: partly.yaml}",
            r"space\.yaml, key search\.prior: has a key that no job has; did.*encoder\.widht",
        ),
        ("{prior: prior.yaml, sampler: brute_force}", "an order of its own"),
    ],
)
def test_what_is_no_prior_is_refused(space, tiny, search, problem):
    file = space.file.parent / "space.yaml"
    (file.parent / "empty.yaml").touch()
    typos = {"typo": {"train.optimiser": "sgd"}, "partly": {"train.optimizer": "sgd", "encoder.widht": True}}
    for name, point in typos.items():
        tree = {"about": "a test", "points": [point]}
        (file.parent / f"{name}.yaml").write_text(yaml.safe_dump(tree))
    file.write_text(f"space: {{train.optimizer: {{choice: [adamw, sgd]}}}}\nsearch: {search}")
    with pytest.raises(UserError, match=problem):
        load_space(file, tiny_job(tiny))


def test_the_priors_of_the_package_can_be_read(tmp_path):
    names = [file.stem for file in FOLDER.glob("*.yaml")]
    assert {*names} == {*PRIORS.values()}
    for name in names:
        prior = read_prior(name, tmp_path)
        assert len(prior.points) >= 4
        assert (FOLDER / f"{name}.yaml").stat().st_size < 1_000_000


def test_a_prior_that_is_added_later_is_tried_whole(world, space, tiny):
    text = SPACE.replace("prior.yaml", str(space.file.parent / "prior.yaml"))
    text_without_prior = SPACE.replace("prior: prior.yaml, ", "")
    world.run(world.plan(tiny_job(tiny), text_without_prior, trials=4))
    plan = world.plan(tiny_job(tiny), text, trials=8)
    world.run(plan)
    trial_params = [trial.params for trial in world.ledger.trials()]
    expected = prior_starts(plan.space, flatten(dump_job(plan.job)))
    assert trial_params[4:7] == [pytest.approx(point) for point in expected]
