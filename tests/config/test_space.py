import pytest

from mlcl.config import Choice, Float, Int, Simplex, load_job, load_space
from mlcl.errors import UserError

JOB = load_job(
    {
        "experiment": "test",
        "data": {"source": "icd10cm"},
        "encoder": {"name": "cnn_text"},
        "objective": {
            "heads": {
                "a": {"loss": "supcon", "labels": "section", "weight": 0.1},
                "b": {"loss": "supcon", "labels": "chapter", "weight": 0.3},
            },
            "classifier": {"loss": "cross_entropy", "labels": "section"},
        },
        "train": {"epochs": 2, "batch_size": 8},
    }
)


def space(tmp_path, text):
    path = tmp_path / "space.yaml"
    path.write_text(text)
    return load_space(path, JOB)


def test_wildcards_meet_every_head(tmp_path):
    found = space(tmp_path, "space: {objective.heads.*.temperature: {log_float: [1e-1, 1]}}")
    assert [p.name for p in found.parameters] == [
        "objective.heads.a.temperature",
        "objective.heads.b.temperature",
    ]
    assert {p.domain for p in found.parameters} == {Float(0.1, 1.0, log=True)}


def test_every_kind(tmp_path):
    found = space(
        tmp_path,
        """
space:
  train.lr: {float: [0.001, 0.01]}
  train.epochs: {int: [1, 4]}
  train.optimizer: {choice: [adamw, sgd]}
  objective.heads.*.weight: {simplex: {total: [0.1, 0.5]}}
""",
    )
    domains = {p.name: p.domain for p in found.parameters}
    assert domains["train.lr"] == Float(0.001, 0.01)
    assert domains["train.epochs"] == Int(1, 4)
    assert domains["train.optimizer"] == Choice(("adamw", "sgd"))
    keys = ("objective.heads.a.weight", "objective.heads.b.weight")
    assert domains["objective.heads.*.weight"] == Simplex(keys, 0.1, 0.5)


def test_post_hoc_keys_become_a_grid_and_are_not_searched(tmp_path):
    found = space(
        tmp_path,
        """
space:
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


def test_the_mode_follows_the_metric(tmp_path):
    assert space(tmp_path, "space: {train.lr: {float: [0.1, 1]}}").mode == "max"
    text = "space: {train.lr: {float: [0.1, 1]}}\nsearch: {metric: val/hamming_loss}"
    assert space(tmp_path, text).mode == "min"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("space: {train.lrr: {float: [0.1, 1]}}", "names no key of the job"),
        ("space: {train.lr: {flaot: [0.1, 1]}}", "did you mean float"),
        ("space: {train.lr: {float: [1, 0.1]}}", "not a range"),
        ("space: {train.lr: {float: [0.1]}}", "not a range"),
        ("space: {train.lr: {float: [0.1, .inf]}}", "not a range"),
        ("space: {train.lr: {log_float: [0, 1]}}", "starts above 0"),
        ("space: {train.epochs: {int: [1, 2.5]}}", "not a range"),
        ("space: {train.lr: {choice: []}}", "distinct values"),
        ("space: {train.lr: {choice: [1, 1]}}", "distinct values"),
        ("space: {train.optimizer: {choice: [adamw, lion]}}", "leaves what the job allows"),
        ("space: {train.lr: {float: [-1, 1]}}", "leaves what the job allows"),
        ("space: {objective.heads.*.weight: {simplex: {total: [0.5, 1.5]}}}", "nothing remains"),
        ("space: {objective.heads.*.weight: {simplex: 1}}", "needs a total"),
        ("space: {evaluation.knn.lambda: {float: [0, 2]}}", "leaves what the job allows"),
        (
            "space: {train.lr: {float: [0.1, 1]}}\nsearch: {metric: test/accuracy}",
            "selection uses validation only",
        ),
        (
            "space: {train.lr: {float: [0.1, 1]}, train.l*: {float: [0.1, 1]}}",
            "is varied twice",
        ),
        ("space: {train.lr: {float: [0.1, 1], int: [1, 2]}}", "exactly one kind"),
        ("spaces: {}", "did you mean space"),
        ("space: {}", "names nothing to vary"),
        ("space: {train.seed: {int: [0, 3]}}", "all trials share this key"),
        ("space: {train.workers: {choice: [1, 2]}}", "all trials share this key"),
        ("space: {evaluation.metric: {choice: [val/accuracy]}}", "all trials share this key"),
    ],
)
def test_a_wrong_space_is_one_error_before_anything_starts(tmp_path, text, expected):
    with pytest.raises(UserError) as caught:
        space(tmp_path, text)
    assert expected in caught.value.line()
    assert caught.value.file.endswith("space.yaml")
