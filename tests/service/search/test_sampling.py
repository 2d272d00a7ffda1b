"""Tests of settings drawn from a space, and of the conversion of a job into its point of the space."""

import numpy as np
import optuna
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlcl.config import (
    Goal,
    Parameter,
    SearchConfig,
    Space,
    dump_job,
    flatten,
    load_job,
    load_space,
)
from mlcl.config.space.domains import Choice, Float, Int, Misfit, Simplex, sticks_of, weights_of
from mlcl.service.search.sampling import (
    describe,
    distributions,
    draw,
    example,
    fit,
    grid_size,
    why_outside,
)

KEYS = tuple(f"h{i}.weight" for i in range(9))
GOAL = Goal("val/accuracy", "max")
WEIGHT = "objective.classifier.weight"
JOB = {
    "experiment": "test",
    "data": {"source": "icd10cm"},
    "encoder": {"name": "cnn_text"},
    "objective": {
        "heads": {
            "a": {"loss": "supcon", "labels": "section", "weight": 0.1},
            "b": {"loss": "supcon", "labels": "chapter", "weight": 0.3},
            "path": {"loss": "himulcone", "labels": "path", "weight": 0.2},
        },
        "classifier": {"loss": "cross_entropy", "labels": "section"},
    },
    "train": {"epochs": 2, "batch_size": 8},
}
SPACE = """
space:
  encoder: {choice: [{name: cnn_text}, {name: cnn_text, width: 7}, {name: transformer, model: folder}]}
  encoder.dropout: {float: [0.1, 0.7], when: {encoder.name: cnn_text}}
  objective.heads.*.weight: {simplex: {total: 1.0, with: [objective.classifier.weight]}}
  objective.heads.*.temperature: {log_float: [0.03, 1]}
  objective.heads.path.options.level_weights:
    {simplex: {total: [1, 3], size: 2}, when: {objective.heads.path.loss: himulcone}}
  objective.heads.path.loss: {choice: [himulcone, himulcon, hicone]}
  train.epochs: {int: [1, 9]}
  train.optimizer: {choice: [adamw, sgd], when: {train.epochs: {above: 3}}}
  train.momentum: {float: [0.5, 0.95], when: {train.optimizer: sgd}}
  train.clip_norm: {choice: [null, 1.0]}
  evaluation.knn.k: {choice: [1, 3]}
"""


def plain(*parameters, posthoc=None):
    return Space(parameters, posthoc or {}, SearchConfig(), (GOAL,), GOAL)


@pytest.fixture(scope="module")
def base():
    return load_job(JOB)


@pytest.fixture(scope="module")
def whole(tmp_path_factory, base):
    path = tmp_path_factory.mktemp("space") / "space.yaml"
    path.write_text(SPACE)
    return load_space(path, base)


def flat(job):
    return flatten(dump_job(job))


def agree(one, other):
    """Returns whether two trees are equal, with numbers equal up to rounding."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(agree(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(agree, one, other))
    return one == (pytest.approx(other, rel=1e-9) if isinstance(one, float) else other)


class Uniforms:
    """A stand-in for Optuna's trial that suggests values from given uniform numbers."""

    def __init__(self, numbers):
        self.numbers = iter(numbers)

    def suggest_float(self, name, low, high, *, log=False):
        return low + (high - low) * float(next(self.numbers))


@pytest.mark.parametrize("count", [3, 9])
def test_weights_are_uniform_on_the_simplex(count):
    """Tests the flat Dirichlet's means 1/k, variances (k-1)/(k^2 (k+1)) and covariances -1/(k^2 (k+1))."""
    space, draw_count = plain(Parameter("w", Simplex(KEYS[:count], 1.0, 1.0))), 20_000
    rng = np.random.default_rng(0)
    samples = [draw(space, Uniforms(row)) for row in rng.random((draw_count, count - 1))]
    weights = np.array([[sample[key] for key in KEYS[:count]] for sample in samples])
    assert np.abs(weights.sum(1) - 1).max() < 1e-12
    assert weights.min() >= 0
    variance = (count - 1) / (count**2 * (count + 1))
    assert np.abs(weights.mean(0) - 1 / count).max() < 4 * np.sqrt(variance / draw_count)
    # A covariance is a mean of products, so its tolerance follows from their standard deviation.
    deviations = weights - 1 / count
    products = deviations[:, :, None] * deviations[:, None, :]
    expected = np.full((count, count), -1 / (count**2 * (count + 1)))
    np.fill_diagonal(expected, variance)
    assert (np.abs(products.mean(0) - expected) < 4.5 * products.std(0) / np.sqrt(draw_count)).all()


