"""The same run on a GPU."""

import pytest
import torch
from builders import tiny_job

from mlcl.training.context import Context
from mlcl.training.experiment import run_experiment
from mlcl.training.job_data import JobData

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_a_run_learns_on_a_gpu(tiny, tmp_path, precision):
    job = tiny_job(tiny, "train.device=cuda", precision=precision, epochs=12)
    outcome = run_experiment(
        JobData.of(job, tmp_path),
        folder=tmp_path / "run",
        context=Context.current("cuda"),
        listener=lambda _: None,
    )
    assert outcome.metrics["test/accuracy"] > 0.8
