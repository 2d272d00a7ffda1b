"""Tests of worker groups: the resources of each worker, failures, and a group inside of an actor."""

import os
from collections import Counter
from contextlib import ExitStack, nullcontext
from types import SimpleNamespace

import psutil
import pytest
import ray
from builders import tiny_job
from ray.exceptions import RayActorError, RayTaskError
from ray.train import TrainingFailedError
from ray.train.torch import TorchConfig

from mlcl.errors import UserError
from mlcl.files import is_locked, lock_file
from mlcl.service.ray import ddp_group, ddp_worker
from mlcl.service.ray.ddp_group import _room_error, _worker_resources
from mlcl.service.ray.ddp_worker import FailureNotes, interface
from mlcl.tracking import RunLog
from mlcl.training.events import Event, Stopped

AUTO, CPU = ("train.device=auto",), ()


def has_nodes(monkeypatch, *resources):
    """Makes Ray report the given nodes and one dead node."""
    nodes = [{"Alive": True, "Resources": node_resources} for node_resources in resources]
    monkeypatch.setattr(ray, "nodes", lambda: [*nodes, {"Alive": False, "Resources": {"CPU": 99, "GPU": 99}}])
    total = sum(map(Counter, resources), Counter())
    monkeypatch.setattr(ray, "cluster_resources", lambda: dict(total))


@pytest.mark.parametrize(
    ("total", "overrides", "share", "expected"),
    [
        ({"CPU": 2, "GPU": 2}, AUTO, (1, None), (True, {"CPU": 1, "GPU": 1})),
        ({"CPU": 2, "GPU": 1}, AUTO, (1, None), (False, {"CPU": 1})),
        ({"CPU": 2, "GPU": 1}, AUTO, (1, 0.5), (True, {"CPU": 1, "GPU": 0.5})),
        ({"CPU": 2, "GPU": 2}, AUTO, (1, 0), (False, {"CPU": 1})),
        ({"CPU": 8, "GPU": 2}, CPU, (4, None), (False, {"CPU": 4})),
        # A requested share of GPUs is kept even if the nodes with these GPUs are lost.
        ({"CPU": 8, "GPU": 1}, AUTO, (1, 1), (True, {"CPU": 1, "GPU": 1})),
        ({"CPU": 1}, CPU, (1, None), "at most 1"),
        ({"CPU": 7}, CPU, (4, None), "at most 1"),
        ({"CPU": 0.4}, CPU, (0.5, None), "at most 0"),
    ],
)
def test_gpus_are_used_where_there_are_enough_and_a_group_that_does_not_fit_is_refused(
    monkeypatch, total, overrides, share, expected
):
    has_nodes(monkeypatch, total)
    job = tiny_job(".", *overrides, workers=2)
    resources = _worker_resources(job, *share)
    if not isinstance(expected, str):
        assert resources == expected
        return
    assert expected in _room_error(job, resources[1]).line()


@pytest.mark.parametrize(
    ("nodes", "share", "room"),
    [
        ([{"CPU": 3}, {"CPU": 3}, {"CPU": 2}], {"CPU": 4}, 0),
        ([{"CPU": 7}, {"CPU": 1}], {"CPU": 4}, 1),
        ([{"CPU": 1, "GPU": 2}, {"CPU": 8}], {"CPU": 4, "GPU": 1}, 0),
        ([{"CPU": 4, "GPU": 1}, {"CPU": 4, "GPU": 1}], {"CPU": 4, "GPU": 1}, 2),
        ([{"CPU": 8, "GPU": 0.6}], {"CPU": 1, "GPU": 0.2}, 3),
    ],
)
def test_a_worker_fits_on_one_node_and_not_on_the_sum_of_several(monkeypatch, nodes, share, room):
    has_nodes(monkeypatch, *nodes)
    assert room < 1 or _room_error(tiny_job(".", workers=room), share) is None
    line = _room_error(tiny_job(".", workers=2), share)
    assert (line is None) == (room >= 2)
    if line is not None:
        share_text = " and ".join(f"{amount:g} {kind}" for kind, amount in share.items())
        assert line.line().endswith(
            f"more workers than fit on the nodes; found: 2 with {share_text} each; allowed: at most {room}"
        )


def test_the_network_is_told_by_an_address():
    assert psutil.net_if_addrs()[interface("127.0.0.1")]
    assert interface("192.0.2.1") is None  # an address that is reserved for documentation


def test_who_knows_that_there_was_room_waits_for_it(monkeypatch, tmp_path):
    has_nodes(monkeypatch, {"CPU": 1})
    monkeypatch.setattr(ddp_group, "ray_session", lambda *_: nullcontext())
    monkeypatch.setattr(ddp_group, "_node_selector", dict)
    monkeypatch.setattr(ddp_group, "Queue", lambda **_: SimpleNamespace(shutdown=lambda: None))
    monkeypatch.setattr(ddp_group, "TorchTrainer", lambda *_, **__: None)
    monkeypatch.setattr(
        ddp_group, "_fit_in_thread", lambda *_: {"ended": "complete", "metrics": {"val/accuracy": 1.0}}
    )
    log = RunLog.start(
        tmp_path, "run", uri="sqlite:///x.db", experiment="e", name="r", owner="r", params={}, tags={}
    )
    args = (tiny_job(".", workers=2), tmp_path, log, tmp_path, lambda _: None, lambda: False)
    assert ddp_group.run_group(*args, share=ddp_group.Share(wait=True)) == {"val/accuracy": 1.0}
    with pytest.raises(UserError, match=r"train\.workers"):
        ddp_group.run_group(*args)


