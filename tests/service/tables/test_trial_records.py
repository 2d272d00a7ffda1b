"""The Parquet file of a table's trials: it has what the ledger has, and reads back as a frame."""

import pytest
from reproduced import TUNED

from mlcl.errors import UserError
from mlcl.results.table_trials import read_trials
from mlcl.service.engine.ledger import Ledger


def test_the_file_has_every_search_trial_and_fresh_seed(tables):
    report = tables.run(tables.plan(TUNED))
    trials = read_trials(report.folder / "trials.parquet")
    ledger = Ledger(report.folder)
    search = [entry for entry in ledger.trials(scope="warm_all") if entry.ended]
    (confirmation,) = ledger.confirmations.values()
    entries = [*search, *ledger.seeds_of(confirmation.key)]
    assert list(trials.stage) == ["search"] * len(search) + ["confirmation"] * 2
    assert set(zip(trials.row, trials.column, strict=True)) == {("Warm", "All")}
    assert list(trials.settings) == [{**entry.settings, **entry.chosen} for entry in entries]
    assert list(trials.metrics) == [entry.metrics for entry in entries]
    values = [list(zip(row.epochs, row.intermediate, strict=True)) for row in trials.itertuples()]
    assert values == [entry.intermediate for entry in entries]
    assert list(trials.seed) == [entry.job["train"]["seed"] for entry in entries]


def test_a_damaged_file_is_one_clear_error(tmp_path):
    file = tmp_path / "trials.parquet"
    file.write_text("no Parquet")
    with pytest.raises(UserError, match="cannot be read"):
        read_trials(file)
