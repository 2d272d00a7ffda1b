"""Space files: what they resolve to, and what they are refused for."""

import pytest
import yaml

from mlcl.config import Choice, Float, Goal, Int, Simplex, corners, load_job, load_space
from mlcl.errors import UserError

JOB = {
    "experiment": "test",
    "data": {"source": "icd10cm"},
    "encoder": {"name": "cnn_text"},
    "objective": {
        "heads": {
            "a": {"loss": "supcon", "labels": "section", "weight": 0.1},
            "b": {"loss": "himulcone", "labels": "path", "weight": 0.3, "temperature": {"learned": 0.2}},
        },
        "classifier": {"loss": "cross_entropy", "labels": "section"},
    },
    "train": {"epochs": 2, "batch_size": 8},
}


def space(tmp_path, text, search="{}", overrides=()):
    path = tmp_path / "space.yaml"
    path.write_text(f"space: {text}\nsearch: {search}")
    return load_space(path, load_job(JOB, list(overrides)))


def refused(tmp_path, text, search="{}"):
    with pytest.raises(UserError) as caught:
        space(tmp_path, text, search)
    assert caught.value.file.endswith("space.yaml")
    return caught.value


def domains(space):
    return {parameter.name: parameter.domain for parameter in space.parameters}


def test_wildcards_meet_every_head_and_replace_what_a_head_has(tmp_path):
    found = space(tmp_path, "{objective.heads.*.temperature: {log_float: [1e-1, 1]}}")
    names = ["objective.heads.a.temperature", "objective.heads.b.temperature"]
    assert domains(found) == dict.fromkeys(names, Float(0.1, 1.0, log=True))
    assert corners(found)[0] == dict.fromkeys(names, 0.1)


def test_every_kind(tmp_path):
    found = domains(
        space(
            tmp_path,
            """
  train.lr: {float: [0.001, 0.01]}
  train.epochs: {int: [1, 4]}
  train.optimizer: {choice: [adamw, sgd]}
  objective.heads.*.weight: {simplex: {total: [0.1, 0.5]}}
  objective.heads.b.options.level_weights: {simplex: {total: 2, size: 2}}
""",
        )
    )
    keys = ("objective.heads.a.weight", "objective.heads.b.weight")
    levels = "objective.heads.b.options.level_weights"
    assert found == {
        "train.lr": Float(0.001, 0.01),
        "train.epochs": Int(1, 4),
        "train.optimizer": Choice(("adamw", "sgd")),
        "objective.heads.*.weight": Simplex(keys, 0.1, 0.5),
        levels: Simplex((levels,), 2.0, 2.0, size=2),
    }


def test_a_simplex_over_the_heads_and_the_classifier(tmp_path):
    text = "{objective.heads.*.weight: {simplex: {total: 1.0, with: [objective.classifier.weight]}}}"
    found = space(tmp_path, text)
    (weights,) = (parameter.domain for parameter in found.parameters)
    assert weights.count == 3
    assert weights.keys[-1] == "objective.classifier.weight"
    assert corners(found)[0] == pytest.approx(dict.fromkeys(weights.keys, 1 / 3))


def test_a_choice_is_resolved_as_the_job_resolves_it(tmp_path):
    found = domains(
        space(
            tmp_path,
            "{encoder: {choice: [{name: cnn_text}, {name: transformer, model: x}]}, train.lr: {choice: [1]}}",
        )
    )
    cnn, transformer = found["encoder"].values
    assert cnn["dropout"] == 0.5
    assert transformer.items() >= {"model": "x", "pooling": "cls", "max_length": 128}.items()
    assert transformer["gradient_checkpointing"] is False
    assert isinstance(found["train.lr"].values[0], float)


