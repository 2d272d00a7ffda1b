"""A training whose validation rows are drawn anew: what it reads, what it ends with, and how it resumes."""

import itertools
import json

import pytest
from builders import tiny_job
from safetensors.torch import load_file

from mlcl.config.job import dump_job, job_hash
from mlcl.training.context import Context
from mlcl.training.events import Stopped
from mlcl.training.experiment import run_experiment
from mlcl.training.job_data import JobData


def run(job, home, folder, **how):
    context = Context.current(job.train.device)
    return run_experiment(
        JobData.of(job, home), folder=folder, context=context, listener=lambda event: None, **how
    )


def test_a_training_resumes_on_the_validation_rows_of_its_seed_and_never_on_others(tiny, tmp_path):
    job = tiny_job(tiny, "data.validation_seed=3", checkpoint_every=2)
    run(job, tmp_path, tmp_path / "whole")
    steps = itertools.count(1)
    with pytest.raises(Stopped):
        run(job, tmp_path, tmp_path / "parts", should_stop=lambda: next(steps) == 5)
    assert run(job, tmp_path, tmp_path / "parts").resumed
    whole, parts = (
        load_file(tmp_path / name / "model" / "weights.safetensors") for name in ("whole", "parts")
    )
    assert all(whole[name].equal(parts[name]) for name in whole)
    results = [json.loads((tmp_path / name / "result.json").read_text()) for name in ("whole", "parts")]
    assert results[0] == results[1]


def test_features_that_are_fitted_follow_the_training_rows_and_test_stays(tiny, tmp_path):
    plain, drawn = (JobData.of(tiny_job(tiny, *keys), tmp_path) for keys in ((), ("data.validation_seed=3",)))
    assert drawn.fingerprint != plain.fingerprint
    assert drawn.train.fingerprint != plain.train.fingerprint
    assert len(drawn.train) == len(plain.train)
    assert drawn.dataset.split("test").ids == plain.dataset.split("test").ids


def test_a_job_without_the_key_has_neither_entry_nor_another_hash(tiny):
    plain, null, drawn = (
        tiny_job(tiny, *keys) for keys in ((), ("data.validation_seed=null",), ("data.validation_seed=0",))
    )
    assert "validation_seed" not in dump_job(plain)["data"]
    assert job_hash(plain) == job_hash(null) != job_hash(drawn)
