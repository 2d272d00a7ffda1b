"""`when`: parameters that exist only where other keys have certain values."""

import pytest

from mlcl.config import corners, load_job, load_space
from mlcl.errors import UserError
from mlcl.service.search.sampling import grid_size

HEADS = "objective.heads"
JOB = {
    "experiment": "test",
    "data": {"source": "icd10cm"},
    "encoder": {"name": "cnn_text"},
    "objective": {
        "heads": {
            "a": {"loss": "supcon", "labels": "section", "weight": 0.1},
            "b": {"loss": "msc", "labels": "section", "weight": 0.3},
        },
        "classifier": {"loss": "cross_entropy", "labels": "section"},
    },
    "train": {"epochs": 2, "batch_size": 8},
}


def space(tmp_path, text):
    path = tmp_path / "space.yaml"
    path.write_text(f"space:{text}")
    return load_space(path, load_job(JOB))


def reached(space):
    """Which parameters each corner has, and with which values."""
    return {
        key: {repr(c[key]) for c in corners(space) if key in c} for p in space.parameters for key in p.keys
    }


def test_a_condition_on_a_choice_is_drawn_after_it_and_reached_in_a_corner(tmp_path):
    found = space(
        tmp_path,
        """
  train.momentum: {float: [0.5, 0.9], when: {train.optimizer: sgd}}
  train.optimizer: {choice: [adamw, sgd]}
""",
    )
    assert [p.name for p in found.parameters] == ["train.optimizer", "train.momentum"]
    assert str(found.parameters[1].condition) == "train.optimizer is sgd"
    assert reached(found)["train.momentum"] == {"0.5", "0.9"}
    assert all(("train.momentum" in c) == (c.get("train.optimizer") == "sgd") for c in corners(found))


def test_a_star_is_the_parameters_own_head(tmp_path):
    found = space(
        tmp_path,
        """
  objective.heads.*.loss: {choice: [supcon, msc]}
  objective.heads.*.temperature: {float: [0.1, 1], when: {objective.heads.*.loss: msc}}
""",
    )
    conditions = {p.name: str(p.condition) for p in found.parameters if p.condition}
    assert conditions == {f"{HEADS}.{h}.temperature": f"{HEADS}.{h}.loss is msc" for h in "ab"}


def test_the_job_alone_settles_a_condition_on_a_key_that_is_not_varied(tmp_path):
    found = space(
        tmp_path, f" {{{HEADS}.b.temperature: {{float: [0.1, 1], when: {{{HEADS}.b.loss: [msc, jscl]}}}}}}"
    )
    assert found.parameters[0].condition is None
    with pytest.raises(UserError, match=r"does not vary this key; found: supcon; allowed: msc"):
        space(
            tmp_path,
            " {objective.heads.*.temperature: {float: [0.1, 1], when: {objective.heads.*.loss: msc}}}",
        )


def test_bounds_on_numbers(tmp_path):
    found = space(
        tmp_path,
        """
  train.lr: {log_float: [0.001, 0.1]}
  train.warmup: {float: [0.1, 0.2], when: {train.lr: {above: 0.01}, train.epochs: {above: 2, below: 5}}}
  train.epochs: {int: [1, 9]}
""",
    )
    warmup = next(p for p in found.parameters if p.name == "train.warmup")
    assert str(warmup.condition) == "train.lr is above 0.01, train.epochs is above 2 and below 5"
    assert warmup.exists({"train.lr": 0.02, "train.epochs": 3})
    assert not warmup.exists({"train.lr": 0.01, "train.epochs": 3})
    assert not warmup.exists({"train.lr": 0.02, "train.epochs": 5})
    assert reached(found)["train.warmup"] == {"0.1", "0.2"}


def test_a_chain_falls_back_on_the_jobs_own_value(tmp_path):
    """Where a parameter does not exist, conditions on it see the job's value: here adamw's momentum, 0.9."""
    found = space(
        tmp_path,
        """
  train.optimizer: {choice: [adamw, sgd]}
  train.momentum: {choice: [0.5, 0.6], when: {train.optimizer: sgd}}
  train.warmup: {choice: [0.1, 0.2, 0.3], when: {train.momentum: [0.6, 0.9]}}
""",
    )
    warmup = found.parameters[-1]
    assert warmup.name == "train.warmup"
    assert warmup.exists({"train.optimizer": "adamw"})
    assert not warmup.exists({"train.optimizer": "sgd", "train.momentum": 0.5})
    assert grid_size(found) == 3 + 1 + 3


def test_keys_of_a_section_that_is_chosen_whole(tmp_path):
    found = space(
        tmp_path,
        """
  encoder: {choice: [{name: cnn_text}, {name: transformer, model: folder}]}
  encoder.dropout: {choice: [0.1, 0.2], when: {encoder.name: cnn_text}}
  encoder.pooling: {choice: [cls, mean], when: {encoder.name: transformer}}
""",
    )
    jobs = [load_job(JOB, corner) for corner in corners(found)]
    assert {job.encoder.name for job in jobs} == {"cnn_text", "transformer"}
    assert {job.encoder.pooling for job in jobs if job.encoder.name == "transformer"} == {"cls", "mean"}
    assert grid_size(found) == 4