def test_samplers_can_be_searched_whole_or_by_their_keys(tmp_path):
    whole = space(tmp_path, "{train.sampler: {choice: [uniform, {name: pk, k: 2}]}}")
    chosen = [load_job(JOB, corner).train.sampler for corner in corners(whole)]
    assert {(sampler.name, sampler.k) for sampler in chosen} == {("uniform", None), ("pk", 2)}
    keys = """{train.sampler.name: {choice: [uniform, pk]},
               train.sampler.k: {choice: [2, 4], when: {train.sampler.name: pk}}}"""
    chosen = [load_job(JOB, corner).train.sampler for corner in corners(space(tmp_path, keys))]
    assert {(sampler.name, sampler.k) for sampler in chosen} == {("uniform", None), ("pk", 2), ("pk", 4)}


def test_post_hoc_keys_become_a_grid_and_are_not_searched(tmp_path):
    found = space(
        tmp_path,
        """
  evaluation.knn.k: {choice: [1, 5]}
  evaluation.knn.lambda: {float: [0, 1]}
  evaluation.knn.temperature: {log_float: [0.01, 1]}
""",
    )
    assert found.parameters == ()
    assert found.posthoc["evaluation.knn.grid.k"] == (1, 5)
    lambdas = found.posthoc["evaluation.knn.grid.lambda"]
    assert (lambdas[0], lambdas[10], lambdas[-1]) == (0.0, 0.5, 1.0)
    assert found.posthoc["evaluation.knn.grid.temperature"][10] == pytest.approx(0.1)


LR = "{train.lr: {float: [0.1, 1]}}"


def test_goals_and_their_modes(tmp_path):
    assert space(tmp_path, LR).goals == (Goal("val/accuracy", "max"),)
    assert space(tmp_path, LR, "{metric: val/hamming_loss}").mode == "min"
    assert space(tmp_path, LR, "{metric: val/hamming_loss_at_half}").mode == "min"
    assert space(tmp_path, LR, "{metric: val/loss}").mode == "min"
    assert space(tmp_path, LR, "{metric: val/gloss}").mode == "max"
    several = space(tmp_path, LR, "{metric: [val/macro_f1, val/loss], prune_by: val/loss}")
    assert several.goals == (Goal("val/macro_f1", "max"), Goal("val/loss", "min"))
    assert several.multi
    assert (several.metric, several.mode) == ("val/loss", "min")
    alone = space(tmp_path, LR, "{metric: [val/map, knn/val/map], mode: min, scheduler: none}")
    assert alone.prune_by == Goal("val/map", "min")
    assert [goal.mode for goal in alone.goals] == ["min", "min"]


