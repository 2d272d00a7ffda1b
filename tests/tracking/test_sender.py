"""Tests that entries are sent exactly once, even if the delivery is interrupted at any request."""

import errno
import math
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import requests
from boto3.exceptions import S3UploadFailedError
from botocore.exceptions import ClientError, EndpointConnectionError, NoCredentialsError, ReadTimeoutError
from mlflow.exceptions import MlflowException
from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore
from tracking.logs import Client, Killed

from mlcl.errors import UserError
from mlcl.tracking import Provenance, State
from mlcl.tracking.cursor import CURSOR, Cursor
from mlcl.tracking.log import log_folder
from mlcl.tracking.refusal import Refused, refusal
from mlcl.tracking.sender import POINTS, Sender


def fill(logs):
    """Writes the logs of a sweep and a trial with every kind of entry."""
    sweep = logs.start("sweep", params={f"key.{i}": str(i) for i in range(150)})
    data = {
        "mlcl.data": "codes",
        "mlcl.data_fingerprint": "f00d",
        "mlcl.data_rows": '{"train": 3, "test": 1}',
    }
    source = Provenance({"commit": "c"}, "diff")
    log = logs.start("trial", parent="sweep", owner="sweep", tags=data, source=source)
    log.log_metrics({"loss": 1.0, "odd": math.nan, "far": math.inf}, 1)
    log.log_metrics({"loss": 0.5}, 2)
    log.log_tags({"t": "1"})
    log.set_state(State.STOPPED, "for now")
    log.set_state(State.RUNNING)
    log.log_params({"chosen": "3"})
    log.log_metrics({f"m{i}": float(i) for i in range(40)}, 3)
    (logs.home / "model").mkdir()
    (logs.home / "model" / "weights").write_text("w")
    (logs.home / "result.json").write_text("{}")
    log.log_artifacts([logs.home / "model", logs.home / "result.json"])
    log.log_text("note", "note.txt")
    log.set_state(State.COMPLETE)
    sweep.set_state(State.COMPLETE)
    return logs


@pytest.fixture(scope="session")
def undisturbed(shared):
    """Returns the contents of the store and the number of requests of an undisturbed delivery."""
    logs = fill(shared("undisturbed"))
    client = Client(logs.tracker.client)
    logs.deliver("sweep", "trial", client=client)
    return logs.store(), client.requests


def test_the_undisturbed_store_has_it_all(undisturbed):
    store, requests = undisturbed
    assert requests > 15
    (trial,), (sweep,) = store["trial"], store["sweep"]
    assert (trial["parent"], sweep["parent"], sweep["status"]) == ("sweep", None, "FINISHED")
    tags = {name: trial["tags"][name] for name in ("mlcl.state", "mlcl.reason", "mlcl.owner", "t", "commit")}
    assert tags == {
        "mlcl.state": "COMPLETE", "mlcl.reason": "", "mlcl.owner": "sweep", "t": "1", "commit": "c"
    }  # fmt: skip
    assert trial["params"] == {"a.b": "1", "chosen": "3"}
    assert (trial["data"], sweep["data"]) == ([("codes", "f00d")], [])
    assert len(sweep["params"]) == 150
    assert [p for p in trial["points"] if p[0] in ("loss", "odd")] == [
        ("loss", 1, "1.0"), ("loss", 2, "0.5"), ("odd", 1, "nan")
    ]  # fmt: skip
    assert trial["artifacts"] == ["model", "note.txt", "provenance", "result.json"]


@pytest.mark.parametrize("answered", [False, True])
def test_a_kill_at_any_request_neither_loses_nor_doubles(shared, undisturbed, answered):
    expected, requests = undisturbed
    for number in range(1, requests + 1):
        logs = fill(shared(f"killed-{number}-{answered}"))
        with pytest.raises(Killed):
            logs.deliver("sweep", "trial", client=Client(logs.tracker.client, number, answered))
        logs.deliver("sweep", "trial")
        assert logs.store() == expected, number


def test_a_second_delivery_sends_nothing_and_one_without_a_cursor_doubles_nothing(shared, undisturbed):
    logs = fill(shared("second"))
    logs.deliver("sweep", "trial")
    client = Client(logs.tracker.client)
    logs.deliver("sweep", "trial", client=client)
    assert client.requests == 0
    for id in ("sweep", "trial"):
        (log_folder(logs.home, id) / CURSOR).write_text("")  # the cursor is damaged
    logs.deliver("sweep", "trial")
    assert logs.store() == undisturbed[0]


