"""Tests of the report of a sweep whose own search and that of a baseline find the same setting."""

import json
import re
from shutil import copytree
from types import SimpleNamespace

import pytest
from builders import tiny_job
from report.test_report import QUICK, table_below
from sweeps import World

import mlcl.results
from mlcl.report import sweep_document
from mlcl.report.report import make_report
from mlcl.report.sweep_document import time_shares
from mlcl.results.comparison import compare_settings
from mlcl.results.documents import read_sweep
from mlcl.results.runs import Runs
from mlcl.results.settings import find_settings
from mlcl.service.export_run import model_run
from mlcl.significance.roles import Role
from mlcl.significance.verdict import Conclusion
from mlcl.training.events import TIMES

SPACE = "space: {train.lr: {choice: [0.003, 0.004]}}\nsearch: {sampler: brute_force, scheduler: none}"


@pytest.fixture(scope="module")
def twins(store, tiny, tmp_path_factory):
    """Runs the sweep; returns its result, and the Markdown of the report that is read from the store."""
    with pytest.MonkeyPatch.context() as patch:
        world = World(tmp_path_factory.mktemp("twins"), patch, store.tracker.uri)
        data_folder = copytree(tiny, world.home / "noted")
        info = json.loads((data_folder / "dataset.json").read_text())
        (data_folder / "dataset.json").write_text(json.dumps({**info, "notes": ["one text is empty"]}))
        world.formula.scale = lambda job: 0.9 if job.train.lr == 0.003 else 0.5
        job, twin_job = (
            tiny_job(data_folder, "train.epochs=2", "experiment=twins", f"train.lr={lr}") for lr in (1, 2)
        )
        baselines = [("twin", twin_job)]
        result = world.run(world.plan(job, SPACE, trials=2, seeds=2, name="twins", baselines=baselines))
        folder = world.home / "it"
        report = make_report(Runs(store.tracker), result.id, world.home, folder=folder, embeddings=QUICK)
        return result, (report.folder / "report.md").read_text()


def test_the_first_line_is_the_command_s(twins):
    sweep_result, text = twins
    (verdict,) = sweep_result.verdicts
    assert (verdict.difference, verdict.answer) == (
        0,
        Conclusion.NO_DIFFERENCE,
    )  # both searches find the same
    result = text.partition("## Result\n")[2].lstrip()
    assert result.startswith(verdict.sentence)


def test_of_very_many_trials_the_best_are_shown(twins, store, tmp_path, monkeypatch):
    sweep_result, whole = twins
    monkeypatch.setattr(sweep_document, "MOST", 1)
    report = make_report(Runs(store.tracker), sweep_result.id, tmp_path, embeddings=QUICK, log=False)
    best = (report.folder / "report.md").read_text().partition("### The best 1\n")[2]
    assert "All 2 trials: mlcl.load('twins').frame." in best
    table = best.partition("\n#")[0]
    assert (table.count("COMPLETE"), "trial 1" in table) == (1, False)
    assert whole.partition("### All trials\n")[2].partition("\n#")[0].count("COMPLETE") == 2


def test_a_sweep_is_exported_as_the_best_seed_of_its_confirmed_setting(twins, store, monkeypatch):
    sweep_result, _ = twins
    monkeypatch.setattr(Runs, "has_artifact", lambda *_: True)
    runs = Runs(store.tracker)
    run = model_run(runs, "twins")
    seeds = {seed.run_id: seed.metrics["val/accuracy"] for seed in sweep_result.confirmations[-1].seeds}
    assert run.info.run_id == max(seeds, key=seeds.get)
    assert "test/accuracy" in run.data.metrics


HEADS_SPACE = SPACE.replace("train.lr", "objective.heads.detail.temperature").replace("0.003", "0.2")


@pytest.fixture(scope="module")
def misnamed(store, tiny, tmp_path_factory):
    """Runs a sweep that loses to baselines with the names of a trial, of the best trial and of the job."""
    with pytest.MonkeyPatch.context() as patch:
        world = World(tmp_path_factory.mktemp("misnamed"), patch, store.tracker.uri)
        best_temperature = 0.2  # the temperature that the search finds
        world.formula.score = lambda job, _: (
            1
            - job.encoder.dropout
            + 0.1 * (best_temperature in [head.temperature for head in job.objective.heads.values()])
        )
        overrides = ("train.epochs=2", "experiment=misnamed", "encoder.dropout=0.5")
        baselines = [
            (name, tiny_job(tiny, "train.epochs=2", "objective.heads={}", f"encoder.dropout={dropout}"))
            for name, dropout in (("trial 1", 0.1), ("best found", 0.2), ("as written", 0.3))
        ]
        options = {"trials": 2, "seeds": 2, "name": "misnamed", "baselines": baselines}
        return world.home, world.run(world.plan(tiny_job(tiny, *overrides), HEADS_SPACE, **options))