@pytest.mark.parametrize(
    ("search", "key", "expected"),
    [
        ("{metric: test/accuracy}", "search.metric", "selection uses validation only"),
        ("{metric: [val/map, val/map]}", "search.metric", "names a metric twice"),
        ("{metric: []}", "search.metric", "at least 1 item"),
        ("{metric: 3}", "search.metric", "a list"),
        ("{metric: [val/map, val/loss]}", "search.prune_by", "name it; allowed: val/map, val/loss"),
        ("{metric: [val/map, val/loss], prune_by: val/los}", "search.prune_by", "did you mean val/loss"),
        ("{metric: val/map, mode: [max, min]}", "search.mode", "neither one for all"),
        ("{metric: [val/map, val/loss], scheduler: none, sampler: cmaes}", "search.sampler", "one metric"),
        ("{sampler: brute_force}", "search.sampler", "found: train.lr; allowed: choice and int"),
        ("{sampler: tpf}", "search.sampler", "brute_force"),
        ("{startupp: 3}", "search.startupp", "did you mean startup"),
    ],
)
def test_a_search_that_cannot_be(tmp_path, search, key, expected):
    error = refused(tmp_path, LR, search)
    assert error.key == key
    assert expected in error.line()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{train.lrr: {float: [0.1, 1]}}", "did you mean train.lr?"),
        ("{objective.heads.*.temprature: {float: [0.1, 1]}}", ".temperature?"),
        ("{objective.heads.c.options.x: {choice: [1]}}", "names no key of the job"),
        ("{train.lr: {flaot: [0.1, 1]}}", "did you mean float"),
        ("{train.lr: {float: [1, 0.1]}}", "not a range"),
        ("{train.lr: {float: [0.1]}}", "not a range"),
        ("{train.lr: {float: [0.1, .inf]}}", "not a range"),
        ("{train.lr: {log_float: [0, 1]}}", "starts above 0"),
        ("{train.epochs: {int: [1, 2.5]}}", "not a range"),
        ("{train.lr: {choice: []}}", "distinct values"),
        ("{train.lr: {choice: [1, 1]}}", "distinct values"),
        ("{train.lr: {choice: [1, 1.0]}}", "distinct values"),
        ("{train.optimizer: {choice: [adamw, lion]}}", "leaves what the job allows"),
        ("{train.lr: {float: [-1, 1]}}", "leaves what the job allows"),
        ("{encoder: {choice: [{name: cnn_text, widht: 3}]}}", "did you mean width"),
        ("{objective.heads.*.weight: {simplex: {total: [0.5, 1.5]}}}", "nothing remains"),
        ("{objective.heads.*.weight: {simplex: 1}}", "should be a section with keys"),
        ("{objective.heads.*.weight: {simplex: {size: 2}}}", "simplex.total: missing key"),
        ("{objective.heads.*.weight: {simplex: {total: -1}}}", "needs a total above 0"),
        ("{objective.heads.*.weight: {simplex: {total: [-1, 1]}}}", "not negative"),
        (
            "{objective.heads.*.weight: {simplex: {total: 1, of: 2}}}",
            "unknown key; found: of; allowed: size, total, with",
        ),
        ("{objective.heads.*.weight: {simplex: {total: 1, with: objective}}}", "should be a list"),
        ("{objective.heads.*.weight: {simplex: {total: 1, with: [objective.x.weight]}}}", "names no key"),
        (
            "{objective.heads.*.weight: {simplex: {total: 1, with: [objective.heads.a.weight]}}}",
            "varied twice",
        ),
        (
            "{objective.heads.b.options.level_weights: {simplex: {total: 1, size: 1}}}",
            "greater than or equal to 2",
        ),
        ("{objective.heads.b.options.x: {simplex: {total: 1, size: 2, with: [train.lr]}}}", "not both"),
        ("{evaluation.knn.lambda: {float: [0, 2]}}", "leaves what the job allows"),
        ("{evaluation.knn.k: {simplex: {total: 1}}}", "not a set of weights"),
        ("{evaluation.knn: {choice: [{k: 3}]}}", "all trials share this key"),
        ("{train.lr: {float: [0.1, 1]}, train.l*: {float: [0.1, 1]}}", "is varied twice"),
        (
            "{objective.heads.b.temperature: {float: [0.1, 1]}, objective.heads.b.temperature.learned: "
            "{float: [0.1, 1]}}",
            "is varied twice",
        ),
        ("{train.lr: {float: [0.1, 1], int: [1, 2]}}", "exactly one kind"),
        ("{train.lr: {when: {train.epochs: 2}}}", "exactly one kind"),
        ("{}", "key space: should have at least 1 item"),
        ("{train.seed: {int: [0, 3]}}", "all trials share this key"),
        ("{train.workers: {choice: [1, 2]}}", "all trials share this key"),
        ("{train: {choice: [{epochs: 2, batch_size: 2}]}}", "all trials share this key"),
        ("{evaluation.metric: {choice: [val/accuracy]}}", "all trials share this key"),
    ],
)
def test_a_wrong_space_is_one_error_before_anything_starts(tmp_path, text, expected):
    assert expected in refused(tmp_path, text).line()


def test_an_unknown_part_of_the_file(tmp_path):
    path = tmp_path / "space.yaml"
    path.write_text(yaml.safe_dump({"spaces": {}}))
    with pytest.raises(UserError, match="did you mean space"):
        load_space(path, load_job(JOB))


def test_a_brute_force_search_of_choices_and_whole_numbers(tmp_path):
    text = "{train.epochs: {int: [1, 3]}, train.optimizer: {choice: [adamw, sgd]}}"
    assert space(tmp_path, text, "{sampler: brute_force}").search.sampler == "brute_force"
