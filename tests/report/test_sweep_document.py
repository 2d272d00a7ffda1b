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
        noted = copytree(tiny, world.home / "noted")
        info = json.loads((noted / "dataset.json").read_text())
        (noted / "dataset.json").write_text(json.dumps({**info, "notes": ["one text is empty"]}))
        world.formula.scale = lambda job: 0.9 if job.train.lr == 0.003 else 0.5
        job, twin = (tiny_job(noted, "train.epochs=2", "experiment=twins", f"train.lr={lr}") for lr in (1, 2))
        baselines = [("twin", twin)]
        found = world.run(world.plan(job, SPACE, trials=2, seeds=2, name="twins", baselines=baselines))
        folder = world.home / "it"
        made = make_report(Runs(store.tracker), found.id, world.home, folder=folder, embeddings=QUICK)
        return found, (made.folder / "report.md").read_text()


def test_the_first_line_is_the_command_s(twins):
    found, text = twins
    (verdict,) = found.verdicts
    assert (verdict.difference, verdict.answer) == (
        0,
        Conclusion.NO_DIFFERENCE,
    )  # both searches find the same
    result = text.partition("## Result\n")[2].lstrip()
    assert result.startswith(verdict.sentence)


def test_of_very_many_trials_the_best_are_shown(twins, store, tmp_path, monkeypatch):
    found, whole = twins
    monkeypatch.setattr(sweep_document, "MOST", 1)
    made = make_report(Runs(store.tracker), found.id, tmp_path, embeddings=QUICK, log=False)
    best = (made.folder / "report.md").read_text().partition("### The best 1\n")[2]
    assert "All 2 trials: mlcl.load('twins').frame." in best
    table = best.partition("\n#")[0]
    assert (table.count("COMPLETE"), "trial 1" in table) == (1, False)
    assert whole.partition("### All trials\n")[2].partition("\n#")[0].count("COMPLETE") == 2


def test_a_sweep_is_exported_as_the_best_seed_of_its_confirmed_setting(twins, store, monkeypatch):
    found, _ = twins
    monkeypatch.setattr(Runs, "has", lambda *_: True)
    runs = Runs(store.tracker)
    run = model_run(runs, "twins")
    seeds = {seed.run_id: seed.metrics["val/accuracy"] for seed in found.confirmations[-1].seeds}
    assert run.info.run_id == max(seeds, key=seeds.get)
    assert "test/accuracy" in run.data.metrics


HEADS_SPACE = SPACE.replace("train.lr", "objective.heads.detail.temperature").replace("0.003", "0.2")


@pytest.fixture(scope="module")
def misnamed(store, tiny, tmp_path_factory):
    """Runs a sweep that loses to baselines with the names of a trial, of the best trial and of the job."""
    with pytest.MonkeyPatch.context() as patch:
        world = World(tmp_path_factory.mktemp("misnamed"), patch, store.tracker.uri)
        found = 0.2  # the temperature that the search finds
        world.formula.score = lambda job, _: (
            1
            - job.encoder.dropout
            + 0.1 * (found in [its.temperature for its in job.objective.heads.values()])
        )
        own = ("train.epochs=2", "experiment=misnamed", "encoder.dropout=0.5")
        baselines = [
            (name, tiny_job(tiny, "train.epochs=2", "objective.heads={}", f"encoder.dropout={dropout}"))
            for name, dropout in (("trial 1", 0.1), ("best found", 0.2), ("as written", 0.3))
        ]
        how = {"trials": 2, "seeds": 2, "name": "misnamed", "baselines": baselines}
        return world.home, world.run(world.plan(tiny_job(tiny, *own), HEADS_SPACE, **how))


