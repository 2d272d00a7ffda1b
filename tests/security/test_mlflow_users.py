"""A real MLflow server with users: no password, a wrong one, and another user's experiment."""

from contextlib import contextmanager

import pytest
from builders import job_tree
from e2e.conftest import Cli
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException
from mlflow.server import get_app_client
from patience import until

from mlcl.service.local.folder import ServiceFolder, read_secret
from mlcl.service.local.mlflow_server import MlflowServer
from mlcl.service.local.ports import free_port
from mlcl.service.local.processes import end, start
from mlcl.service.local.settings import Settings
from mlcl.service.local.store import store_uri
from mlcl.tracking import undelivered

pytestmark = pytest.mark.slow

USERS = {"ada": "ada's own password", "bob": "bob's own password"}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """MLflow as `mlcl up` starts it, with two users beside the administrator."""
    folder = ServiceFolder(tmp_path_factory.mktemp("server"))
    folder.make()
    settings = Settings(store_uri("sqlite", folder), str(folder.home / "artifacts"), mlflow_port=free_port())
    made = MlflowServer(settings, folder)
    made.prepare()
    process = start(made.command(""), made.environment(), made.log)
    try:
        until(lambda: made.trouble() is None)
        with as_user(made.address, read_secret(folder.mlflow_user), read_secret(folder.mlflow_password)):
            users = get_app_client("basic-auth", tracking_uri=made.address)
            for name, password in USERS.items():
                users.create_user(name, password)
        yield made.address
    finally:
        end([process])


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
        for forbidden in (
            lambda: bob.log_metric(id, "train/loss", 0.0),
            lambda: bob.set_tag(id, "mlcl.state", "FAILED"),
            lambda: bob.set_terminated(id, "FAILED"),
            lambda: bob.log_text(id, "x", "job.yaml"),
            lambda: bob.delete_run(id),
            lambda: bob.delete_experiment(run.info.experiment_id),
            lambda: bob.create_run(run.info.experiment_id),
        ):
            with pytest.raises(MlflowException, match=r"Permission denied|403"):
                forbidden()
    with as_user(server, "ada", USERS["ada"]) as ada:
        (after,) = runs(ada, "tiny")
        assert after.data.to_dictionary() == run.data.to_dictionary()
        assert after.info.status == "FINISHED"


def test_a_run_into_another_users_experiment_is_kept_until_it_may(mlcl, server, tmp_path, tiny):
    mlcl.write_job({**job_tree(tiny), "experiment": "shared"})
    with as_user(server, "ada", USERS["ada"]) as ada:
        assert mlcl("run", mlcl.job).status == 0
        experiment = ada.get_experiment_by_name("shared").experiment_id
    theirs = at(tmp_path / "bob", tiny)
    theirs.write_job({**job_tree(tiny), "experiment": "shared"})
    with as_user(server, "bob", USERS["bob"]):
        answer = theirs("run", theirs.job, "train.seed=1", "--json")
    assert (answer.status, answer.json["state"], answer.json["undelivered"]) == (0, "COMPLETE", 1)
    assert "MLflow does not take the log" in answer.err
    assert "ermission denied" in answer.err
    assert USERS["bob"] not in answer.err + answer.out
    (left,) = undelivered(theirs.home)
    assert left.entries > 4
    with as_user(server, "ada", USERS["ada"]):
        get_app_client("basic-auth", tracking_uri=server).grant_user_permission(
            "bob", "experiment", experiment, "EDIT"
        )
    with as_user(server, "bob", USERS["bob"]) as bob:
        assert theirs("doctor", "--fix").status == 0
        assert {run.data.params["train.seed"] for run in runs(bob, "shared")} == {"0", "1"}
    assert undelivered(theirs.home) == []
