"""Tests that every point of 32 trainings that log to one MLflow server at once arrives exactly once."""

from collections import Counter

import pytest
from databases import postgres, postgres_folder
from e2e.writers import METRICS, STEPS, at_once, begin, command, id_of, trial, value
from mlflow import MlflowClient
from patience import PATIENCE, until

from mlcl.service.local.processes import end_processes, free_port, process_tree, start_process
from mlcl.service.local.servers import mlflow_server
from mlcl.service.local.settings import ServiceFolder, Settings, read_secret, store_uri
from mlcl.tracking import Tracker
from mlcl.tracking.cursor import undelivered_logs
from mlcl.tracking.delivery import Delivery

pytestmark = pytest.mark.slow

WRITERS = 32


class Server:
    """An MLflow server as `mlcl up` starts it, which can be killed and started again."""

    def __init__(self, home, store):
        self.folder = ServiceFolder(home)
        self.folder.make()
        settings = Settings(store_uri(store, self.folder), str(home / "artifacts"), mlflow_port=free_port())
        self._server = mlflow_server(settings, self.folder)
        self.uri, self._process = self._server.address, None

    def start(self):
        server = self._server
        server.prepare()
        self._process = start_process(server.command, server.environment, server.log)
        until(lambda: server.problem() is None)

    def kill(self):
        for member in process_tree([self._process]):
            member.kill()

    def end(self):
        if self._process is not None:
            end_processes([self._process])


@pytest.fixture(
    params=[
        "sqlite",
        pytest.param(
            "postgresql",
            marks=pytest.mark.skipif(postgres_folder() is None, reason="PostgreSQL is not installed"),
        ),
    ]
)
def store(request):
    if request.param == "sqlite":
        yield "sqlite"
    else:
        with postgres() as url:
            yield url


@pytest.fixture
def server(tmp_path, store, monkeypatch):
    running_server = Server(tmp_path / "server", store)
    try:
        running_server.start()
        monkeypatch.setenv("MLFLOW_TRACKING_URI", running_server.uri)
        monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", read_secret(running_server.folder.mlflow_user))
        monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", read_secret(running_server.folder.mlflow_password))
        yield running_server
    finally:
        running_server.end()


def logged():
    return {
        (id_of(writer), metric): [(step, value(writer, step, metric)) for step in STEPS]
        for writer in range(WRITERS)
        for metric in METRICS
    }


def stored(uri, experiment):
    """Returns the points of each run and metric by step, the number of runs of each name, and the states."""
    client = MlflowClient(uri)
    id = client.get_experiment_by_name(experiment).experiment_id
    runs = client.search_runs([id], max_results=10 * WRITERS)
    points = {
        (run.info.run_name, metric): sorted(
            (point.step, point.value) for point in client.get_metric_history(run.info.run_id, metric)
        )
        for run in runs
        for metric in METRICS
    }
    return points, Counter(run.info.run_name for run in runs), {run.info.status for run in runs}


def check(server, home, experiment):
    points, names, states = stored(server.uri, experiment)
    assert names == {id_of(writer): 1 for writer in range(WRITERS)}
    assert states == {"FINISHED"}
    assert points == logged()
    assert undelivered_logs(home) == []


def test_a_sweep_of_many_trials_at_once(server, tmp_path):
    home = tmp_path / "home"
    with Delivery(Tracker(home)) as delivery:
        for writer in range(WRITERS):
            delivery.add(begin(home, writer, "sweep").id)
        with at_once(trial, WRITERS, home, "sweep") as trials:
            for future in trials:
                future.result()
        assert delivery.drain(PATIENCE) == 0
    check(server, home, "sweep")


def test_many_commands_at_once_and_the_server_dies_meanwhile(server, tmp_path):
    home = tmp_path / "home"
    with at_once(command, WRITERS, home, "commands") as commands:
        until(lambda: any((home / "logs").glob("*/cursor.json")) or any(future.done() for future in commands))
        server.kill()
        server.start()
        assert [future.result() for future in commands] == [0] * WRITERS
    check(server, home, "commands")
