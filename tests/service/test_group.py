"""Worker groups: what each worker is given, and that a group can be started from inside of an actor."""

import psutil
import pytest
import ray
from builders import tiny_job

from mlcl.errors import UserError
from mlcl.service import group_worker
from mlcl.service.group import _check_resources, _resources
from mlcl.service.group_network import interface
from mlcl.tracking import RunLog
from mlcl.tracking.files import locked


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


@pytest.mark.parametrize("others", [False, True], ids=["free", "busy"])
def test_a_second_group_does_not_write_beside_the_first(tmp_path, monkeypatch, others):
    monkeypatch.setattr(group_worker, "PATIENCE", 0.2)
    asked = []

    class Rank:
        is_main = True

        def any(self, flag):
            asked.append(flag)
            return flag

    file = tmp_path / group_worker.WRITER
    if not others:
        with group_worker._only_writer(tmp_path, Rank()), locked(file) as second:
            assert not second
    else:
        with (
            locked(file),
            pytest.raises(RuntimeError, match="still training"),
            group_worker._only_writer(tmp_path, Rank()),
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

    with group_worker._only_writer(tmp_path, Rank(busy=False)):
        assert not (tmp_path / group_worker.WRITER).exists()
    with (
        pytest.raises(RuntimeError, match="still training"),
        group_worker._only_writer(tmp_path, Rank(busy=True)),
    ):
        pass


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
