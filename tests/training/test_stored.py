"""Neighbours' figures from what a run left: the same as the run's own."""

import pytest
import torch
from builders import tiny_job
from stored_runs import TASKS

from mlcl.errors import UserError
from mlcl.evaluation import Setting
from mlcl.training.context import Context
from mlcl.training.experiment import run_experiment
from mlcl.training.job_data import JobData
from mlcl.training.run_files import EMBEDDINGS
from mlcl.training.stored_run import StoredRun


def run(job, folder):
    job_data = JobData.of(job, folder)
    outcome = run_experiment(
        job_data, folder=folder / "run", context=Context(torch.device("cpu")), listener=lambda _: None
    )
    return job_data, outcome.metrics


@pytest.mark.parametrize("settings", TASKS.values(), ids=TASKS)
def test_any_setting_gives_what_the_run_logged_under_it(tiny, tmp_path, settings):
    knn = ("evaluation.knn.k=3", "evaluation.knn.lambda=0.7", "evaluation.knn.temperature=2.0")
    job_data, metrics = run(tiny_job(tiny, *settings, *knn, epochs=2), tmp_path)
    found = StoredRun.read(tmp_path / "run", job_data).metrics(Setting(3, 0.7, 2.0))
    logged = {n: v for n, v in metrics.items() if n.startswith("knn/")}
    assert found == pytest.approx(logged, nan_ok=True)
    assert ("knn/test/neighbour_overlap" in found) == (settings == TASKS["multi_label"])
    assert ("knn/test/accuracy_topic" in found) == (settings == ())


def test_lambda_0_is_the_model_alone(tiny, tmp_path):
    job_data, metrics = run(tiny_job(tiny, epochs=2), tmp_path)
    found = StoredRun.read(tmp_path / "run", job_data).metrics(Setting(5, 0.0, 1.0))
    assert found["knn/test/accuracy"] == metrics["test/accuracy"]
    assert found["knn/val/macro_f1"] == pytest.approx(metrics["val/macro_f1"])


def test_missing_or_other_embeddings_are_refused(tiny, tmp_path):
    job_data, _ = run(tiny_job(tiny, epochs=1), tmp_path)
    other = JobData.of(tiny_job(tiny, "data.subset.n=20", epochs=1), tmp_path)
    with pytest.raises(UserError, match="embeddings of other train rows"):
        StoredRun.read(tmp_path / "run", other).metrics(Setting(1, 1.0, 1.0))
    (tmp_path / "run" / EMBEDDINGS).unlink()
    with pytest.raises(UserError, match="cannot be read"):
        StoredRun.read(tmp_path / "run", job_data).metrics(Setting(1, 1.0, 1.0))
