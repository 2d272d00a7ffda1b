"""Load and memory of the machine, beside the metrics of a run."""

import pytest
import torch
from builders import tiny_job

from mlcl.tracking import mlflow_listener, params_of
from mlcl.tracking.listener import system_metrics
from mlcl.training.events import Event

OF_PROCESSOR = {
    "system/cpu_utilization_percentage",
    "system/system_memory_usage_megabytes",
    "system/system_memory_usage_percentage",
}


def test_they_stand_beside_the_metrics_of_an_event_but_for_the_last(logs):
    log = logs.start()
    listen = mlflow_listener(log, system=True)
    listen(Event("step", 1, 1, 2, 3, {"train/loss": 1.0}))
    listen(Event("end", 1, 1, 3, 3, {"test/accuracy": 0.5}))
    logs.deliver("run")
    assert {name for name in logs.run().data.metrics if name.startswith("system/")} == OF_PROCESSOR
    assert [step for step, _ in logs.history("system/system_memory_usage_percentage")] == [2]


def test_a_gpus_memory_is_that_of_the_device_in_use(monkeypatch):
    told = {"is_available": True, "is_initialized": True, "current_device": 1, "mem_get_info": (2**20, 2**22)}
    for name, value in told.items():
        monkeypatch.setattr(torch.cuda, name, lambda *_, value=value: value)
    for load, names in ((lambda _: 70, {"utilization"}), (_absent, set())):
        monkeypatch.setattr(torch.cuda, "utilization", load)
        found = system_metrics()
        assert found["system/gpu_1_memory_usage_megabytes"] == 3
        assert found["system/gpu_1_memory_usage_percentage"] == pytest.approx(75)
        loads = {f"system/gpu_1_{name}_percentage" for name in names}
        memory = {f"system/gpu_1_memory_usage_{unit}" for unit in ("megabytes", "percentage")}
        assert found.keys() == OF_PROCESSOR | memory | loads


def _absent(_device):
    raise ModuleNotFoundError("pynvml does not seem to be installed")


def test_the_key_makes_no_run_another_setting(tmp_path):
    watched = tiny_job(tmp_path, "tracking.system_metrics=true")
    assert params_of(watched) == params_of(tiny_job(tmp_path))
