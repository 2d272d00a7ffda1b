"""Tests of the control, the job without heads, whose best setting can start the search of the heads."""

import pytest
import yaml
from builders import tiny_job

from mlcl.config import dump_job, flatten, job_hash, load_space
from mlcl.service.search.arms import control_job
from mlcl.service.search.sampling import draw, fit
from mlcl.service.search.starts import control_start

LR = "train.lr"
WEIGHTS = ("objective.heads.detail.weight", "objective.heads.topic.weight")


def space_of(tmp_path, job, **parameters):
    file = tmp_path / "space.yaml"
    file.write_text(yaml.safe_dump({"space": {LR: {"log_float": [0.0003, 0.1]}, **parameters}}))
    return load_space(file, job)


class Given:
    """A stand-in for Optuna's trial that suggests given values."""

    def __init__(self, point):
        self.point = point

    def suggest_float(self, name, *_, **__):
        return self.point[name]

    suggest_int = suggest_categorical = suggest_float


def settings_at(space, point):
    return draw(space, Given(point))


def test_a_control_differs_in_heads_and_the_classifiers_weight_alone(tiny):
    job = tiny_job(tiny)
    control = control_job(job)
    before, after = flatten(dump_job(job)), flatten(dump_job(control))
    changed_keys = {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}
    assert {key for key in changed_keys if not key.startswith("objective.heads")} == {
        "objective.classifier.weight"
    }
    assert control.objective.classifier_weight == 1
    assert control.objective.heads == {}
    assert control.views == job.views == 2
    one_view_job = tiny_job(tiny, views=1)
    assert control_job(one_view_job).views == 1
    assert job_hash(control_job(one_view_job)) != job_hash(control)


def test_a_job_whose_heads_do_not_count_has_no_control(tiny):
    assert control_job(tiny_job(tiny, "objective.heads={}")) is None
    overrides = [f"{key}=0.0" for key in WEIGHTS]
    assert control_job(tiny_job(tiny, *overrides)) is None


def test_the_search_of_heads_starts_at_the_controls_setting_with_the_least_weights(tiny, tmp_path):
    job = tiny_job(tiny)
    job_values = flatten(dump_job(job))
    weights = {"objective.heads.*.weight": {"log_float": [0.003, 0.4]}}
    space = space_of(tmp_path, job, **weights, **{"objective.heads.*.temperature": {"float": [0.05, 1.0]}})
    settings = settings_at(space, control_start(space, job_values, {LR: 0.03}))
    assert settings[LR] == 0.03
    assert [settings[key] for key in WEIGHTS] == [0.003, 0.003]
    temperatures = {key: job_values[key] for key in settings if key.endswith("temperature")}
    assert temperatures == {key: settings[key] for key in temperatures}
    assert len(temperatures) == 2

    space = space_of(tmp_path, job, **{"objective.heads.*.weight": {"simplex": {"total": [0.1, 0.6]}}})
    settings = settings_at(space, control_start(space, job_values, {LR: 0.03}))
    assert abs(sum(settings[key] for key in WEIGHTS) - 0.1) < 1e-9

    # Weights with a fixed total have no smallest values, so they stay as written.
    space = space_of(tmp_path, job, **{"objective.heads.*.weight": {"simplex": {"total": 0.4}}})
    point = control_start(space, job_values, {LR: 0.03})
    assert point == fit(space, job_values | {LR: 0.03}, job_values)


def test_a_space_that_does_not_hold_the_controls_setting_has_no_such_start(tiny, tmp_path):
    job = tiny_job(tiny)
    space = space_of(tmp_path, job, **{"objective.heads.*.temperature": {"float": [0.6, 1.0]}})
    assert control_start(space, flatten(dump_job(job)), {LR: 0.03}) is None
    space = space_of(tmp_path, job)
    assert control_start(space, flatten(dump_job(job)), {LR: 0.5}) is None
    assert control_start(space, flatten(dump_job(job)), {LR: 0.05}) == {LR: 0.05}


@pytest.mark.parametrize("earlier", [0, 2])
def test_the_search_of_heads_starts_at_what_the_control_has_found(world, job, earlier):
    # Scores differ between settings of a control.
    world.formula.scale = lambda trial_job: 1 / trial_job.train.lr
    text = "space: {train.lr: {log_float: [0.001, 0.1]}}\nsearch: {scheduler: none, race_seeds: 0}"
    if earlier:
        world.run(world.plan(job, text, trials=earlier))
    world.run(world.plan(job, text, trials=5, seeds=2, confirm=1, control=control_job(job)))
    control_trials, own_trials = (
        world.ledger.trials(scope=scope) for scope in sorted(world.ledger.searches, reverse=True)
    )
    best = max(control_trials, key=lambda trial: trial.score)
    assert best.settings["train.lr"] != job.train.lr
    (start,) = [trial for trial in own_trials if trial.origin == "control"]
    assert (start.number, start.settings) == (max(1, earlier), best.settings)
