"""The same run on a GPU."""

import pytest
import torch
from builders import tiny_job
from safetensors.torch import load_file

from mlcl.training.context import Context
from mlcl.training.events import Stopped
from mlcl.training.experiment import run_experiment
from mlcl.training.job_data import JobData

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def run(job, home, folder, **how):
    context = Context.current("cuda")
    return run_experiment(
        JobData.of(job, home), folder=folder, context=context, listener=lambda _: None, **how
    )


@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_a_run_learns_on_a_gpu(tiny, tmp_path, precision):
    job = tiny_job(tiny, "train.device=cuda", precision=precision, epochs=12)
    outcome = run(job, tmp_path, tmp_path / "run")
    assert outcome.metrics["test/accuracy"] > 0.8


def test_a_deterministic_run_that_is_resumed_ends_with_the_same_bits(tiny, tmp_path):
    job, steps = tiny_job(tiny, "train.device=cuda", "train.deterministic=true"), []
    run(job, tmp_path, tmp_path / "whole")

    def stop():
        steps.append(1)
        return len(steps) == 3

    with pytest.raises(Stopped):
        run(job, tmp_path, tmp_path / "parts", should_stop=stop)
    assert run(job, tmp_path, tmp_path / "parts").resumed
    whole, parts = (load_file(tmp_path / name / "model/weights.safetensors") for name in ("whole", "parts"))
    assert all(torch.equal(parts[name], weight) for name, weight in whole.items())