def test_a_run_that_a_late_request_made_twice_is_one_in_the_end(shared):
    logs = shared("twice")
    log = logs.start()
    with pytest.raises(Killed):
        logs.deliver("run", client=Client(logs.tracker.client, 3))  # killed at create_run
    assert Cursor.read(log_folder(logs.home, "run")).creating
    log.log_metrics({"loss": 1.0}, 1)
    logs.deliver("run")
    # MLflow carries out the request that was not answered after all.
    experiment = logs.tracker.experiment("twice")
    logs.tracker.client.create_run(experiment, tags={"mlcl.log": "run"}, run_name="run")
    log.set_state(State.COMPLETE)
    logs.deliver("run")
    ((run,),) = logs.store().values()
    assert (run["status"], run["points"]) == ("FINISHED", [("loss", 1, "1.0")])


def test_what_fails_is_known_also_where_mlflow_logs_asynchronously(shared, monkeypatch):
    monkeypatch.setenv("MLFLOW_ENABLE_ASYNC_LOGGING", "true")
    logs = shared("asynchronous")
    log = logs.start()
    logs.deliver("run")
    log.log_metrics({"loss": 1.0}, 1)
    with monkeypatch.context() as patch:
        patch.setattr(SqlAlchemyStore, "log_batch", Mock(side_effect=OSError("away")))
        with pytest.raises(OSError, match="away"):
            logs.deliver("run")
    logs.deliver("run")
    assert logs.history("loss") == [(1, 1.0)]


def test_many_points_fill_requests(shared):
    logs = shared("many")
    log = logs.start()
    for step in range(60):
        log.log_metrics({f"m{i}": 1.0 for i in range(50)}, step)
    log.log_metrics({f"wide{i}": 1.0 for i in range(POINTS + 1)}, 60)
    client = Client(logs.tracker.client)
    logs.deliver("run", client=client)
    assert client.requests <= 3 + 1 + 3 + 2
    assert logs.history("m49") == [(step, 1.0) for step in range(60)]
    assert logs.history(f"wide{POINTS}") == [(60, 1.0)]


@pytest.mark.parametrize(
    ("state", "status"),
    [("PRUNED", "KILLED"), ("STOPPED", "KILLED"), ("BUDGET", "KILLED"), ("FAILED", "FAILED")],
)
def test_every_end_has_its_status_tag_and_time(shared, state, status):
    logs = shared(state)
    log = logs.start()
    log.log_artifacts([logs.home / "gone"])  # a removed artifact is left out
    log.set_state(State(state), "because")
    logs.deliver("run")
    run = logs.run()
    assert (run.info.status, run.data.tags["mlcl.state"], run.data.tags["mlcl.reason"]) == (
        status, state, "because"
    )  # fmt: skip
    assert run.info.start_time <= run.info.end_time


def uploading(error):
    """Returns boto3's error of an upload, which has its cause only as its context."""
    try:
        try:
            raise error
        except type(error):
            raise S3UploadFailedError("Failed to upload") from None
    except S3UploadFailedError as upload_error:
        return upload_error


def answer(status):
    return requests.HTTPError(response=SimpleNamespace(status_code=status))


def of_s3(status):
    return ClientError({"Error": {}, "ResponseMetadata": {"HTTPStatusCode": status}}, "PutObject")


OUTAGES = (
    MlflowException("away"),
    OSError("away"),
    OSError(errno.ENOSPC, "full"),
    OSError(errno.EMFILE, "open files"),
    TimeoutError(),
    ConnectionRefusedError(errno.ECONNREFUSED, "no"),
    requests.ConnectionError("no"),
    requests.Timeout(),
    answer(401),
    answer(503),
    EndpointConnectionError(endpoint_url="http://s3"),
    ReadTimeoutError(endpoint_url="http://s3"),
    of_s3(503),
    uploading(of_s3(503)),
)
REFUSALS = (
    Refused("x"),
    UserError("x"),
    FileNotFoundError(errno.ENOENT, "x"),
    PermissionError(errno.EACCES, "x"),
    OSError(errno.ENAMETOOLONG, "x"),
    answer(403),
    NoCredentialsError(),
    of_s3(403),
    uploading(of_s3(403)),
    ModuleNotFoundError("boto3"),
    KeyError("values"),
)


@pytest.mark.parametrize("error", OUTAGES, ids=repr)
def test_an_outage_is_no_refusal(error):
    assert refusal(error) is None


@pytest.mark.parametrize("error", REFUSALS, ids=repr)
def test_a_refusal_is_for_good(error):
    assert refusal(error)  # test_delivery.py tests the refusal of a deleted run


def test_what_a_killed_sender_left_of_the_cursor_is_removed(logs):
    folder = log_folder(logs.home, "run")
    folder.mkdir(parents=True, exist_ok=True)
    partial_file = folder / f".{CURSOR}.ab12.partial"
    partial_file.write_text('{"offs')
    Sender(logs.tracker, "run", print)
    assert not partial_file.exists()
