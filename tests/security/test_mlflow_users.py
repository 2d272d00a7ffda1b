"""Tests of a real MLflow server with users: missing and wrong passwords, and experiments of another user."""

from contextlib import contextmanager

import pytest
from builders import job_tree
from e2e.conftest import Cli
from mlflow import MlflowClient
from mlflow.entities import Param
from mlflow.exceptions import MlflowException
from mlflow.server import get_app_client
from mlflow_servers import mlflow_server

from mlcl.service.local.settings import read_secret
from mlcl.tracking.cursor import undelivered_logs

pytestmark = pytest.mark.slow

USERS = {"ada": "ada's own password", "bob": "bob's own password"}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """Starts MLflow as `mlcl up` does, adds two users beside the administrator, and yields its address."""
    with mlflow_server(tmp_path_factory.mktemp("server")) as (tracking_server, folder):
        with as_user(
            tracking_server.address, read_secret(folder.mlflow_user), read_secret(folder.mlflow_password)
        ):
            users = get_app_client("basic-auth", tracking_uri=tracking_server.address)
            for name, password in USERS.items():
                users.create_user(name, password)
        yield tracking_server.address


@contextmanager
def as_user(uri, name, password):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_TRACKING_URI", uri)
        if name is not None:
            patch.setenv("MLFLOW_TRACKING_USERNAME", name)
            patch.setenv("MLFLOW_TRACKING_PASSWORD", password)
        yield MlflowClient(uri)


@pytest.fixture
def mlcl(tmp_path, tiny):
    return at(tmp_path / "ada", tiny)


def at(folder, tiny):
    folder.mkdir()
    return Cli(folder, tiny)


def runs(client, experiment):
    id = client.get_experiment_by_name(experiment).experiment_id
    return client.search_runs([id])


@pytest.mark.parametrize("name", [None, "ada", "nobody"])
def test_without_the_password_nothing_starts(mlcl, server, name):
    with as_user(server, name, "wrong-7d1f"):
        answer = mlcl("run", mlcl.job)
    assert answer.status == 2
    (line,) = answer.err.strip().splitlines()
    assert line.startswith("error: key MLFLOW_TRACKING_URI: tracking store cannot be used")
    assert "wrong-7d1f" not in line
    assert not (mlcl.home / "runs").exists()


def test_another_users_experiment_is_neither_written_nor_deleted(mlcl, server):
    with as_user(server, "ada", USERS["ada"]) as ada:
        assert mlcl("run", mlcl.job).status == 0
        (run,) = runs(ada, "tiny")
    id = run.info.run_id
    with as_user(server, "bob", USERS["bob"]) as bob:
        requests = {
            "log_metric": lambda: bob.log_metric(id, "train/loss", 0.0),
            "set_tag": lambda: bob.set_tag(id, "mlcl.state", "FAILED"),
            "set_terminated": lambda: bob.set_terminated(id, "FAILED"),
            "update_run": lambda: bob.update_run(id, "FAILED"),
            "log_batch": lambda: bob.log_batch(id, params=[Param("train.lr", "1")]),
            "delete_run": lambda: bob.delete_run(id),
            "delete_experiment": lambda: bob.delete_experiment(run.info.experiment_id),
            "create_run": lambda: bob.create_run(run.info.experiment_id),
        }
        for name, request in requests.items():
            with pytest.raises(MlflowException) as error:
                request()
            assert error.value.error_code == "PERMISSION_DENIED", name
    with as_user(server, "ada", USERS["ada"]) as ada:
        (after,) = runs(ada, "tiny")
        assert after.data.to_dictionary() == run.data.to_dictionary()
        assert after.info.status == "FINISHED"


def test_a_run_into_another_users_experiment_is_kept_until_it_may(mlcl, server, tmp_path, tiny):
    mlcl.write_job({**job_tree(tiny), "experiment": "shared"})
    with as_user(server, "ada", USERS["ada"]) as ada:
        assert mlcl("run", mlcl.job).status == 0
        experiment = ada.get_experiment_by_name("shared").experiment_id
    bob_cli = at(tmp_path / "bob", tiny)
    bob_cli.write_job({**job_tree(tiny), "experiment": "shared"})
    with as_user(server, "bob", USERS["bob"]):
        answer = bob_cli("run", bob_cli.job, "train.seed=1", "--json")
    assert (answer.status, answer.json["state"], answer.json["mlflow_run_id"]) == (0, "COMPLETE", None)
    assert "MLflow does not take the log" in answer.err
    assert "ermission denied" in answer.err
    assert USERS["bob"] not in answer.err + answer.out
    (undelivered,) = undelivered_logs(bob_cli.home)
    assert undelivered.entries > 4
    with as_user(server, "ada", USERS["ada"]):
        get_app_client("basic-auth", tracking_uri=server).grant_user_permission(
            "bob", "experiment", experiment, "EDIT"
        )
    with as_user(server, "bob", USERS["bob"]) as bob:
        assert bob_cli("doctor", "--fix").status == 0
        assert {run.data.params["train.seed"] for run in runs(bob, "shared")} == {"0", "1"}
    assert undelivered_logs(bob_cli.home) == []
