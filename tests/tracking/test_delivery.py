"""Tests of the delivering thread: order, outages, refusals, parallel commands and undelivered logs."""

import pytest
from patience import until
from tracking.logs import Client

from mlcl.errors import UserError
from mlcl.files import lock_file
from mlcl.tracking import State, Tracker, sender
from mlcl.tracking.cursor import LOCK, Cursor, UndeliveredLog, delivered_logs, undelivered_logs
from mlcl.tracking.delivery import Delivery, deliver_all
from mlcl.tracking.log import LOG, log_folder


def tracker(logs, **how):
    faulty_tracker = Tracker(logs.home, logs.uri)
    faulty_tracker.client = Client(faulty_tracker.client, **how)
    return faulty_tracker


def drained(store, *ids, said=lambda _: None, **how):
    """Delivers the given logs, or those that earlier commands left, and returns how many are left."""
    with Delivery(store, said) as delivery:
        for id in ids:
            delivery.add(id)
        if not ids:
            delivery.add_undelivered()
        return delivery.drain(**how)


def test_a_log_is_delivered_while_it_grows(shared):
    logs = shared("grows")
    log = logs.start()
    with Delivery(logs.tracker) as delivery:
        assert delivery.run_id("run") is None
        delivery.add("run")
        assert delivery.wait_run_id("run", 60) == logs.run().info.run_id
        log.log_metrics({"loss": 1.0}, 1)
        until(lambda: logs.history("loss") == [(1, 1.0)])
        log.set_state(State.COMPLETE)
        assert delivery.drain() == 0
        assert logs.run().info.status == "FINISHED"
        # A log that has ended and continues needs no second `add`.
        log.set_state(State.RUNNING)
        assert delivery.drain() == 0
        assert logs.run().info.status == "RUNNING"


def test_a_parent_is_made_before_its_children_whoever_is_added(shared):
    logs = shared("parents")
    logs.start("sweep")
    logs.start("group", parent="sweep")
    logs.start("seed", parent="group")
    assert drained(logs.tracker, "seed") == 0
    assert {name: run["parent"] for name, (run,) in logs.store().items()} == {
        "sweep": None, "group": "sweep", "seed": "group"
    }  # fmt: skip


def test_an_outage_is_told_once_and_loses_nothing(shared):
    logs, messages = shared("outage"), []
    log, store = logs.start(), tracker(logs)
    with Delivery(store, messages.append) as delivery:
        delivery.add("run")
        assert delivery.wait_run_id("run", 60)
        store.client.on = False
        for step in range(5):
            log.log_metrics({"loss": 1.0}, step)
        until(lambda: messages)
        n_requests = store.client.requests
        until(lambda: store.client.requests > n_requests)
        assert delivery.drain(patience=0.0) == 1
        (message,) = messages
        assert "MLflow does not answer (MlflowException: connection refused)" in message
        store.client.on = True
        log.set_state(State.COMPLETE)
        assert delivery.drain(patience=60) == 0
    assert messages[1:] == ["MLflow answers again; logs are being delivered"]
    assert logs.history("loss") == [(step, 1.0) for step in range(5)]


def test_what_is_left_is_known_and_a_later_command_delivers_it(shared):
    logs = shared("left")
    for id in ("a", "b"):
        logs.start(id).set_state(State.COMPLETE)
    logs.start("elsewhere", uri="sqlite:///other.db")
    assert drained(tracker(logs, on=False), "a", patience=0.0) == 1
    assert undelivered_logs(logs.home, logs.uri) == [
        UndeliveredLog(id, 2, logs.uri, "", locked=False) for id in ("a", "b")
    ]
    assert len(undelivered_logs(logs.home)) == 3
    assert drained(logs.tracker) == 0
    with (log_folder(logs.home, "a") / LOG).open("a") as file:
        file.write('{"kind":"tags')  # an incomplete last line does not count as undelivered
    assert undelivered_logs(logs.home, logs.uri) == []
    assert {run["status"] for (run,) in logs.store().values()} == {"FINISHED"}
    assert set(logs.store()) == {"a", "b"}


def test_files_and_hidden_folders_beside_the_logs_are_no_logs(logs):
    for id in ("run", ".half"):
        logs.start(id)
        Cursor(run_id="r").write(log_folder(logs.home, id))
    (logs.home / "logs" / "notes.txt").write_text("mine")
    assert delivered_logs(logs.home, logs.uri) == ["run"]
    assert [log.id for log in undelivered_logs(logs.home)] == ["run"]


def test_a_refused_log_does_not_keep_others_back(shared):
    logs, messages = shared("refused-log"), []
    deleted_log, good_log = logs.start("deleted"), logs.start("fine")
    logs.deliver("deleted")
    run_id = logs.run("deleted").info.run_id
    logs.tracker.client.delete_run(run_id)
    for log in (deleted_log, good_log):
        log.set_state(State.COMPLETE)
    for _ in range(2):  # the second delivery does not try again
        assert drained(logs.tracker, said=messages.append) == 0
    assert logs.run("fine").info.status == "FINISHED"
    (message,) = messages
    assert "MLflow does not take the log deleted" in message
    (undelivered,) = undelivered_logs(logs.home)
    assert (undelivered.id, undelivered.entries) == ("deleted", 1)
    assert "deleted" in undelivered.refusal
    logs.tracker.client.restore_run(run_id)
    assert deliver_all(logs.home, logs.uri) == 0
    assert logs.run("deleted").info.status == "FINISHED"


