"""Tests that the Parquet file of a table's trials has the ledger's contents and is read as a data frame."""

import pytest
from reproduced import TUNED

from mlcl.errors import UserError
from mlcl.results.table_trials import read_trials
from mlcl.service.engine import command
from mlcl.service.engine.ledger import Ledger
from mlcl.tracking import Provenance
from mlcl.training.row_predictions import PREDICTIONS


def test_the_file_has_every_search_trial_and_fresh_seed(tables):
    report = tables.run(tables.plan(TUNED))
    trials = read_trials(report.folder / "trials.parquet")
    ledger = Ledger(report.folder)
    search_entries = [entry for entry in ledger.trials(scope="warm_all") if entry.ended]
    (confirmation,) = ledger.confirmations.values()
    entries = [*search_entries, *ledger.seeds_of(confirmation.key)]
    assert list(trials.stage) == ["search"] * len(search_entries) + ["confirmation"] * 2
    assert set(zip(trials.row, trials.column, strict=True)) == {("Warm", "All")}
    assert list(trials.settings) == [{**entry.settings, **entry.chosen} for entry in entries]
    assert list(trials.metrics) == [entry.metrics for entry in entries]
    values = [list(zip(row.epochs, row.intermediate, strict=True)) for row in trials.itertuples()]
    assert values == [entry.intermediate for entry in entries]
    assert list(trials.seed) == [entry.job["train"]["seed"] for entry in entries]


@pytest.mark.parametrize(("dirty", "commit"), [("false", "1a2b3c4d5e6f"), ("true", "1a2b3c4d5e6f+")])
def test_the_commit_and_whether_it_was_clean_stand_in_the_file(tables, monkeypatch, dirty, commit):
    tags = {"mlflow.source.git.commit": "1a2b3c4d5e6f" + 28 * "0", "mlcl.git.dirty": dirty}
    monkeypatch.setattr(command, "provenance", lambda ignored_folder: Provenance(tags, ""))
    report = tables.run(tables.plan(TUNED))
    trials = read_trials(report.folder / "trials.parquet")
    assert set(trials.commit) == {commit}
    attrs = {"table": "table", "id": report.id, "commit": commit, "clean": str(dirty == "false").lower()}
    assert trials.attrs == {f"mlcl.{key}": value for key, value in attrs.items()}
    assert set(trials.table) == {"table"}


def test_a_fresh_seed_names_the_file_with_its_test_predictions(tables):
    report = tables.run(tables.plan(TUNED))
    assert set(read_trials(report.folder / "trials.parquet").predictions) == {None}
    assert read_trials(report.folder / "trials.parquet").attrs["mlcl.clean"] == "false"  # no commit
    (confirmation,) = Ledger(report.folder).confirmations.values()
    file = report.folder / "trials" / f"{confirmation.key}-seed1" / PREDICTIONS
    file.write_text("predictions")
    tables.run(tables.plan(TUNED))
    trials = read_trials(report.folder / "trials.parquet")
    paths = trials[(trials.stage == "confirmation") & (trials.seed == 1)].predictions
    assert [tables.home / path for path in paths] == [file]
    assert trials.predictions.notna().sum() == 1


def test_a_damaged_file_is_one_clear_error(tmp_path):
    file = tmp_path / "trials.parquet"
    file.write_text("no Parquet")
    with pytest.raises(UserError, match="cannot be read"):
        read_trials(file)