def test_a_group_that_loses_a_worker_while_it_starts_is_started_again(monkeypatch):
    def broken(*_):
        raise RayTaskError("init", "Connection reset by peer", OSError("reset"))

    backend = ddp_worker.GroupConfig().backend_cls()
    monkeypatch.setattr(TorchConfig().backend_cls, "on_start", broken)
    workers, texts = SimpleNamespace(execute=lambda _: ["10.0.0.1"]), []
    for _ in range(ddp_worker.MAX_FAILURES):
        with pytest.raises(RayActorError, match="reset by peer"):
            backend.on_start(workers, None)
    with pytest.raises(RayTaskError):  # after MAX_FAILURES it no longer counts as a lost node
        backend.on_start(workers, None)
    notes = FailureNotes(SimpleNamespace(put=lambda event: texts.append(event.note)))
    notes.after_exception(None, {1: OSError("x"), 0: RuntimeError("CUDA error: uncorrectable ECC error")})
    faulty = "rank 0 on 10.0.0.1: the memory of its GPU is faulty (ECC): take the node out: CUDA error"
    assert [
        note.startswith(start) for note, start in zip(texts, (faulty, "rank 1 on an unknown"), strict=True)
    ] == [
        True,
        True,
    ]


@pytest.mark.parametrize(("set_before", "expected"), [(None, "1"), ("3", "3")])
def test_each_worker_ends_when_a_collective_fails(monkeypatch, set_before, expected):
    name = "TORCH_NCCL_ASYNC_ERROR_HANDLING"
    monkeypatch.setenv(name, "to be restored")
    monkeypatch.delenv(name)
    if set_before is not None:
        monkeypatch.setenv(name, set_before)
    values = []
    monkeypatch.setattr(TorchConfig().backend_cls, "on_start", lambda *_: values.append(os.environ.get(name)))

    def execute(function):
        return ["10.0.0.1"] if function is ray.util.get_node_ip_address else [function()]

    ddp_worker.GroupConfig().backend_cls().on_start(SimpleNamespace(execute=execute), None)
    assert values == [expected]  # the variable is set before the process group is created


@pytest.mark.parametrize(
    ("error", "meaning"),
    [
        ("Watchdog caught collective operation timeout: WorkNCCL(OpType=ALLREDUCE)", "network"),
        ("NCCL error: remote process exited or there was a network error, timed out", "network"),
        ("CUDA error: an illegal memory access was encountered", "its GPU failed"),
        ("The actor died unexpectedly before finishing this task", "is lost"),
        ("KeyError: 'x'", "an error: KeyError"),
    ],
)
def test_what_failed_is_said_with_rank_and_node(error, meaning):
    line = ddp_worker.failure_note(3, "10.0.0.4", error)
    assert (line.startswith("rank 3 on 10.0.0.4: "), meaning in line) == (True, True), line


def test_a_rank_that_is_three_times_slower_is_named():
    nodes = ["10.0.0.1", "10.0.0.2", "10.0.0.3"]
    (line,) = ddp_worker.slow_notes(nodes, [1.0, 3.5, 1.1])
    assert line.startswith("rank 1 on 10.0.0.2: 3.2 times slower")
    assert ddp_worker.slow_notes(nodes[:2], [1.0, 2.9]) == []


@pytest.fixture
def growing(monkeypatch):
    """Simulates a cluster that, once nodes are requested, has one more CPU at every look."""
    requests, cpus = [], [1]

    def nodes():
        cpus[0] += bool(requests)
        return [{"Alive": True, "Resources": {"CPU": cpus[0]}}]

    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    monkeypatch.setattr(ray, "nodes", nodes)
    monkeypatch.setattr(ray, "cluster_resources", lambda: {"CPU": cpus[0]})
    monkeypatch.setattr(ddp_group, "request_resources", lambda bundles: requests.append(bundles))
    monkeypatch.setattr(ddp_group, "LOOK_EVERY", 0.0)
    return requests


def test_an_autoscaler_is_asked_for_nodes_and_given_time(growing):
    messages, job = [], tiny_job(".", workers=4)
    ddp_group._await_resources(job, {"CPU": 1}, lambda: False, messages.append)
    assert growing == [[{"CPU": 1}] * 4, []]
    line = "waiting for nodes: more workers than CPUs in the cluster; 4 with 1 CPU each; now at most 1"
    assert messages == [line]
    with pytest.raises(Stopped):
        ddp_group._await_resources(tiny_job(".", workers=99), {"CPU": 1}, lambda: True, messages.append)
    assert growing[2:] == []


