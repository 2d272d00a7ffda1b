"""Tests of the description of an experiment, which lists its sweeps."""

from mlcl.tracking.shared_view import HEADING, describe_experiment


def test_sweeps_are_listed_best_first_by_metric_and_a_users_words_stay(shared):
    tracker = shared("described").tracker
    id = tracker.experiment("described")
    for name, metric, mode, score in (
        ("a_1", "val/accuracy", "max", 0.5),
        ("b", "val/accuracy", "max", 0.7),
        ("c", "val/loss", "min", 0.9),
        ("d", "val/loss", "min", 0.2),
    ):
        tags = {"mlcl.kind": "sweep", "mlcl.name": name, "mlcl.id": f"id-{name}", "mlcl.best": "trial 3"}
        run = tracker.client.create_run(id, tags=tags).info.run_id
        tracker.client.log_param(run, "sweep.score", metric)
        tracker.client.log_param(run, "sweep.mode", mode)
        tracker.client.log_metric(run, "score", score)
    tracker.client.create_run(id, tags={"mlcl.kind": "sweep", "mlcl.name": "without a score"})
    for _ in range(2):
        describe_experiment(tracker, run)
    text = tracker.client.get_experiment(id).tags["mlflow.note.content"]
    assert text.startswith(HEADING)
    assert [line.split("]")[0] for line in text.splitlines() if "viewStateShareKey" in line] == [
        "| [b", "| [a_1", "| [d", "| [c"
    ]  # fmt: skip
    assert "viewStateShareKey=id-b) | 0.7000 | trial 3 |" in text
    tracker.client.set_experiment_tag(id, "mlflow.note.content", "mine")
    describe_experiment(tracker, run)
    assert tracker.client.get_experiment(id).tags["mlflow.note.content"] == "mine"