@given(st.lists(st.floats(1e-9, 1.0), min_size=1, max_size=9))
@settings(deadline=None)
def test_weights_survive_the_way_to_their_sticks_and_back(weights):
    restored_weights = weights_of(sum(weights), sticks_of(weights))
    assert restored_weights == pytest.approx(weights, rel=1e-6)


@pytest.mark.parametrize("weights", [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0], [0.0, 0.0]])
def test_weights_of_zero_are_weights(weights):
    assert weights_of(sum(weights), sticks_of(weights)) == weights


def test_a_total_in_a_range_and_a_list_of_weights():
    space = plain(Parameter("w", Simplex(("w",), 0.1, 0.6, size=3)))
    drawn_settings = draw(space, Uniforms([0.5, 0.25, 1.0]))
    assert drawn_settings == {"w": pytest.approx([0.35 * 0.5, 0.35 * 0.5 * 0, 0.35 * 0.5], abs=1e-12)}


def test_what_optuna_is_asked_for(whole):
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=3))
    for _ in range(40):
        trial = study.ask()
        drawn_settings = draw(whole, trial)
        known_distributions = distributions(whole)
        assert {name: known_distributions[name] for name in trial.params} == trial.distributions
        assert ("train.momentum" in drawn_settings) == (drawn_settings.get("train.optimizer") == "sgd")
        assert ("train.optimizer" in drawn_settings) == (drawn_settings["train.epochs"] > 3)
        assert ("encoder.dropout" in drawn_settings) == (drawn_settings["encoder"]["name"] == "cnn_text")
    assert "objective.heads.*.weight.stick2" in trial.params
    assert not any(name.endswith(".total") for name in trial.params if "*" in name)


@pytest.mark.parametrize("seed", range(40))
def test_a_drawn_job_is_a_point_that_draws_it_again(whole, base, seed):
    drawn_settings = example(whole, seed)
    job = load_job(dump_job(base), drawn_settings)
    point = fit(whole, flat(job), flat(base))
    redrawn_settings = draw(whole, optuna.trial.FixedTrial(point))
    assert agree(redrawn_settings, drawn_settings)
    known_distributions = distributions(whole)
    assert optuna.trial.create_trial(
        value=1.0, params=point, distributions={name: known_distributions[name] for name in point}
    )


def test_the_job_as_written_is_a_point_where_it_lies_in_the_space(whole, base):
    with pytest.raises(Misfit, match="level_weights is None, the space has 2 weights"):
        fit(whole, flat(base), flat(base))
    written_job = load_job(JOB, ["objective.heads.path.options.level_weights=[1, 2]"])
    point = fit(whole, flat(written_job), flat(base))
    drawn_settings = draw(whole, optuna.trial.FixedTrial(point))
    # The classifier's weight, 1 minus the weights of the heads, is drawn as a number.
    assert drawn_settings["objective.classifier.weight"] == pytest.approx(0.4)
    assert drawn_settings["objective.heads.path.options.level_weights"] == pytest.approx([1.0, 2.0])


