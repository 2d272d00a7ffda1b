"""Tests that deleted files which follow from a home's database and logs are made again."""

import re
import shutil

import pytest
from builders import tiny_job
from doctored import look, statuses
from mlflow import MlflowClient
from sweep_contents import OF_COMMANDS, differences
from sweeps import World
from typer.testing import CliRunner

from mlcl.cli.main import app
from mlcl.store import BACKUP
from mlcl.tracking import State, Tracker
from mlcl.tracking.cursor import undelivered_logs
from mlcl.tracking.delivery import lost_logs

VIEWS = ("mlflow.db*", "artifacts", "reports", "sweep.json", BACKUP)
"""Patterns of MLflow's store and its files, the reports, the sweep's document and the database's backup."""
SPACE = """
space:
  objective.heads.*.temperature: {log_float: [0.05, 1.0]}
  evaluation.knn.k: {choice: [1, 3]}
search: {scheduler: SCHEDULER, reduction_factor: 2, startup: 2}
"""
TIMES = re.compile(
    rf'"({"|".join(OF_COMMANDS)})": .*|\b[\d.]+ (ms|s|min|h)\b|\d{{4}}-\d\d-\d\d \d\d:\d\d|\b0\.00\d\d\b'
)
"""A pattern of dates, durations and hours in tables, which differ between runs."""
COMMANDS = (("show", "sweep", "--json"), ("report", "sweep", "--quick", "--json"))


class Home(World):
    """A home with a sweep and its own MLflow store."""

    def __init__(self, folder, patch):
        super().__init__(folder, patch, f"sqlite:///{folder}/mlflow.db")

    def views(self):
        """Returns the printed output about the sweep and the text of all files, without ids and times."""
        contents = self.everything()
        outputs = {words[0]: self._printed(words) for words in COMMANDS}
        files = [path for kind in ("artifacts", "reports") for path in (self.home / kind).rglob("*.*")]
        client = MlflowClient(self.mlflow)
        runs = client.search_runs([experiment.experiment_id for experiment in client.search_experiments()])

        def without_ids(text):
            for run in runs:
                text = text.replace(run.info.run_id, run.data.tags["mlcl.log"])
            return TIMES.sub("TIME", text.replace(str(self.home), "HOME"))

        contents |= {word: without_ids(text) for word, text in outputs.items()}
        contents["files"] = {without_ids(str(path)): without_ids(path.read_text()) for path in files}
        return contents

    def _printed(self, words):
        answer = CliRunner().invoke(app, [*words, "--home", str(self.home)], catch_exceptions=False)
        return answer.stdout


@pytest.mark.parametrize(
    ("case", "cure"),
    [
        pytest.param("finished", "command", marks=pytest.mark.slow),
        pytest.param("pruned", "doctor", marks=pytest.mark.slow),
        ("killed", "doctor"),
    ],
)
def test_deleted_views_are_made_again(case, cure, tmp_path, monkeypatch, tiny):
    def plan(home):
        text = SPACE.replace("SCHEDULER", "none" if case == "finished" else "asha")
        return home.plan(tiny_job(tiny), text, trials=4, seeds=1)

    Tracker(tmp_path / "kept").experiment("tiny")
    kept_home = Home(tmp_path / "kept", monkeypatch)
    if case == "killed":
        kept_home.kill_when(lambda _job, epoch: len(kept_home.ledger.trials()) == 3 and epoch == 3)
    assert kept_home.killed(plan(kept_home)) == (case == "killed")
    # The copy has another path, because MLflow's client keeps a store open by its path.
    shutil.copytree(kept_home.home, tmp_path / "left", ignore=shutil.ignore_patterns(*VIEWS))
    assert kept_home.run(plan(kept_home)).state is State.COMPLETE
    expected = kept_home.views()
    assert len(expected["files"]) > 20
    assert ("PRUNED" in {log["end"][0] for log in expected["logs"].values()}) == (case != "finished")

    left_home = Home(tmp_path / "left", monkeypatch)
    if cure == "doctor":
        findings = look(left_home.home, "killed", "delivery", "mlflow-states", fix=True, uri=left_home.mlflow)
        assert set(statuses(findings)) == {"MENDED"}
        assert (
            undelivered_logs(left_home.home)
            == lost_logs(left_home.home, left_home.mlflow, MlflowClient(left_home.mlflow))
            == []
        )
    assert left_home.run(plan(left_home)).state is State.COMPLETE
    assert differences(left_home.views(), expected) == []