@pytest.fixture
def without_credentials(monkeypatch, tmp_path):
    """Removes the credentials of S3 from all places where boto3 looks for them."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@pytest.mark.parametrize("location", ["file:///proc/nope/x", "s3://nobody/x", "{tmp}/{long}", "{tmp}/file/x"])
@pytest.mark.usefixtures("without_credentials")
def test_files_that_a_location_refuses_keep_nothing_else_back(shared, location, tmp_path):
    """Tests that everything but the files is sent, and that `doctor` sends the files later if it can."""
    logs, messages, obstacle = shared(f"refused {location}"), [], tmp_path / "file"
    obstacle.write_text("in the way of a folder")
    artifact_location = location.format(tmp=tmp_path.as_uri(), long="x" * 260)
    logs.tracker.client.create_experiment(logs.experiment, artifact_location=artifact_location)
    for id in ("a", "b"):
        log = logs.start(id, texts={"job.yaml": "x"})
        log.log_metrics({"loss": 1.0}, 1)
        log.log_text("late", "note.txt")
        log.set_state(State.COMPLETE)
    assert drained(logs.tracker, "a", "b", said=messages.append) == 0
    assert drained(logs.tracker, said=messages.append) == 0  # a later command does not try
    (message,) = messages
    assert message.startswith("MLflow does not take all of the log a (")
    for id in ("a", "b"):
        run = logs.run(id)
        assert (run.info.status, run.data.params, run.data.metrics) == ("FINISHED", {"a.b": "1"}, {"loss": 1})
    undelivered = undelivered_logs(logs.home, logs.uri)
    assert [(log.id, log.entries, bool(log.refusal)) for log in undelivered] == [
        ("a", 4, True),
        ("b", 4, True),
    ]
    obstacle.unlink()
    if artifact_location.endswith("/file/x"):
        assert deliver_all(logs.home, logs.uri) == 0
        assert len(logs.tracker.client.list_artifacts(logs.run("b").info.run_id)) == 2
        assert logs.history("loss", "b") == [(1, 1.0)]


def test_an_entry_that_cannot_be_read_or_taken_keeps_back_itself_alone(shared):
    logs, messages = shared("odd"), []
    log = logs.start()
    log.log_params({"k" * 251: "1"})
    log.log_tags({"t": "1"})
    with (log_folder(logs.home, "run") / LOG).open("a") as file:
        file.write('{"kind":"metrics","step":1}\n')
    log.set_state(State.COMPLETE)
    assert drained(logs.tracker, "run", said=messages.append, patience=3.0) == 0
    run = logs.run()
    assert (run.info.status, run.data.tags["t"]) == ("FINISHED", "1")
    assert len(messages) == 1
    assert "exceeds the maximum length of 250" in undelivered_logs(logs.home)[0].refusal


def test_a_run_of_any_name_is_made(shared):
    logs = shared("long name")
    logs.start(name="x" * 400)
    assert drained(logs.tracker, "run") == 0
    assert logs.run().info.run_name == "x" * 250


def test_a_store_that_takes_half_of_an_entry_holds_no_command(shared, monkeypatch):
    monkeypatch.setattr(sender, "link_artifact", lambda *_: False)
    logs, messages = shared("half"), []
    logs.start(texts={"job.yaml": "x"})
    assert drained(tracker(logs, lacks="log_text"), "run", said=messages.append, patience=3.0) == 1
    assert ["connection refused" in message for message in messages] == [True]
    assert deliver_all(logs.home, logs.uri) == 0


def test_the_child_of_a_log_without_a_run_is_put_aside(shared):
    logs, messages = shared("orphan-log"), []
    logs.start("child", parent="nobody")
    assert drained(logs.tracker, "child", said=messages.append) == 0
    assert "nobody" in messages[0]


def test_one_process_at_a_time_delivers_a_log(shared):
    logs = shared("held")
    logs.start().set_state(State.COMPLETE)
    with lock_file(log_folder(logs.home, "run") / LOCK) as locked:
        assert locked
        assert undelivered_logs(logs.home)[0].locked
        with Delivery(logs.tracker) as delivery:
            delivery.add_undelivered()
            delivery.add("run")
            until(lambda: delivery.drain() == 0)  # the other process delivers it
            assert delivery.run_id("run") is None
    assert deliver_all(logs.home, logs.uri) == 0
    assert logs.run().info.status == "FINISHED"


def test_the_end_of_a_log_that_another_command_took_is_sent_by_its_own(shared):
    logs = shared("taken")
    log = logs.start()
    with Delivery(logs.tracker) as delivery:
        with lock_file(log_folder(logs.home, "run") / LOCK):
            delivery.add("run")
            until(lambda: delivery.count_pending() == 0)  # the thread has found the log locked
        log.set_state(State.COMPLETE)
        assert delivery.drain() == 0
        assert logs.run().info.status == "FINISHED"


def test_a_log_that_ends_while_another_command_sends_it_is_sent_whole(shared, monkeypatch):
    logs = shared("grows-there")
    log, send = logs.start(), sender.Sender._log_metrics
    log.log_metrics({"loss": 1.0}, 1)

    def send_while_it_ends(self, entries):
        send(self, entries)
        log.set_state(State.COMPLETE)

    monkeypatch.setattr(sender.Sender, "_log_metrics", send_while_it_ends)
    assert drained(logs.tracker) == 0
    assert logs.run().info.status == "FINISHED"


def test_a_stop_makes_the_end_short_while_mlflow_is_away(shared):
    logs = shared("stopped")
    logs.start().set_state(State.STOPPED)
    assert drained(tracker(logs, on=False), "run", patience=3600, stop=lambda: True) == 1


def test_to_a_store_that_is_away_nothing_can_be_delivered(logs):
    logs.start(uri="http://127.0.0.1:9")
    with pytest.raises(UserError, match="does not answer"):
        deliver_all(logs.home, "http://127.0.0.1:9")
