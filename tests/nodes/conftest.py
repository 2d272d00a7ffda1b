"""Fixtures with clusters on separate hosts, and with the results of commands that nothing disturbs."""

from __future__ import annotations

from functools import cache

import pytest
from e2e.traces import Trace
from nodes.cluster import Cluster
from nodes.commands import GROUP, SINGLE, SWEEP, Work
from nodes.hosts import missing

SPACES = {"single": (SINGLE, 1), "group": (GROUP, 2)}
"""The space and the workers of a trial: two single processes at once, or one group of two processes."""


@pytest.fixture(scope="session", autouse=True)
def _hosts():
    """Skips the tests on a machine where no hosts can be made."""
    reason = missing()
    if reason:
        pytest.skip(reason)


@pytest.fixture
def cluster(tmp_path):
    """Yields a cluster that has no node yet."""
    with Cluster(tmp_path / "cluster") as cluster:
        yield cluster


@pytest.fixture
def work(tmp_path, tiny):
    """Returns a function that makes a folder for a command; a trial of kind `group` has two workers."""

    def make(kind, name="work", **train) -> Work:
        space, workers = SPACES[kind]
        return Work(tmp_path / name, tiny, space, workers=workers, **train)

    return make


@pytest.fixture(scope="session")
def here(tmp_path_factory, tiny):
    """Returns a function that runs a sweep on this machine; its trace equals that on any cluster."""

    @cache
    def come_to(kind) -> Trace:
        space, workers = SPACES[kind]
        sweep = Work(tmp_path_factory.mktemp("here") / kind, tiny, space, workers=workers)
        sweep.run_here(*SWEEP)
        return sweep.trace

    return come_to


@pytest.fixture(scope="session")
def run_here(tmp_path_factory, tiny):
    """Returns the results of a run of two workers on this machine."""
    run = Work(tmp_path_factory.mktemp("run") / "here", tiny, workers=2)
    run.run_here("run", "job.yaml")
    return run.results
