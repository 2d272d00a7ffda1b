"""Tests that metrics computed from a run's stored embeddings equal the logged ones, also over a grid."""

import pytest
import torch
from builders import tiny_job
from stored_runs import TASKS, trained

from mlcl.errors import UserError
from mlcl.evaluation import Setting
from mlcl.training.context import Context
from mlcl.training.embeddings import RankRows
from mlcl.training.evaluator import Evaluation
from mlcl.training.job_data import JobData
from mlcl.training.run_files import EMBEDDINGS, read_embeddings, write_embeddings
from mlcl.training.stored_run import StoredRun

METRIC = {"single": "accuracy", "multi_label": "micro_f1", "aspects": "accuracy"}


@pytest.fixture(scope="module", params=TASKS)
def finished(request, tiny, tmp_path_factory):
    home = tmp_path_factory.mktemp("home")
    folder, job_data, _ = trained(tiny, home, *TASKS[request.param], "evaluation.threshold=0.5")
    return folder, job_data, StoredRun.read(folder, job_data)


def test_every_point_equals_the_setting_alone(finished):
    folder, job_data, run = finished
    table = run.grid([3, 1, 5], [1.0, 0.0, 0.4], [2.0, 0.3])
    expected = []
    for k in (1, 3, 5):
        for lambda_ in (0.0, 0.4, 1.0):
            for temperature in (0.3, 2.0):
                metrics = StoredRun.read(folder, job_data).metrics(Setting(k, lambda_, temperature))
                values = [metrics[f"knn/{split}/{METRIC[job_data.task]}"] for split in ("val", "test")]
                expected.append((k, lambda_, temperature, *values))
    assert table.dtype.names == ("k", "lambda", "temperature", "val", "test")
    assert table.tolist() == expected


def test_a_k_beyond_the_rows_becomes_their_number(finished, caplog):
    _, job_data, run = finished
    assert run.grid([500], [1.0], [1.0])["k"].tolist() == [len(job_data.train)]
    assert not caplog.text


def test_an_empty_grid_is_refused(finished):
    with pytest.raises(ValueError, match="grid"):
        finished[2].grid([], [1.0], [1.0])


def as_sets(run, split):
    """Returns each row's labels, class or (aspect, rating) pairs, without missing ratings."""
    targets = run.job_data.targets(run.split(split))
    if run.job_data.task == "multi_label":
        return [set(row) for row in targets.lists()]
    if run.job_data.task == "single":
        return [{int(c)} for c in targets]
    return [{(aspect, int(c)) for aspect, c in enumerate(row) if c >= 0} for row in targets]


def test_overlap_equals_a_loop(finished):
    _, _, run = finished
    train, test = as_sets(run, "train"), as_sets(run, "test")
    differences = run.embeddings["test"][:, None].double() - run.embeddings["train"].double()
    order = differences.norm(dim=-1).float().argsort(dim=1, stable=True)
    for k, overlap in zip((1, 4), run.overlap((1, 4)), strict=True):
        shares = []
        for query_labels, nearest in zip(test, order[:, :k].tolist(), strict=True):
            neighbour_labels = [label for row in nearest for label in train[row]]
            if run.job_data.task == "aspects":  # only aspects that the query rates count
                neighbour_labels = [
                    (aspect, c) for aspect, c in neighbour_labels if aspect in dict(query_labels)
                ]
            if neighbour_labels:
                shares.append(
                    sum(label in query_labels for label in neighbour_labels) / len(neighbour_labels)
                )
        assert overlap == pytest.approx(sum(shares) / len(shares))


def test_label_rows_hold_what_is_predicted(finished):
    _, _, run = finished
    counts = run.labels("test").counts().tolist()
    assert counts == [len(row) for row in as_sets(run, "test")]


def test_overlap_without_labels_is_not_a_number(tiny, tmp_path, monkeypatch):
    folder, job_data, _ = trained(tiny, tmp_path, epochs=1)
    run = StoredRun.read(folder, job_data)
    monkeypatch.setattr(type(job_data), "targets", lambda _, split: torch.full((len(split),), -1))
    assert all(overlap != overlap for overlap in run.overlap((1, 3)))


def test_a_run_that_never_read_the_test_split(tiny, tmp_path):
    folder, job_data, metrics = trained(tiny, tmp_path, test=False)
    with pytest.raises(UserError, match="left no embeddings of test rows"):
        StoredRun.read(folder, job_data)
    run = StoredRun.read(folder, job_data, test=False)
    [(*_, val, test)] = run.grid([3], [0.5], [1.0]).tolist()
    assert not run.tested
    assert val == metrics["knn/val/accuracy"]
    assert test != test
    assert 0 <= run.overlap((1,), "validation")[0] <= 1


def test_missing_or_other_embeddings_are_refused(tiny, tmp_path):
    folder, job_data, _ = trained(tiny, tmp_path, epochs=1)
    with pytest.raises(UserError, match="embeddings of other train rows"):
        StoredRun.read(folder, JobData.of(tiny_job(tiny, "data.subset.n=20", epochs=1), tmp_path))
    (folder / EMBEDDINGS).unlink()
    with pytest.raises(UserError, match="cannot be read"):
        StoredRun.read(folder, job_data)


@pytest.mark.parametrize("part", ["train", "test"])
@pytest.mark.parametrize(
    ("largest", "elsewhere", "kind"),
    [(16.0, False, "halffloat"), (16.0, True, "float"), (17.0, False, "float"), (2e5, False, "float")],
)
def test_large_embeddings_of_any_rank_are_not_rounded(
    tiny, tmp_path, monkeypatch, part, largest, elsewhere, kind
):
    job_data = JobData.of(tiny_job(tiny), tmp_path)
    rows = {"train": job_data.train, "test": job_data.dataset.split("test")}
    values = {name: torch.full((len(split), 2), 0.5) for name, split in rows.items()}
    values[part][1, 1] = -largest
    expected = torch.cat([*values.values()]).tolist()
    if elsewhere:
        monkeypatch.setattr(Context, "any", lambda *_: True)
    result = Evaluation(RankRows(values.pop("train")), {}, values, {})
    write_embeddings(tmp_path, job_data, result, "float16")
    column = read_embeddings(tmp_path / EMBEDDINGS)["embedding"]
    assert str(column.type.value_type) == kind
    assert column.to_pylist() == expected