def test_a_simplex_may_have_a_condition(tmp_path):
    found = space(
        tmp_path,
        """
  train.optimizer: {choice: [adamw, sgd]}
  objective.heads.*.weight: {simplex: {total: 0.5}, when: {train.optimizer: sgd}}
""",
    )
    assert reached(found)["objective.heads.a.weight"] == {"0.25"}


def test_the_grid_counts_each_branch_by_itself(tmp_path):
    found = space(
        tmp_path,
        """
  train.epochs: {int: [1, 1000000000]}
  train.optimizer: {choice: [adamw, sgd], when: {train.epochs: {above: 999999998}}}
""",
    )
    assert grid_size(found) == 999_999_998 + 2 * 2


@pytest.mark.parametrize(
    ("text", "key", "expected"),
    [
        (
            """
  train.optimizer: {choice: [adamw, sgd], when: {train.momentum: 0.5}}
  train.momentum: {choice: [0.5, 0.9], when: {train.optimizer: sgd}}""",
            "space.train.",
            "run in a circle",
        ),
        (
            " {train.lr: {float: [0.1, 1], when: {train.lr: {above: 0.5}}}}",
            "space.train.lr",
            "run in a circle",
        ),
        (
            """
  train.optimizer: {choice: [adamw]}
  train.momentum: {float: [0.5, 0.9], when: {train.optimizer: sgd}}""",
            "space.train.momentum",
            "can never hold; found: train.optimizer is sgd",
        ),
        (
            """
  train.lr: {float: [0.1, 1]}
  train.momentum: {float: [0.5, 0.9], when: {train.lr: 0.5}}""",
            "space.train.momentum",
            "for a continuous range {above: x}",
        ),
        (
            """
  train.lr: {float: [0.1, 1]}
  train.momentum: {float: [0.5, 0.9], when: {train.lr: {above: 1}}}""",
            "space.train.momentum",
            "can never hold",
        ),
        (
            """
  train.optimizer: {choice: [adamw, sgd]}
  train.lr: {choice: [0.1, 0.2], when: {train.optimizer: sgd}}
  train.momentum: {float: [0.5, 0.9], when: {train.lr: 0.1, train.optimizer: adamw}}""",
            "space.train.momentum",
            "can never hold",
        ),
        (
            " {train.lr: {float: [0.1, 1], when: {evaluation.knn.k: 5}}}",
            "space.train.lr.when.evaluation.knn.k",
            "no trial has one of them",
        ),
        (" {evaluation.knn.k: {choice: [1], when: {train.lr: 1}}}", "space.evaluation.knn.k", "no condition"),
        (
            """
  objective.heads.*.weight: {simplex: {total: 0.5}}
  train.lr: {float: [0.1, 1], when: {objective.heads.a.weight: {above: 0.1}}}""",
            "space.train.lr.when.objective.heads.a.weight",
            "other weights of a simplex",
        ),
        (
            " {train.lr: {float: [0.1, 1], when: {objective.heads.*.loss: msc}}}",
            "space.train.lr.when.objective.heads.*.loss",
            "does not bind",
        ),
        (
            " {train.lr: {float: [0.1, 1], when: {train.optimiser: sgd}}}",
            "space.train.lr.when.train.optimiser",
            "did you mean train.optimizer",
        ),
        (
            " {train.lr: {float: [0.1, 1], when: {encoder: x}}}",
            "space.train.lr.when.encoder",
            "whole section",
        ),
        (" {train.lr: {float: [0.1, 1], when: {train.epochs: []}}}", "space.train.lr", "lists no value"),
        (
            " {train.lr: {float: [0.1, 1], when: {train.epochs: {over: 1}}}}",
            "space.train.lr.when.train.epochs",
            "{above: x}",
        ),
        (
            " {train.lr: {float: [0.1, 1], when: {train.epochs: {above: a}}}}",
            "space.train.lr",
            "no condition",
        ),
        (" {train.lr: {float: [0.1, 1], when: sgd}}", "space.train.lr.when", "a section with keys"),
        (" {train.lr: {float: [0.1, 1], when: {}}}", "space.train.lr.when", "at least 1 item"),
        (
            """
  train.optimizer: {choice: [adamw, sgd]}
  train.momentum: {float: [0.5, 1.5], when: {train.optimizer: sgd}}""",
            "space (train.momentum)",
            "leaves what the job allows",
        ),
    ],
)
def test_a_condition_that_cannot_be(tmp_path, text, key, expected):
    with pytest.raises(UserError) as caught:
        space(tmp_path, text)
    assert caught.value.key.startswith(key)
    assert expected in caught.value.line()
