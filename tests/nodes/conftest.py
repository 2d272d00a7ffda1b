"""Clusters on hosts of their own, and what commands come to where nothing happens to them."""

from __future__ import annotations

from functools import cache

import pytest
from e2e.traces import Trace
from nodes.cluster import Cluster
from nodes.commands import GROUP, SINGLE, SWEEP, Work
from nodes.hosts import missing

SPACES = {"single": (SINGLE, 1), "group": (GROUP, 2)}
"""Trials of one process, two of them at once; and trials of two processes, one at a time."""


@pytest.fixture(scope="session", autouse=True)
def _hosts():
    """Skips where there can be none."""
    reason = missing()
    if reason:
        pytest.skip(reason)


@pytest.fixture
def cluster(tmp_path):
    """A cluster without a node yet."""
    with Cluster(tmp_path / "cluster") as cluster:
        yield cluster


@pytest.fixture
def work(tmp_path, tiny):
    """A folder for a command on a job of one or of two workers: `single` or `group`."""

    def make(kind, name="work", **train) -> Work:
        space, workers = SPACES[kind]
        return Work(tmp_path / name, tiny, space, workers=workers, **train)

    return make


@pytest.fixture(scope="session")
def here(tmp_path_factory, tiny):
    """The result of a sweep on this machine: it is equal on any cluster, whatever is lost."""

    @cache
    def come_to(kind) -> Trace:
        space, workers = SPACES[kind]
        sweep = Work(tmp_path_factory.mktemp("here") / kind, tiny, space, workers=workers)
        sweep.run_here(*SWEEP)
        return sweep.trace

    return come_to


@pytest.fixture(scope="session")
def run_here(tmp_path_factory, tiny):
    """The results of a run of two workers on this machine."""
    run = Work(tmp_path_factory.mktemp("run") / "here", tiny, workers=2)
    run.run_here("run", "job.yaml")
    return run.results