def test_a_baseline_file_named_as_a_trial_stays_a_baseline_everywhere(misnamed, store, tmp_path, monkeypatch):
    home, found = misnamed
    best = found.best.label
    baselines = ["trial 1, baseline", "best found", "as written, baseline"]
    told = dict.fromkeys(baselines, Role.BASELINE) | {best: Role.MODEL}
    assert {each.name: each.role for each in found.settings} == told
    (verdict,) = found.verdicts
    assert (verdict.reference.label, verdict.treated.label) == ("trial 1", "heads")
    runs = Runs(store.tracker)
    assert [each.role for each in read_sweep(runs, runs.get(found.run_id)).settings] == list(told.values())
    compared = compare_settings(find_settings(runs, ["misnamed"]))
    labels = [compared.reference.label, *(row.setting.label for row in compared.rows)]
    assert labels == ["trial 1", "best found", "as written", "heads"]
    made = make_report(runs, "misnamed", home, folder=tmp_path / "it", embeddings=QUICK, log=False)
    text = (made.folder / "report.md").read_text()
    assert verdict.answer is Conclusion.HURTS
    assert "Use trial 1, baseline:" in text
    monkeypatch.setattr(Runs, "has", lambda *_: True)
    run = model_run(runs, "misnamed").data
    assert (run.params["encoder.dropout"], run.tags["mlcl.id"]) == ("0.1", "trial 1, seed 1")
    frame = mlcl.results.load("misnamed", home=home, uri=store.tracker.uri)
    fresh = frame[frame["kind"] == "confirmation"].groupby("setting")["encoder.dropout"].unique()
    dropouts = dict(zip(baselines, (0.1, 0.2, 0.3), strict=True)) | {best: 0.5}
    assert {name: list(its) for name, its in fresh.items()} == {name: [its] for name, its in dropouts.items()}


def test_a_run_has_a_report_and_a_sweeps_training_that_of_its_sweep(twins, store, tmp_path):
    alone = {"test/accuracy": 0.5, "val/accuracy": 0.6}
    notes = '["2 rows have no label", "files are *old*"]'
    tags = {"mlcl.id": "alone-1", "mlcl.data": "mine", "mlcl.data_notes": notes}
    store.add("alone", name="alone", seed=3, tags=tags, metrics=alone, params={"a": 1})
    runs = Runs(store.tracker)
    made = make_report(runs, "alone-1", tmp_path, folder=tmp_path / "it", embeddings=QUICK, log=False)
    text = (made.folder / "report.md").read_text()
    assert re.search(r"\| accuracy \| \[0.6000\]\(.*\) \| \[0.5000\]", text)
    said = text.partition("## Data\n")[2].partition("##")[0].split("\n\n")
    assert [line.strip() for line in said if line.strip()] == [
        "mine: 2 rows have no label",
        "mine: files are \\*old\\*",
    ]
    seed = twins[0].confirmations[0].seeds[0].run_id
    made = make_report(runs, seed, tmp_path, folder=tmp_path / "of", embeddings=QUICK, log=False)
    assert made.run_id == twins[0].run_id


def test_a_sweep_lists_the_notes_of_its_data_once(twins):
    section = twins[1].partition("## Data\n")[2].partition("##")[0]
    assert section.strip() == "tiny: one text is empty"


def test_the_trials_of_baselines_are_among_what_it_took(twins):
    told = table_below(twins[1], "What it took")
    assert told["search of baselines, COMPLETE"]["trainings"] == "2"
    assert told["races"]["trainings"] == "8"  # the job as written and the best trial, of both searches
    assert told["all"]["trainings"] == "16"


def test_the_report_says_what_the_time_went_into():
    known = SimpleNamespace(seconds=10.0, metrics=dict(zip(TIMES, (6.0, 3.0), strict=True)))
    unknown = SimpleNamespace(seconds=5.0, metrics={})
    settings = [SimpleNamespace(seeds=[known])]
    data = SimpleNamespace(result=SimpleNamespace(all_trials=[known, unknown], settings=settings))
    (said,) = time_shares(data)
    assert said.startswith("Of the 20 s of 2 trainings, 60% were training and 30% evaluation; ")
    data.result.settings, data.result.all_trials = [], [unknown]
    assert time_shares(data) == []
