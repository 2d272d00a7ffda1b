"""Tests of the number of trials that run on a cluster at the same time."""

from types import SimpleNamespace

import pytest
import ray

from mlcl.errors import UserError
from mlcl.service.engine import packing
from mlcl.service.engine.packing import Packing, Resources

LAPTOP = [{"CPU": 2.0, "memory": 1e9}]
SERVER = [{"CPU": 16.0, "GPU": 4.0}]


@pytest.fixture
def room(monkeypatch):
    """Returns a function that packs trainings into a cluster of the given nodes and one dead node."""

    def pack(nodes, *, workers=1, device="auto", most=10**6, grows=False, **share):
        live_nodes = [{"Alive": True, "Resources": resources} for resources in nodes]
        dead_node = {"Alive": False, "Resources": {"CPU": 64.0, "GPU": 64.0}}
        monkeypatch.setattr(ray, "nodes", lambda: [*live_nodes, dead_node])
        monkeypatch.setattr(packing, "on_cluster", lambda: grows)
        job = SimpleNamespace(train=SimpleNamespace(workers=workers, device=device))
        return Resources(**share).pack(job, most)

    return pack


@pytest.mark.parametrize(
    ("cluster", "how", "concurrent"),
    [
        (LAPTOP, {}, 2),
        (LAPTOP, {"cpus": 2}, 1),
        (LAPTOP, {"cpus": 0.5}, 4),
        (SERVER, {}, 4),
        (SERVER, {"device": "cpu"}, 16),
        (SERVER, {"gpus": 0}, 16),
        (SERVER, {"gpus": 0.5}, 8),
        (SERVER, {"gpus": 0.4}, 8),
        (SERVER, {"gpus": 0.6}, 4),
        (SERVER, {"gpus": 0.25, "cpus": 2}, 8),
        (SERVER, {"gpus": 2}, 2),
        (SERVER, {"gpus": 3}, 1),
        (SERVER * 2 + LAPTOP, {"cpus": 2}, 8),
        (SERVER * 2 + LAPTOP, {"cpus": 2, "gpus": 0}, 17),
        ([{"CPU": 3.0}] * 2, {"cpus": 2}, 2),
        ([{"CPU": 1.0, "GPU": 8.0}], {"gpus": 1}, 1),
    ],
)
def test_trials_of_one_worker(room, cluster, how, concurrent):
    assert room(cluster, **how).concurrent == concurrent


@pytest.mark.parametrize("count", range(1, 41))
def test_fractions_fill_what_they_are_fractions_of(room, count):
    assert room([{"CPU": 0.1 * count}], cpus=0.1).concurrent == count
    assert room([{"CPU": sum([0.1] * count)}], cpus=0.1).concurrent == count
    assert room([{"CPU": 1.0}], cpus=1 / count).concurrent == count
    assert room([{"CPU": 999.0, "GPU": 3.0}], gpus=1 / count).concurrent == 3 * count


def test_the_smallest_share(room):
    assert room([{"CPU": 99_999.0, "GPU": 3.0}], gpus=0.0001).concurrent == 30_000


@pytest.mark.parametrize(
    ("cluster", "how", "concurrent"),
    [
        ([{"CPU": 4.0}], {"workers": 2}, 2),
        ([{"CPU": 1.0}] * 5, {"workers": 2}, 2),
        ([{"CPU": 3.0}] * 2, {"workers": 2, "cpus": 2}, 1),
        (SERVER, {"workers": 4}, 1),
        (SERVER, {"workers": 2}, 2),
        (SERVER * 3, {"workers": 3, "gpus": 2}, 2),
        (SERVER, {"workers": 4, "gpus": 0}, 4),
    ],
)
def test_trials_of_several_workers_spread_over_nodes(room, cluster, how, concurrent):
    assert room(cluster, **how).concurrent == concurrent


def test_what_a_worker_gets(room):
    assert room(SERVER, cpus=2) == Packing(4, 2, 1.0, 1)
    assert room(SERVER, device="cuda").gpus == 1.0
    assert room(SERVER, device="cpu").gpus == 0.0
    assert room(LAPTOP).gpus == 0.0
    assert room(SERVER, gpus=0.5, workers=1).gpus == 0.5