@pytest.mark.parametrize(("stops", "error"), [(True, Stopped), (False, UserError)])
def test_the_request_for_nodes_is_withdrawn_however_the_wait_ends(growing, monkeypatch, stops, error):
    def announce(_):
        monkeypatch.setattr(ddp_group, "ROOM_SECONDS", 99.0 if stops else 0.0)

    with pytest.raises(error):
        ddp_group._await_resources(
            tiny_job(".", workers=99), {"CPU": 1}, lambda: stops and bool(growing), announce
        )
    assert growing == [[{"CPU": 1}] * 99, []]


def test_nodes_that_do_not_come_in_time_are_an_error(growing, monkeypatch):
    monkeypatch.setattr(ddp_group, "ROOM_SECONDS", 0.0)
    with pytest.raises(UserError, match="more workers than CPUs"):
        ddp_group._await_resources(tiny_job(".", workers=4), {"CPU": 1}, lambda: False, lambda _: None)
    assert growing == []


@pytest.mark.parametrize(("checkpoints", "fits"), [([], 1), ([[5], [9], [9]], 3), ([[5, 9], [7], [12]], 2)])
def test_a_training_goes_on_as_long_as_it_writes_new_checkpoints(monkeypatch, tmp_path, checkpoints, fits):
    trainers, events = [], []

    def lost(trainer, _events, _folder, listen, _stop):
        for step in checkpoints[trainer] if checkpoints else ():
            listen(Event("saving", 0, 1, step, 20))
        raise TrainingFailedError("a node was lost")

    def trainer():
        trainers.append(len(trainers))
        return trainers[-1]

    monkeypatch.setattr(ddp_group, "_fit_in_thread", lost)
    with pytest.raises(TrainingFailedError):
        ddp_group._fit_with_restarts(trainer, None, tmp_path, events.append, lambda: False)
    assert len(trainers) == fits
    assert [event.step for event in events] == [step for steps in checkpoints[:fits] for step in steps]


@pytest.mark.parametrize(
    ("main", "writer", "others"),
    [(True, False, False), (True, True, False), (False, False, False), (False, False, True)],
    ids=["writer", "second writer", "other rank", "other rank of a second group"],
)
def test_a_second_group_does_not_write_beside_the_first(tmp_path, monkeypatch, main, writer, others):
    monkeypatch.setattr(ddp_worker, "PATIENCE", 0.2)
    flags, file = [], tmp_path / ddp_worker.WRITER
    rank = SimpleNamespace(is_main=main, any=lambda flag: flags.append(flag) or flag or others)
    expectation = pytest.raises(RuntimeError, match="still training") if writer or others else nullcontext()
    with ExitStack() as stack:
        if writer:
            stack.enter_context(lock_file(file))
        stack.enter_context(expectation)
        with ddp_worker._lock_writer(tmp_path, rank):
            assert is_locked(file) == main
    assert flags == [writer]  # all ranks are told and wait


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

            events = []
            log = RunLog.attach(home, "trial") if logged else None
            metrics = run_group(job, folder, log, home, events.append, lambda: False, **how)
            return metrics, [event.kind for event in events]

    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        trial, share = Trial.remote(), ddp_group.Share(cpus=0.5)
        job = tiny_job(tiny.resolve(), epochs=2, workers=2)
        metrics, kinds = ray.get(trial.train.remote(job, tmp_path, tmp_path / "a", share=share, test=False))
        assert "validation" in kinds
        assert "val/accuracy" in metrics
        assert "test/accuracy" not in metrics
        lines = (tmp_path / "logs" / "trial" / "log.jsonl").read_text()
        assert lines.count("train/loss") == 2
        ray.get(trial.train.remote(job, tmp_path, tmp_path / "b", logged=False, share=share))
        assert (tmp_path / "logs" / "trial" / "log.jsonl").read_text() == lines
    finally:
        ray.shutdown()


def test_data_that_one_rank_cannot_open_are_an_error_on_all(monkeypatch, tmp_path):
    def gather(problems, problem):
        assert (problem, len(problems)) == ("", 2)
        problems[:] = [problem, "/secret: no such file"]

    job_data_stub = SimpleNamespace(of=lambda job, home, verify: (job, home))
    monkeypatch.setattr(ddp_worker, "JobData", job_data_stub)
    monkeypatch.setattr(ddp_worker, "load_job", lambda job: job)
    monkeypatch.setattr(ddp_worker, "resolve_references", lambda worker: None)
    assert ddp_worker._open_data({"a": 1}, tmp_path) == ({"a": 1}, tmp_path)
    monkeypatch.setattr(ddp_worker.dist, "is_initialized", lambda: True)
    monkeypatch.setattr(ddp_worker.dist, "get_world_size", lambda: 2)
    monkeypatch.setattr(ddp_worker.dist, "all_gather_object", gather)
    with pytest.raises(UserError, match="/secret: no such file"):
        ddp_worker._open_data({}, tmp_path)
