"""Tests that a trained baseline is searched over the keys it shares with the job, with as many trials."""

from dataclasses import replace

import pytest
import yaml
from builders import tiny_job
from sweeps import World

from mlcl.api.sweeping import sweep_plan
from mlcl.config import dump_job, load_job, load_space
from mlcl.config.packaged import job_and_space
from mlcl.errors import UserError
from mlcl.service.search.arms import control_job, scope_of, search_plans, shared_space
from mlcl.significance.roles import Role
from mlcl.tracking import State

SPACE = """
space:
  train.lr: {log_float: [0.001, 0.1]}
  objective.heads.topic.temperature: {log_float: [0.05, 1.0]}
  objective.heads.topic.weight: {choice: [0.1, 0.2]}
  train.warmup: {float: [0.0, 0.2], when: {objective.heads.topic.weight: [0.1]}}
  evaluation.knn.k: {choice: [1, 3]}
search: {scheduler: none}
"""


def without_topic(job, **changes):
    tree = dump_job(job)
    del tree["objective"]["heads"]["topic"]
    return load_job(tree, changes)


@pytest.fixture
def job(tiny):
    return tiny_job(tiny, "train.epochs=2")


@pytest.fixture
def plain(job):
    return without_topic(job)


def plan(world, job, plain, **how):
    return world.plan(job, SPACE, **{"trials": 3, "seeds": 2, "baselines": [("plain", plain)], **how})


def test_only_keys_that_the_job_has_are_searched(job, plain, tmp_path):
    (tmp_path / "space.yaml").write_text(SPACE)
    space = load_space(tmp_path / "space.yaml", job)
    baseline_space = shared_space(space, plain)
    # The warm-up is left out, because it depends on a key that is not drawn.
    assert [parameter.name for parameter in baseline_space.parameters] == ["train.lr"]
    assert (baseline_space.goals, baseline_space.posthoc) == (space.goals, space.posthoc)


def test_a_job_without_heads_is_searched_over_neither_heads_nor_the_weight_of_its_classifier(job, tmp_path):
    head = {"loss": "supcon", "labels": "topic", "temperature": 0.1, "weight": 1.0}
    parameters = {
        "objective.heads": {"choice": [{"topic": head}, {"other": head}]},
        "objective.classifier.weight": {"choice": [0, 0.5, 1]},
        "train.lr": {"log_float": [0.001, 0.1]},
    }
    (tmp_path / "space.yaml").write_text(yaml.safe_dump({"space": parameters}))
    space = load_space(tmp_path / "space.yaml", job)
    assert [parameter.name for parameter in shared_space(space, control_job(job)).parameters] == ["train.lr"]


def test_a_baseline_may_have_a_space_of_its_own(job, plain, tmp_path):
    files = {"space": SPACE, "own": "space: {train.epochs: {choice: [1, 2]}}\nsearch: {sampler: random}"}
    for name, text in files.items():
        (tmp_path / f"{name}.yaml").write_text(text)
    (tmp_path / "plain.yaml").write_text(yaml.safe_dump(dump_job(plain)))
    sweep = sweep_plan(
        job, tmp_path / "space.yaml", name="it", home=tmp_path, shared={}, control=False, fitted=False,
        baselines=[f"{tmp_path / 'plain.yaml'}:{tmp_path / 'own.yaml'}"], trials=2, seeds=2,
    )  # fmt: skip
    search, own_search = searched(sweep)
    assert (search.arm, search.plan.searched_keys, search.plan.space_text) == (
        "plain",
        ("train.epochs",),
        files["own"],
    )
    assert (search.plan.space.search, search.plan.free_keys) == (
        own_search.plan.space.search,
        own_search.plan.free_keys,
    )
    with pytest.raises(UserError, match="nowhere"):
        load_space(job_and_space("plain.yaml:nowhere.yaml")[1], plain)


def searched(plan):
    return [search for search in search_plans(plan) if search.is_searched]


def test_who_is_searched(world, job, plain):
    sweep = plan(world, job, plain)
    search, own_search = searched(sweep)
    baseline_plan = search.plan
    assert (search.arm, baseline_plan.trials, baseline_plan.baselines, baseline_plan.most_trials) == (
        "plain",
        3,
        (),
        3,
    )
    assert (own_search.arm, own_search.scope, own_search.role) == ("heads", "", Role.MODEL)
    assert baseline_plan.scores == sweep.scores
    fitted_job = load_job(dump_job(job), {"baseline": "majority"})
    assert searched(plan(world, job, plain, baselines=[("majority", fitted_job)])) == [own_search]
    assert len(search_plans(plan(world, job, plain, seeds=0))) == 1
    other_search, _ = searched(plan(world, job, load_job(dump_job(plain), {"experiment": "x"})))
    assert other_search.scope == search.scope == scope_of(baseline_plan)


