"""Tests of `train.precision: auto`: the chosen precision, and the trainings that share a measurement."""

import pytest
import torch
from builders import tiny_job

from mlcl.grad_cache import rng_state
from mlcl.training import precision as precision_module
from mlcl.training.job_data import JobData
from mlcl.training.precision import FOLDER, faster_precision
from mlcl.training.step_precision import in_precision, step_precision

CPU = torch.device("cpu")


def unexpected():
    raise AssertionError("measured twice")


@pytest.mark.parametrize(
    ("bf16", "chosen"), [(0.5, "bf16"), (0.9, "bf16"), (0.95, "float32"), (1.5, "float32")]
)
def test_bf16_is_chosen_where_it_is_clearly_faster_and_measured_once(bf16, chosen, tmp_path, monkeypatch):
    monkeypatch.setattr(
        precision_module,
        "_time_precisions",
        lambda _, step: {"float32": step("float32") and 1.0, "bf16": bf16},
    )
    calls = []
    assert faster_precision(tmp_path, CPU, {"step": 1}, lambda: lambda p: not calls.append(p)) == chosen
    assert faster_precision(tmp_path, CPU, {"step": 1}, unexpected) == chosen
    assert calls == ["float32"]
    with pytest.raises(AssertionError, match="twice"):
        faster_precision(tmp_path, CPU, {"step": 2}, unexpected)


def test_both_precisions_take_turns(monkeypatch):
    monkeypatch.setattr(precision_module, "ENOUGH", 0.0)
    calls = []
    fastest = precision_module._time_precisions(CPU, calls.append)
    assert calls == ["float32", "bf16"] * 2
    assert all(seconds > 0 for seconds in fastest.values())


def test_a_step_is_timed_once_for_all_seeds_and_rates(tiny, tmp_path, monkeypatch):
    """Tests that jobs with other seeds, rates or epochs share a measurement, and other encoders do not."""
    monkeypatch.setattr(precision_module, "ENOUGH", 0.0)
    state = rng_state()["cpu"]

    def measured(*overrides):
        precision = step_precision(JobData.of(tiny_job(tiny, "train.precision=auto", *overrides), tmp_path))
        assert precision in ("float32", "bf16")
        return len(list((tmp_path / "cache" / FOLDER).glob("*.json")))

    assert measured() == measured("train.seed=3", "train.lr=0.5", "train.epochs=7") == 1
    assert measured("encoder.width=12", "train.micro_batch_size=3") == 2
    torch.testing.assert_close(rng_state()["cpu"], state)


def test_only_auto_is_replaced(tiny):
    job = tiny_job(tiny, "train.precision=auto")
    assert in_precision(job, "bf16") == tiny_job(tiny, "train.precision=bf16")
    assert in_precision(in_precision(job, "bf16"), "float32").train.precision == "bf16"
