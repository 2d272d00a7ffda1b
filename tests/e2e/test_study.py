"""A study in PostgreSQL: what a killed sweep leaves in it is gone on with, and its password stays there."""

import json
import os
import signal
from pathlib import Path

import pytest
import yaml
from databases import PASSWORD, postgres, postgres_folder
from patience import until
from study_states import study_differences

from mlcl.config import load_job, load_space
from mlcl.service.engine.ledger import Ledger
from mlcl.service.search.study import open_study
from mlcl.service.search.study_storage import open_storage

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(postgres_folder() is None, reason="PostgreSQL is not installed"),
]
SPACE = {"space": {"train.lr": {"log_float": [0.005, 0.05]}}, "search": {"scheduler": "asha", "startup": 2}}


def files_with(text: str, folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and text.encode() in path.read_bytes()]


def test_a_killed_sweep_goes_on_from_postgresql(mlcl, monkeypatch):
    space = mlcl.folder / "space.yaml"
    space.write_text(yaml.safe_dump(SPACE))
    command = ("sweep", mlcl.job, space, "--trials", 4, "--json", "train.epochs=60")
    with postgres() as url:
        monkeypatch.setenv("MLCL_STUDY", url)
        process = mlcl.start(*command)
        until(lambda: list(mlcl.home.glob("sweeps/*/trials/*/checkpoint.pt")))
        os.killpg(process.pid, signal.SIGKILL)
        process.answer()
        again = mlcl(*command)
        assert again.status == 0, again.err
        report = again.json
        assert len(report["trials"]) == 4
        ledger = Ledger(mlcl.home / "sweeps" / report["id"])
        (generation,) = ledger.versions()
        job = load_job(mlcl.job, ["train.epochs=60"])
        study = open_study(open_storage(url), generation.study, load_space(space, job))
        assert study_differences(study, ledger, generation) == []
        assert [trial.user_attrs["label"] for trial in study.trials] == [t["label"] for t in report["trials"]]
    assert not (mlcl.home / "sweeps" / report["id"] / "study.journal").exists()
    assert files_with(PASSWORD, mlcl.home) == []
    assert PASSWORD not in json.dumps(report) + again.err
