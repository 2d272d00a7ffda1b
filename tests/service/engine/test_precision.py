"""Tests that the command decides on `train.precision: auto`, and that a resumed training keeps the choice."""

import pytest
from builders import tiny_job
from service.search.test_sweep_plan import plan_of

from mlcl.config import job_hash, load_job
from mlcl.errors import UserError
from mlcl.service.engine import precision
from mlcl.service.engine.ledger import Ledger
from mlcl.service.run_job import run_job
from mlcl.service.search.sweep_plan import complete_plan
from mlcl.store import RunFolders
from mlcl.tracking import State
from mlcl.training.events import Stopped
from mlcl.training.job_data import JobData

AUTO = "train.precision=auto"


def measure(monkeypatch, chosen):
    monkeypatch.setattr(precision, "step_precision", lambda _: chosen)


def stop(event):
    if event.kind == "validation" and event.epoch == 2:
        raise Stopped


def test_a_run_trains_in_what_was_measured_and_goes_on_in_it(tiny, tmp_path, monkeypatch):
    """Tests that a resumed run keeps the first precision, even if a later measurement chooses another."""
    measure(monkeypatch, "bf16")
    first_run = run_job(tiny_job(tiny, AUTO, epochs=2), home=tmp_path, listener=stop)
    measure(monkeypatch, "float32")
    resumed_run = run_job(tiny_job(tiny, AUTO, epochs=2), home=tmp_path, listener=lambda _: None)
    assert (resumed_run.id, resumed_run.state, resumed_run.resumed) == (first_run.id, State.COMPLETE, True)
    record = RunFolders(tmp_path).find(first_run.id).record
    assert (
        record.job_hash == resumed_run.job_hash == job_hash(tiny_job(tiny, "train.precision=bf16", epochs=2))
    )
    assert load_job(resumed_run.folder / "model" / "job.yaml").train.precision == "bf16"


@pytest.mark.parametrize(("begun", "chosen"), [(None, "bf16"), ("float32", "float32"), ("bf16", "bf16")])
def test_all_jobs_of_a_sweep_take_one_precision(begun, chosen, tiny, tmp_path, monkeypatch):
    measure(monkeypatch, "bf16")
    job, control = tiny_job(tiny, AUTO), tiny_job(tiny, AUTO, "objective.heads={}")
    plan = plan_of(tmp_path, job, control=control, baselines=[("given", tiny_job(tiny))])
    if begun is not None:
        head = {"job_hash": job_hash(tiny_job(tiny, f"train.precision={begun}"))}
        folder = RunFolders(tmp_path, "sweeps").new_folder()
        folder.open(experiment="e", fingerprint="d", log="l", uri="u", name=plan.name, **head)
        Ledger(folder.path).append("sweep", id="s", name=plan.name, **head)
    completed_plan = complete_plan(plan, JobData.of(job, tmp_path), tmp_path)
    assert (completed_plan.job.train.precision, completed_plan.control.train.precision) == (chosen, chosen)
    assert [baseline.train.precision for _, baseline in completed_plan.baselines] == ["float32"]


@pytest.mark.parametrize("gpus", [1, None])
def test_a_process_without_the_trainings_gpu_does_not_measure(gpus, tiny, tmp_path, monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", "host:1")
    job_data = JobData.of(tiny_job(tiny, AUTO, "train.device=auto"), tmp_path)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(UserError, match="has no GPU, unlike the trainings"):
        precision.decide_precision(job_data, gpus, lambda _: False)
