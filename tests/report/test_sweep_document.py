"""The report of a sweep whose own search and that of a baseline find the same setting."""

import pytest
from builders import tiny_job
from report.test_report import QUICK, table_below
from sweeps import World

from mlcl.report.comparison import compare_settings
from mlcl.report.comparison_tables import as_dict, notes
from mlcl.report.report import make_report
from mlcl.report.run_lookup import find_settings
from mlcl.report.runs import Runs

SPACE = "space: {train.lr: {choice: [0.003, 0.004]}}\nsearch: {sampler: brute_force, scheduler: none}"


@pytest.fixture(scope="module")
def twins(store, tiny, tmp_path_factory):
    """The sweep's report, and the Markdown of the one that is read from the store."""
    with pytest.MonkeyPatch.context() as patch:
        world = World(tmp_path_factory.mktemp("twins"), patch, store.tracker.uri)
        world.formula.scale = lambda job: 0.9 if job.train.lr == 0.003 else 0.5
        job, twin = (tiny_job(tiny, "train.epochs=2", "experiment=twins", f"train.lr={lr}") for lr in (1, 2))
        baselines = [("twin", twin)]
        found = world.run(world.plan(job, SPACE, trials=2, seeds=2, name="twins", baselines=baselines))
        folder = world.home / "it"
        made = make_report(Runs(store.tracker), found.id, world.home, folder=folder, embeddings=QUICK)
        return found, (made.folder / "report.md").read_text()


def test_the_first_line_is_the_command_s(twins):
    found, text = twins
    assert found.verdict.result == "same"
    result = text.partition("## Result\n")[2].lstrip()
    assert result.startswith(found.verdict.sentence)


def test_a_comparison_says_which_setting_has_two_names(twins, store):
    found, text = twins
    said = f"{found.confirmations[0].label}: one setting, with no difference to test."
    assert said in text
    compared = compare_settings(find_settings(Runs(store.tracker), ["twins"]), "accuracy")
    assert said in notes(compared)
    assert as_dict(compared)["reference"]["names"] == found.confirmations[0].label
    (alone,) = find_settings(Runs(store.tracker), [compared.reference.runs[1].run_id])
    assert alone.names == found.confirmations[0].label


def test_the_trials_of_baselines_are_among_what_it_took(twins):
    told = table_below(twins[1], "What it took")
    assert told["search of baselines, COMPLETE"]["trainings"] == "2"
    assert told["all"]["trainings"] == "8"