@pytest.mark.parametrize(
    ("entry", "written", "other"),
    [
        ("{choice: [1.0, remainder]}", {WEIGHT: 1}, {WEIGHT: 0}),
        ("{float: [0.1, 1.0], when: {train.optimizer: sgd}}", {}, {WEIGHT: 0.3, "train.optimizer": 1}),
    ],
)
def test_a_remainder_that_is_not_drawn_as_a_number_stays_one(tmp_path, entry, written, other):
    job = load_job(JOB)
    assert job.objective.classifier.weight == "remainder"
    (tmp_path / "space.yaml").write_text(
        f"space: {{{WEIGHT}: {entry}, train.optimizer: {{choice: [adamw, sgd]}}}}"
    )
    space = load_space(tmp_path / "space.yaml", job)
    for point in ({"train.optimizer": 0, **written}, {"train.optimizer": 0, **other}):
        drawn_settings = draw(space, optuna.trial.FixedTrial(point))
        assert fit(space, flat(load_job(dump_job(job), drawn_settings)), flat(job)) == point
    assert why_outside(space, job) == ""


LEVELS = "objective.heads.path.options.level_weights=[1, 2]"


@pytest.mark.parametrize(
    ("overrides", "reason"),
    [
        (["train.epochs=10"], "train.epochs is 10, the space has 1 to 9"),
        (["objective.heads.a.temperature={learned: 0.1}"], "objective.heads.a.temperature is None"),
        (["objective.heads.a.temperature=0.01"], "is 0.01, the space has 0.03 to 1"),
        (["train.lr=0.1"], "train.lr is 0.1, the swept job has 0.001"),
        (["objective.heads.path.loss=hicone"], "level_weights is [1, 2], the swept job has None"),
        (["train.momentum=0.5"], "train.momentum is 0.5, the swept job has 0.9"),
        (["train.clip_norm=3"], "train.clip_norm is 3.0, the space has"),
        (["encoder.width=8"], "encoder.width is 8"),
        (["encoder={name: resnet18}"], "encoder is"),
        (["objective.classifier.weight=0.1"], "adds up to 0.7, the space has 1 to 1"),
        (["objective.heads.path.options.level_weights=exp"], "the space has 2 weights"),
        (["objective.heads.path.options.level_weights=[1, 1, 1]"], "the space has 2 weights"),
        (
            ["objective.heads.c={loss: simclr, weight: 0}"],
            "objective.heads.c.loss is simclr, the swept job has None",
        ),
    ],
)
def test_a_job_outside_the_space_is_no_point(whole, base, overrides, reason):
    job = load_job(JOB, [LEVELS, *overrides])
    with pytest.raises(Misfit) as error:
        fit(whole, flat(job), flat(base))
    assert reason in str(error.value)


def test_keys_that_do_not_change_what_settings_are_worth(whole, base):
    free_overrides = [
        "train.seed=7",
        "train.threads=2",
        "evaluation.metric=val/macro_f1",
        "evaluation.knn.k=9",
    ]
    point = fit(whole, flat(load_job(JOB, [LEVELS])), flat(base))
    assert fit(whole, flat(load_job(JOB, [LEVELS, *free_overrides])), flat(base)) == point


def test_the_size_of_a_grid(whole):
    assert grid_size(whole) is None
    assert grid_size(plain()) == 1
    assert grid_size(plain(Parameter("a", Int(1, 4)), Parameter("b", Choice((1, 2))))) == 8
    assert grid_size(plain(Parameter("a", Float(1, 4)))) is None


def test_a_description_is_the_whole_space_in_plain_data(whole, base):
    description = describe(whole, base)
    parameters_by_name = {parameter["name"]: parameter for parameter in description["parameters"]}
    assert parameters_by_name.keys() == {parameter.name for parameter in whole.parameters}
    assert parameters_by_name["train.momentum"]["when"] == "train.optimizer is sgd"
    assert parameters_by_name["objective.heads.a.temperature"] == {
        "name": "objective.heads.a.temperature",
        "kind": "log_float",
        "low": 0.03,
        "high": 1.0,
        "scale": "log",
        "when": None,
    }
    assert description["combinations"] == "continuous"
    assert description["posthoc"]["varied"] == ["k"]
    assert description["posthoc"]["settings"] == 2 * 21 * 7
    weights = [value for key, value in description["example"].items() if key.endswith(".weight")]
    assert sum(weights) == pytest.approx(1)