def test_a_baseline_file_named_as_a_trial_stays_a_baseline_everywhere(misnamed, store, tmp_path, monkeypatch):
    home, sweep_result = misnamed
    best = sweep_result.best.label
    baselines = ["trial 1, baseline", "best found", "as written, baseline"]
    roles = dict.fromkeys(baselines, Role.BASELINE) | {best: Role.MODEL}
    assert {setting.name: setting.role for setting in sweep_result.settings} == roles
    (verdict,) = sweep_result.verdicts
    assert (verdict.reference.label, verdict.treated.label) == ("trial 1", "heads")
    runs = Runs(store.tracker)
    assert [setting.role for setting in read_sweep(runs, runs.get(sweep_result.run_id)).settings] == list(
        roles.values()
    )
    comparison = compare_settings(find_settings(runs, ["misnamed"]))
    labels = [comparison.reference.label, *(row.setting.label for row in comparison.rows)]
    assert labels == ["trial 1", "best found", "as written", "heads"]
    report = make_report(runs, "misnamed", home, folder=tmp_path / "it", embeddings=QUICK, log=False)
    text = (report.folder / "report.md").read_text()
    assert verdict.answer is Conclusion.HURTS
    assert "Use trial 1, baseline:" in text
    monkeypatch.setattr(Runs, "has_artifact", lambda *_: True)
    run = model_run(runs, "misnamed").data
    assert (run.params["encoder.dropout"], run.tags["mlcl.id"]) == ("0.1", "trial 1, seed 1")
    frame = mlcl.results.load("misnamed", home=home, uri=store.tracker.uri)
    fresh_dropouts = frame[frame["kind"] == "confirmation"].groupby("setting")["encoder.dropout"].unique()
    dropouts = dict(zip(baselines, (0.1, 0.2, 0.3), strict=True)) | {best: 0.5}
    assert {name: list(values) for name, values in fresh_dropouts.items()} == {
        name: [dropout] for name, dropout in dropouts.items()
    }


def test_a_run_has_a_report_and_a_sweeps_training_that_of_its_sweep(twins, store, tmp_path):
    metrics = {"test/accuracy": 0.5, "val/accuracy": 0.6}
    notes = '["2 rows have no label", "files are *old*"]'
    tags = {"mlcl.id": "alone-1", "mlcl.data": "mine", "mlcl.data_notes": notes}
    store.add("alone", name="alone", seed=3, tags=tags, metrics=metrics, params={"a": 1})
    runs = Runs(store.tracker)
    report = make_report(runs, "alone-1", tmp_path, folder=tmp_path / "it", embeddings=QUICK, log=False)
    text = (report.folder / "report.md").read_text()
    assert re.search(r"\| accuracy \| \[0.6000\]\(.*\) \| \[0.5000\]", text)
    paragraphs = text.partition("## Data\n")[2].partition("##")[0].split("\n\n")
    assert [line.strip() for line in paragraphs if line.strip()] == [
        "mine: 2 rows have no label",
        "mine: files are \\*old\\*",
    ]
    seed = twins[0].confirmations[0].seeds[0].run_id
    report = make_report(runs, seed, tmp_path, folder=tmp_path / "of", embeddings=QUICK, log=False)
    assert report.run_id == twins[0].run_id


def test_a_sweep_lists_the_notes_of_its_data_once(twins):
    section = twins[1].partition("## Data\n")[2].partition("##")[0]
    assert section.strip() == "tiny: one text is empty"


def test_the_trials_of_baselines_are_among_what_it_took(twins):
    rows = table_below(twins[1], "What it took")
    assert rows["search of baselines, COMPLETE"]["trainings"] == "2"
    assert rows["races"]["trainings"] == "8"  # the job as written and the best trial, of both searches
    assert rows["all"]["trainings"] == "16"


def test_the_report_says_what_the_time_went_into():
    timed_training = SimpleNamespace(seconds=10.0, metrics=dict(zip(TIMES, (6.0, 3.0), strict=True)))
    untimed_training = SimpleNamespace(seconds=5.0, metrics={})
    settings = [SimpleNamespace(seeds=[timed_training])]
    data = SimpleNamespace(
        result=SimpleNamespace(all_trials=[timed_training, untimed_training], settings=settings)
    )
    (sentence,) = time_shares(data)
    assert sentence.startswith("Of the 20 s of 2 trainings, 60% were training and 30% evaluation; ")
    data.result.settings, data.result.all_trials = [], [untimed_training]
    assert time_shares(data) == []
