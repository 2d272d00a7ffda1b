"""Worker groups: what each worker is given, and that a group can be started from inside of an actor."""

import pytest
import ray
from builders import tiny_job

from mlcl.errors import UserError
from mlcl.service.group import _check_resources
from mlcl.tracking import RunLog


def resources(monkeypatch, total, *overrides, cpus=1, gpus=None, workers=2):
    monkeypatch.setattr(ray, "cluster_resources", lambda: total)
    return _check_resources(tiny_job(".", *overrides, workers=workers), cpus, gpus)


def test_gpus_are_used_where_there_are_enough(monkeypatch):
    auto = ("train.device=auto",)
    assert resources(monkeypatch, {"CPU": 2, "GPU": 2}, *auto) == (True, {"CPU": 1, "GPU": 1})
    assert resources(monkeypatch, {"CPU": 2, "GPU": 1}, *auto) == (False, {"CPU": 1})
    assert resources(monkeypatch, {"CPU": 2, "GPU": 1}, *auto, gpus=0.5) == (True, {"CPU": 1, "GPU": 0.5})
    assert resources(monkeypatch, {"CPU": 2, "GPU": 2}, *auto, gpus=0) == (False, {"CPU": 1})
    assert resources(monkeypatch, {"CPU": 8, "GPU": 2}, cpus=4) == (False, {"CPU": 4})


@pytest.mark.parametrize(
    ("total", "how", "allowed"),
    [
        ({"CPU": 1}, {}, "at most 1"),
        ({"CPU": 7}, {"cpus": 4}, "at most 1"),
        ({"CPU": 0.4}, {"cpus": 0.5}, "at most 0"),
    ],
)
def test_a_group_that_does_not_fit_is_refused(monkeypatch, total, how, allowed):
    with pytest.raises(UserError, match=r"train\.workers") as error:
        resources(monkeypatch, total, **how)
    assert allowed in error.value.line()


@pytest.mark.slow
def test_a_group_inside_of_an_actor(tiny, tmp_path):
    RunLog.start(
        tmp_path, "trial", uri="sqlite:///x.db", experiment="e", name="t", owner="s", params={}, tags={}
    )

    @ray.remote(num_cpus=0)
    class Trial:
        def train(self, job, home, folder, **how):
            from mlcl.service.group import run_group
            from mlcl.tracking import RunLog

            heard = []
            log = RunLog.attach(home, "trial")
            metrics = run_group(job, folder, log, home, heard.append, lambda: False, **how)
            return metrics, [event.kind for event in heard]

    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        trial = Trial.remote()
        job = tiny_job(tiny.resolve(), epochs=2, workers=2)
        metrics, heard = ray.get(trial.train.remote(job, tmp_path, tmp_path / "a", cpus=0.5, test=False))
        assert "validation" in heard
        assert "val/accuracy" in metrics
        assert "test/accuracy" not in metrics
        lines = (tmp_path / "logs" / "trial" / "log.jsonl").read_text()
        assert lines.count("train/loss") == 2
        ray.get(trial.train.remote(job, tmp_path, tmp_path / "b", cpus=0.5, log_events=False))
        assert (tmp_path / "logs" / "trial" / "log.jsonl").read_text() == lines
    finally:
        ray.shutdown()
