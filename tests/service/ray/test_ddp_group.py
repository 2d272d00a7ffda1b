"""Worker groups: what each worker is given, and that a group can be started from inside of an actor."""

from contextlib import nullcontext
from types import SimpleNamespace

import psutil
import pytest
import ray
from builders import tiny_job
from ray.exceptions import RayActorError, RayTaskError
from ray.train.torch import TorchConfig

from mlcl.errors import UserError
from mlcl.files import locked
from mlcl.service.ray import ddp_group, ddp_worker
from mlcl.service.ray.ddp_group import _check_resources, _resources
from mlcl.service.ray.ddp_worker import interface
from mlcl.tracking import RunLog


def resources(monkeypatch, total, *overrides, cpus=1, gpus=None, workers=2):
    monkeypatch.setattr(ray, "cluster_resources", lambda: total)
    job = tiny_job(".", *overrides, workers=workers)
    use_gpu, found = _resources(job, cpus, gpus)
    _check_resources(job, found)
    return use_gpu, found


def test_gpus_are_used_where_there_are_enough(monkeypatch):
    auto = ("train.device=auto",)
    assert resources(monkeypatch, {"CPU": 2, "GPU": 2}, *auto) == (True, {"CPU": 1, "GPU": 1})
    assert resources(monkeypatch, {"CPU": 2, "GPU": 1}, *auto) == (False, {"CPU": 1})
    assert resources(monkeypatch, {"CPU": 2, "GPU": 1}, *auto, gpus=0.5) == (True, {"CPU": 1, "GPU": 0.5})
    assert resources(monkeypatch, {"CPU": 2, "GPU": 2}, *auto, gpus=0) == (False, {"CPU": 1})
    assert resources(monkeypatch, {"CPU": 8, "GPU": 2}, cpus=4) == (False, {"CPU": 4})


def test_a_share_of_gpus_that_was_asked_for_outlives_the_nodes_that_had_them(monkeypatch):
    monkeypatch.setattr(ray, "cluster_resources", lambda: {"CPU": 8, "GPU": 1})
    job = tiny_job(".", "train.device=auto", workers=2)
    assert _resources(job, 1, 1) == (True, {"CPU": 1, "GPU": 1})
    assert _resources(job, 1, None) == (False, {"CPU": 1})


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


def test_the_network_is_told_by_an_address():
    assert psutil.net_if_addrs()[interface("127.0.0.1")]
    assert interface("192.0.2.1") is None  # an address for documents: nobody has it


def test_who_knows_that_there_was_room_waits_for_it(monkeypatch, tmp_path):
    monkeypatch.setattr(ray, "cluster_resources", lambda: {"CPU": 1})
    monkeypatch.setattr(ddp_group, "ray_session", lambda *_: nullcontext())
    monkeypatch.setattr(ddp_group, "_here", dict)
    monkeypatch.setattr(ddp_group, "Queue", lambda **_: SimpleNamespace(shutdown=lambda: None))
    monkeypatch.setattr(ddp_group, "TorchTrainer", lambda *_, **__: None)
    monkeypatch.setattr(ddp_group, "_fit", lambda *_: {"ended": "complete", "metrics": {"val/accuracy": 1.0}})
    log = RunLog.start(
        tmp_path, "run", uri="sqlite:///x.db", experiment="e", name="r", owner="r", params={}, tags={}
    )
    asked = (tiny_job(".", workers=2), tmp_path, log, tmp_path, lambda _: None, lambda: False)
    assert ddp_group.run_group(*asked, share=ddp_group.Share(wait=True)) == {"val/accuracy": 1.0}
    with pytest.raises(UserError, match=r"train\.workers"):
        ddp_group.run_group(*asked)


def test_a_group_that_loses_a_worker_while_it_starts_is_started_again(monkeypatch):
    def broken(*_):
        raise RayTaskError("init", "Connection reset by peer", OSError("reset"))

    backend = ddp_worker.GroupConfig().backend_cls()
    monkeypatch.setattr(TorchConfig().backend_cls, "on_start", broken)
    workers = SimpleNamespace(execute=lambda _: ["10.0.0.1"])
    for _ in range(ddp_worker.MAX_FAILURES):
        with pytest.raises(RayActorError, match="reset by peer"):
            backend.on_start(workers, None)
    with pytest.raises(RayTaskError):  # it is no node that was lost
        backend.on_start(workers, None)


@pytest.mark.parametrize("others", [False, True], ids=["free", "busy"])
def test_a_second_group_does_not_write_beside_the_first(tmp_path, monkeypatch, others):
    monkeypatch.setattr(ddp_worker, "PATIENCE", 0.2)
    asked = []

    class Rank:
        is_main = True

        def any(self, flag):
            asked.append(flag)
            return flag

    file = tmp_path / ddp_worker.WRITER
    if not others:
        with ddp_worker._only_writer(tmp_path, Rank()), locked(file) as second:
            assert not second
    else:
        with (
            locked(file),
            pytest.raises(RuntimeError, match="still training"),
            ddp_worker._only_writer(tmp_path, Rank()),
        ):
            pass
    assert asked == [others]  # the other ranks hear of it, and wait for it


def test_the_other_ranks_do_what_the_writer_may(tmp_path):
    class Rank:
        is_main = False

        def __init__(self, busy):
            self.busy = busy

        def any(self, flag):
            return flag or self.busy

    with ddp_worker._only_writer(tmp_path, Rank(busy=False)):
        assert not (tmp_path / ddp_worker.WRITER).exists()
    with (
        pytest.raises(RuntimeError, match="still training"),
        ddp_worker._only_writer(tmp_path, Rank(busy=True)),
    ):
        pass


@pytest.mark.slow
def test_a_group_inside_of_an_actor(tiny, tmp_path):
    RunLog.start(
        tmp_path, "trial", uri="sqlite:///x.db", experiment="e", name="t", owner="s", params={}, tags={}
    )

    @ray.remote(num_cpus=0)
    class Trial:
        def train(self, job, home, folder, logged=True, **how):
            from mlcl.service.ray.ddp_group import run_group
            from mlcl.tracking import RunLog

            heard = []
            log = RunLog.attach(home, "trial") if logged else None
            metrics = run_group(job, folder, log, home, heard.append, lambda: False, **how)
            return metrics, [event.kind for event in heard]

    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        trial, half = Trial.remote(), ddp_group.Share(cpus=0.5)
        job = tiny_job(tiny.resolve(), epochs=2, workers=2)
        metrics, heard = ray.get(trial.train.remote(job, tmp_path, tmp_path / "a", share=half, test=False))
        assert "validation" in heard
        assert "val/accuracy" in metrics
        assert "test/accuracy" not in metrics
        lines = (tmp_path / "logs" / "trial" / "log.jsonl").read_text()
        assert lines.count("train/loss") == 2
        ray.get(trial.train.remote(job, tmp_path, tmp_path / "b", logged=False, share=half))
        assert (tmp_path / "logs" / "trial" / "log.jsonl").read_text() == lines
    finally:
        ray.shutdown()