def test_never_more_than_asked(room):
    assert room(SERVER, most=3).concurrent == 3


@pytest.mark.parametrize(
    ("cluster", "how", "match"),
    [
        (LAPTOP, {"cpus": 3}, r"--cpus/--gpus.*3 CPUs, 0 GPUs.*at most 2 CPUs, 0 GPUs"),
        (LAPTOP, {"gpus": 1}, r"1 CPUs, 1 GPUs.*at most 2 CPUs, 0 GPUs"),
        (SERVER + LAPTOP, {"gpus": 5}, r"at most 16 CPUs, 4 GPUs"),
        ([{"CPU": 64.0}, *SERVER], {"gpus": 1, "cpus": 32}, r"at most 16 CPUs, 4 GPUs"),
        ([{"CPU": 64.0}, *SERVER], {"gpus": 0, "cpus": 128}, r"at most 64 CPUs, 0 GPUs"),
        ([], {}, r"at most 0 CPUs, 0 GPUs"),
        ([{"CPU": 8.0, "GPU": 0.5}], {"gpus": 0.5}, r"no node has room"),
        (LAPTOP, {"workers": 3}, r"train\.workers.*3 with 1 CPUs, 0 GPUs each.*at most 2"),
        (LAPTOP, {"workers": 2, "cpus": 3}, r"room for a worker"),
        (SERVER, {"workers": 2, "gpus": 0.5}, r"NCCL"),
        (SERVER, {"gpus": 1.5}, r"--gpus.*not a share"),
        (SERVER, {"gpus": -1}, r"--gpus.*not a share"),
        (SERVER, {"gpus": 0.00001}, r"--gpus.*not a share"),
        (SERVER, {"gpus": float("nan")}, r"--gpus.*not a share"),
        (SERVER, {"gpus": float("inf")}, r"--gpus.*not a share"),
        (SERVER, {"cpus": 0}, r"--cpus.*or more"),
        (SERVER, {"cpus": -1}, r"--cpus.*or more"),
        (SERVER, {"cpus": float("nan")}, r"--cpus.*or more"),
        (LAPTOP, {"device": "cuda"}, r"train\.device.*no node has a GPU"),
    ],
)
def test_what_would_wait_for_ever_is_refused(room, cluster, how, match):
    with pytest.raises(UserError, match=match):
        room(cluster, **how)


@pytest.mark.parametrize(
    ("cluster", "how", "concurrent"),
    [
        (SERVER, {"parallel": 2}, 2),  # --parallel is a limit
        (SERVER, {"parallel": 9}, 4),  # a single machine cannot add nodes
        (SERVER, {"parallel": 9, "grows": True}, 9),
        (SERVER, {"parallel": 9, "grows": True, "most": 6}, 6),
        (SERVER, {"grows": True}, 4),
        ([{"CPU": 0.0}], {"parallel": 8, "grows": True, "gpus": 1, "device": "cuda"}, 8),
    ],
)
def test_parallel_is_a_limit_and_on_a_cluster_a_demand(room, cluster, how, concurrent):
    assert room(cluster, **how).concurrent == concurrent


def test_more_cpus_than_this_machine_has_are_refused_before_ray_starts(monkeypatch):
    monkeypatch.setattr(packing, "usable_cpus", lambda: 2)
    one_worker, two_workers = (
        SimpleNamespace(train=SimpleNamespace(workers=n, device="cpu")) for n in (1, 2)
    )
    with pytest.raises(UserError, match=r"--cpus.*3.*at most 2, the CPUs of this machine"):
        Resources(cpus=3).check(one_worker)
    Resources(cpus=2).check(one_worker)
    Resources(cpus=3).check(two_workers)  # the local Ray counts as many CPUs as two workers ask for
    monkeypatch.setattr(packing, "on_cluster", lambda: True)
    Resources(cpus=3).check(one_worker)