def test_what_is_not_searched_is_trained_on_the_validation_rows_of_each_search(world, job, plain):
    fitted_job = load_job(dump_job(job), {"baseline": "majority"})
    fixed_job = load_job(dump_job(fitted_job), {"data.validation_seed": 7})
    options = {"baselines": [("majority", fitted_job), ("fixed", fixed_job)], "seeds": 6, "searches": 3}
    fits = [search for search in search_plans(plan(world, job, plain, **options)) if not search.is_searched]
    assert [(search.arm, search.number, search.plan.seeds) for search in fits] == [
        ("majority", 1, 1),
        ("fixed", 1, 1),
    ]
    redrawn_sweep = replace(plan(world, job, plain, **options), redraws=True)
    redrawn_fits = [search for search in search_plans(redrawn_sweep) if search.arm == "majority"]
    assert [search.plan.job.data.validation_seed for search in redrawn_fits] == [None, 2, 3]
    assert [(search.number, search.plan.seeds, search.is_searched) for search in redrawn_fits] == [
        (number, 1, False) for number in (1, 2, 3)
    ]
    assert len({search.scope for search in redrawn_fits}) == 3
    assert redrawn_fits[0].scope == fits[0].scope
    assert [search.number for search in search_plans(redrawn_sweep) if search.arm == "fixed"] == [1]


def test_the_fits_of_a_baseline_on_several_validation_rows_are_one_arm(world, job, plain):
    fitted_job = load_job(dump_job(job), {"baseline": "majority"})
    sweep = plan(world, job, plain, baselines=[("majority", fitted_job)], seeds=4, searches=2)
    report = world.run(replace(sweep, redraws=True))
    assert report.state is State.COMPLETE
    fits = [fit for fit in report.confirmations if fit.arm == "majority"]
    assert [(fit.name, fit.search, len(fit.seeds)) for fit in fits] == [
        ("majority", 1, 1), ("majority, search 2", 2, 1),
    ]  # fmt: skip
    (verdict,) = report.verdicts
    assert (verdict.reference.label, verdict.reference.searches) == ("majority", 2)
    assert verdict.single == ()


def test_a_baseline_is_searched_first_and_its_pick_is_confirmed(world, job, plain):
    report = world.run(plan(world, job, plain))
    assert report.state is State.COMPLETE
    assert [trial.label for trial in report.trials] == [f"trial {n}" for n in range(3)]
    assert [trial.label for trial in report.baseline_trials] == [f"plain, trial {n}" for n in range(3)]
    assert all(set(trial.settings) == {"train.lr"} for trial in report.baseline_trials)
    scopes = [entry.scope for entry in world.ledger.entries.values() if entry.number is not None]
    assert [bool(scope) for scope in scopes] == [True] * 3 + [False] * 3
    first = report.confirmations[0]
    assert (first.role, first.arm, first.search) == (Role.BASELINE, "plain", 1)
    assert report.arms[0].searches[0].pick == first.name
    assert len(first.seeds) == 2
    (verdict,) = report.verdicts
    assert (verdict.question, verdict.reference.label, verdict.treated.label) == (
        "baseline",
        "plain",
        "heads",
    )
    tags = world.everything()["logs"]["SWEEP"]["tags"]
    assert tags["mlcl.sweep.verdict"] == verdict.sentence


def test_more_trials_grow_both(world, job, plain):
    world.run(plan(world, job, plain))
    report = world.run(plan(world, job, plain, trials=5))
    assert (len(report.trials), len(report.baseline_trials)) == (5, 5)


def test_a_stop_between_two_searches_is_gone_on_from(world, job, plain, tmp_path, monkeypatch):
    unbroken_report = world.run(plan(world, job, plain))
    other_world = World(tmp_path / "other", monkeypatch)
    other_world.stop_when(lambda trial_job, epoch: "topic" not in trial_job.objective.heads and epoch == 1)
    assert other_world.run(plan(other_world, job, plain)).state is State.STOPPED
    report = other_world.run(plan(other_world, job, plain))
    assert report.state is State.COMPLETE
    for trials, expected in (
        (report.trials, unbroken_report.trials),
        (report.baseline_trials, unbroken_report.baseline_trials),
    ):
        assert [(t.label, t.score, dict(t.settings)) for t in trials] == [
            (t.label, t.score, dict(t.settings)) for t in expected
        ]


def test_a_baseline_of_another_job_begins_its_search_anew(world, job, plain):
    world.run(plan(world, job, plain))
    other_baseline = without_topic(job, **{"train.weight_decay": 0.5})
    report = world.run(plan(world, job, other_baseline))
    assert len(report.baseline_trials) == 3
    assert len(world.ledger.searches) == 3


def test_settings_of_a_baseline_that_is_no_longer_named_lose_their_labels(world, job, plain):
    world.run(plan(world, job, plain))
    (key,) = [
        key
        for key, confirmation in world.ledger.confirmations.items()
        if confirmation.scope and not confirmation.race
    ]

    def label():
        return world.everything()["logs"][f"SWEEP.{key}"]["tags"]["mlcl.candidate"]

    assert label().startswith("plain")
    world.run(plan(world, job, plain, seeds=0))  # confirms nothing, so the labels of settings stay
    assert label().startswith("plain")
    report = world.run(plan(world, job, plain, baselines=[]))
    assert (label(), world.ledger.confirmations[key].labels) == ("no longer", ())
    assert key in [setting.key for setting in report.earlier]
    world.run(plan(world, job, plain))
    assert label().startswith("plain")
