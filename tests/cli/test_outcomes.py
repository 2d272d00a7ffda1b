"""Tests how commands plan sweeps and tables, what they print, and how they exit."""

import json
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from builders import HEADS_SPACE
from cli.conftest import TABLE
from commands import mlcl
from sweep_reports import report as sweep
from sweep_reports import trained

from mlcl.results.cell_result import CellResult, FigureResult, Origin
from mlcl.results.sweep_arms import ArmResult, ArmSearch
from mlcl.results.table_result import TableResult
from mlcl.service.engine.budget import parse_budget
from mlcl.service.engine.packing import Resources
from mlcl.service.engine.progress import ProgressEvent
from mlcl.service.tables import table as table_command
from mlcl.significance.roles import Role
from mlcl.tracking import State

SWEEP = ("sweep", "job.yaml", "space.yaml")
REPRODUCE = ("reproduce", "table")


def table(*values, printed=None, **how):
    figure = FigureResult("Acc", "test/accuracy", printed, values or (71.0, 72.0), 0.5)
    runs = tuple("mlcl-2" for _ in figure.values)
    fields = {
        "id": "mlcl-1", "name": "table", "command": "mlcl reproduce table", "title": "A table",
        "source": "A paper, Table 1", "about": "", "state": State.COMPLETE, "reason": "",
        "folder": Path("outputs/tables/mlcl-1"),
        "cells": (CellResult("CE", "All", "ce/all", (figure,), runs),),
        "unit": "percent", "higher": {"Acc": True},
    }  # fmt: skip
    return TableResult(**{**fields, **how})


class Work:
    """A stand-in for sweeps and tables without Ray and a store.

    `plan` is what was requested; `report` is the answer, or None for a usual one.
    """

    def __init__(self, folder):
        self.folder, self.plan, self.report = folder, None, None

    def run(self, plan, *, home, watch, strict_code):
        self.plan = plan
        watch(ProgressEvent("note", "this goes to standard error"))
        return self.report or (table() if hasattr(plan, "table") else sweep())


@pytest.fixture
def work(folder, monkeypatch):
    stand_in = Work(folder)
    monkeypatch.setitem(sys.modules, "mlcl.service.search.sweep", SimpleNamespace(run_sweep=stand_in.run))
    monkeypatch.setattr(table_command, "run_table", stand_in.run)
    return stand_in


AGAIN, RESUME = "the same command", "mlcl resume lab-7"
GROWN = ArmResult("heads", Role.MODEL, tuple(ArmSearch(number, 12, tried=12) for number in (1, 2)))
OUTCOMES = [
    (sweep(), 0, f"{AGAIN} with --trials 32 grows job-space"),
    (sweep(arms=(GROWN,)), 0, f"{AGAIN} with --trials 48 grows job-space"),
    (sweep(state=State.STOPPED), 130, f"stopped; {AGAIN} goes on with job-space"),
    (
        sweep(state=State.BUDGET, reason="0 left"),
        4,
        f"0 left; {AGAIN} with --budget MORE goes on with job-space",
    ),
    (sweep(state=State.FAILED, reason="0 left"), 3, "failed: 0 left"),
    (sweep(state=State.STOPPED, reason="full"), 3, f"failed: full; {AGAIN} goes on with job-space"),
    (sweep(undelivered=3), 0, "MLflow did not answer: 3 logs are kept in outputs/logs"),
    (table(printed=71.5), 0, ""),
    (table(printed=75.0), 3, "out of tolerance: ce/all Acc"),
    (table(state=State.STOPPED), 130, f"stopped; {AGAIN} goes on with table"),
    (table(printed=75.0, state=State.STOPPED), 130, f"stopped; {AGAIN} goes on with table"),
    (table(state=State.BUDGET, reason="0 left"), 4, f"0 left; {AGAIN} with --budget MORE goes on with table"),
    (table(state=State.FAILED, reason="1 of 4 runs are missing"), 3, "failed: 1 of 4 runs are missing"),
    (table(undelivered=1), 0, "1 log is kept in outputs/logs"),
]
"""Reports, their exit statuses, and the message on standard error."""


@pytest.mark.parametrize(("report", "status", "hint"), OUTCOMES)
def test_a_state_is_an_exit_status_and_a_word_on_how_to_go_on(work, report, status, hint):
    """Only results go to standard output; a job on a cluster is continued by its id."""
    work.report = report
    words, result = (
        (REPRODUCE, "| CE | 71.50 ± 0.71") if isinstance(report, TableResult) else (SWEEP, "trial 2")
    )
    answer = mlcl(*words)
    assert (answer.status, hint in answer.err, result in answer.out) == (status, True, True), answer
    assert "this goes to standard error" in answer.err
    assert not any(text and text in answer.out for text in (hint, "this goes to standard error"))
    job_answer = mlcl(*words, env={"MLCL_JOB": "lab-7"})
    for command in (f"{AGAIN} with", AGAIN):
        hint = hint.replace(command, RESUME)
    assert (job_answer.status, hint in job_answer.err) == (status, True), job_answer


@pytest.mark.parametrize(
    ("words", "report", "parts"),
    [
        (SWEEP, sweep(registered="models:/tiny@best (version 1)", spent="1.5 cpu-h", run_id="abc"),
         ("2 COMPLETE, 1 FAILED, 1 PRUNED", "trial 3 FAILED: the loss is not finite [step 3]",
          "best model: models:/tiny@best (version 1)", "spent: 1.5 cpu-h",
          "mlcl report job-space; dashboard: mlflow ui")),
        (REPRODUCE, table(), ("outputs/tables/mlcl-1/table.{md,tex,json}; dashboard: mlflow ui",)),
    ],
)  # fmt: skip
def test_results_are_printed(work, words, report, parts):
    work.report = report
    answer = mlcl(*words)
    assert [part for part in parts if part not in answer.out] == []


def test_the_next_command_names_a_home_that_was_typed(work):
    work.report = sweep()
    for words, option in (([], ""), (["--home", "that's it"], """ --home 'that'"'"'s it'""")):
        assert f"mlcl report job-space{option}; dashboard: " in mlcl(*SWEEP, *words).out


def test_json_is_one_document_and_json_lines(work):
    work.report = sweep(trials=(trained(0, score=0.5),))
    answer = mlcl(*SWEEP, "--json")
    assert [answer.json[key] for key in ("id", "state", "best")] == ["mlcl-1", "COMPLETE", "trial 0"]
    assert [json.loads(line)["kind"] for line in answer.err.splitlines()] == ["note"]
    work.report = table(71.0, None, printed=75.0, state=State.FAILED, reason="no")
    answer = mlcl(*REPRODUCE, "--json")
    tree = answer.json
    assert [tree[key] for key in ("id", "state", "outside", "missing")] == [
        "mlcl-1", "FAILED", [], ["ce/all Acc"]
    ]  # fmt: skip
    assert tree["cells"][0]["figures"][0]["values"] == [71.0, None]
    assert (tree["dashboard"].startswith("mlflow ui"), answer.status) == (True, 3)
    assert json.loads(answer.err.splitlines()[0])["kind"] == "note"


def test_what_was_asked_reaches_the_sweep(work):
    (work.folder / "base.yaml").write_text((work.folder / "job.yaml").read_text())
    mlcl(
        *SWEEP, "train.epochs=5", "objective.heads.topic.temperature=0.75", "--trials", 4, "--seeds", 3,
        "--confirm", 2, "--baseline", "base.yaml", "--budget", "2h", "--fresh", "--warm-start", "older",
        "--cpus", 2, "--gpus", 0.5, "--no-baselines", "--try", "train.lr=1e-3, encoder.kernel_sizes=[2,3]",
        "--try", "objective.heads.topic.temperature=0.2",
    )  # fmt: skip
    plan = work.plan
    assert (plan.trials, plan.seeds, plan.confirm, plan.fresh) == (4, 3, 2, True)
    assert plan.searches == 3
    assert plan.control.objective.heads == {}
    assert (plan.name, plan.warm_start) == ("job-space", "older")
    first, second = plan.try_first
    assert first == {"train.lr": 0.001, "encoder.kernel_sizes": [2, 3]}
    assert second == {"objective.heads.topic.temperature": 0.2}
    assert plan.resources == Resources(2.0, 0.5, None, parse_budget("2h"))
    ((name, baseline),) = plan.baselines
    # The baseline shares the settings of training and not the compared settings.
    assert (name, baseline.train.epochs, plan.job.train.epochs) == ("base", 5, 5)
    temperatures = [job.objective.heads["topic"].temperature for job in (plan.job, baseline)]
    assert (temperatures[0], temperatures[1] == 0.75) == (0.75, False)


def test_baselines_that_fit_are_confirmed_beside_those_that_are_named(work):
    (work.folder / "majority.yaml").write_text((work.folder / "job.yaml").read_text())
    mlcl(*SWEEP, "--seeds", 2, "--baseline", "majority.yaml")
    baselines = [(name, job.baseline) for name, job in work.plan.baselines]
    fitted_names = ["tfidf_knn", "tfidf_logreg", "tfidf_logreg_balanced", "tfidf_svm"]
    assert baselines == [("majority", None), *((name, name) for name in fitted_names)]
    mlcl(*SWEEP, "--seeds", 0)
    assert work.plan.baselines == []


def test_a_space_that_is_used_up_does_not_grow(work):
    space = {"space": {"train.epochs": {"choice": [1, 2]}}, "search": {"sampler": "brute_force"}}
    (work.folder / "space.yaml").write_text(yaml.safe_dump(space))
    answer = mlcl(*SWEEP, "--trials", 3)
    assert (answer.status, "grows" in answer.err) == (0, False)
    assert "every setting of the space has been tried" in answer.err
    for seeds, grows in ((3, True), (0, False)):  # each of three searches has one trial
        answer = mlcl(*SWEEP, "--trials", 3, "--seeds", seeds)
        assert ("grows" in answer.err, "has been tried" in answer.err) == (grows, not grows)


def test_what_was_asked_reaches_the_table(work):
    options = "--scale small --seeds 2 --only cold --only */all --cpus 2 --gpus 0.5 --budget 30cpu-h"
    answer = mlcl(*REPRODUCE, "train.lr=0.5", "train.epochs=2", *options.split(), "--data", "coco=a=b")
    assert answer.status == 0, answer.err
    plan = work.plan
    assert (plan.name, plan.table.title) == ("table@small", TABLE["title"])
    assert plan.file == Path("tables/table.yaml")
    assert (plan.scale, plan.seeds, list(plan.only)) == ("small", 2, ["cold", "*/all"])
    assert plan.resources == Resources(2.0, 0.5, None, parse_budget("30cpu-h"))
    assert (plan.overrides, plan.data) == ({"train.lr": 0.5, "train.epochs": 2}, {"coco": "a=b"})


def test_the_command_that_stands_below_a_table_asks_for_the_same(work):
    mlcl(
        *REPRODUCE,
        "train.lr=0.5",
        "train.clip_norm=null",
        "--only",
        "*/all",
        "--data",
        "coco=a b",
        "--seeds",
        2,
    )
    first = work.plan
    words = shlex.split(first.command)
    assert words[:3] == ["mlcl", *REPRODUCE]
    mlcl(*words[1:])
    assert work.plan == first
    file = work.folder / "own table.yaml"
    file.write_text(yaml.safe_dump({**TABLE, "job": "job.yaml"}))
    mlcl("reproduce", file)
    assert work.plan.command == f"mlcl reproduce '{file}'"


def test_the_list_says_what_tables_are_and_need(work):
    other = {"data": {"source": "icd10cm"}, "evaluation.transfer_to": {"source": "digits", "labels": "x"}}
    (work.folder / "tables" / "table.yaml").write_text(yaml.safe_dump({**TABLE, "set": other}))
    answer = mlcl("reproduce", "--list")
    for text in ("table", "A paper, Table 1", "A [small] table", "2", "3", "digits, icd10cm", "small"):
        assert text in answer.out
    listing = mlcl("reproduce", "--list", "--json").json
    assert listing["table"] == {
        "title": "A [small] table", "source": "A paper, Table 1", "cells": 2, "seeds": 3,
        "data": ["digits", "icd10cm"], "scales": {"small": "Less of it."},
    }  # fmt: skip
    assert {"demo-table", "mlcl-table4"} <= listing.keys()  # packaged tables
    assert (mlcl("reproduce").out, work.plan) == (answer.out, None)


def test_figures_are_written_a_cell(work):
    result = table(71.0, 72.0)
    work.report = replace(
        result, cells=(replace(result.cells[0], row="Cold", id="cold/all", origin=Origin("s")),)
    )
    answer = mlcl(*REPRODUCE, "--figures", "figures")
    assert "the figures of 1 of 1 cells are in figures" in answer.err
    assert json.loads(Path("figures/cold/all.json").read_text())["row"] == "Cold"


def test_a_dry_run_and_a_printed_job_start_nothing(work):
    """A dry run and a printed job start neither a run, nor a sweep, nor a table."""
    plan = mlcl("run", "job.yaml", "--dry-run", "--json").json
    assert plan["training"] == {
        "epochs": 4, "steps_per_epoch": 3, "steps": 12, "rows_per_step": 32, "workers": 1
    }  # fmt: skip
    split_plan = mlcl("run", "job.yaml", "train.batch_size=23", "train.workers=3", "--dry-run", "--json").json
    assert split_plan["training"]["steps_per_epoch"] == 2  # of 48 rows 2 remain, too few for three workers
    large_batch_plan = mlcl("run", "job.yaml", "train.batch_size=5000", "--dry-run", "--json").json
    assert large_batch_plan["training"]["rows_per_step"] == 2 * large_batch_plan["data"]["train"]
    config = mlcl("run", "job.yaml", "--print-config", "train.epochs=9")
    Path("printed.yaml").write_text(config.out)
    assert mlcl("run", "printed.yaml", "--dry-run", "--json").json["training"]["epochs"] == 9
    assert yaml.safe_load(mlcl(*SWEEP, "--print-config", "train.epochs=7").out)["train"]["epochs"] == 7
    Path("space.yaml").write_text(yaml.safe_dump(HEADS_SPACE))
    lines = mlcl(*SWEEP, "--dry-run", "--trials", 9, "--no-baselines", "--seeds", 2).out.splitlines()
    parts = {
        1: "9 of heads, in 3 searches each",
        4: "at most 132; 4 a training, 3 steps each; pruned at epoch 1, 2",
        5: "unknown until a training of this sweep has ended",
        6: "trainings keep model and embeddings",
        7: "tiny: 48 training and 24 validation rows",
    }  # fmt: skip
    assert (len(lines), [part for line, part in parts.items() if part not in lines[line]]) == (11, [])
    text = mlcl(*SWEEP, "--dry-run", "--try", "objective.heads.topic.temperature=0.25").out
    assert "; tried first: topic.temperature 0.25\n" in text
    tree = yaml.safe_load(mlcl(*SWEEP, "--dry-run", "--print-config", "--trials", 9).out)
    assert (tree["sweep"]["trials"], tree["sweep"]["time"]) == (9, None)
    section = mlcl(*SWEEP, "--trials", 5, "--seeds", 3, "--dry-run", "--json").json["sweep"]
    assert (section["trials"], section["most_confirmation_runs"], section["rungs_at_epochs"]) == (
        6,
        39,
        [1, 2],
    )
    fitted_names = ["majority", "tfidf_knn", "tfidf_logreg", "tfidf_logreg_balanced", "tfidf_svm"]
    assert section["baselines"] == ["control", *fitted_names]
    assert section["answered_after_training"] == {
        "evaluation.knn.grid.k": 2,
        "evaluation.knn.grid.lambda": 21,
    }
    trainings = mlcl(*REPRODUCE, "--dry-run", "--json", "--only", "warm").json["trainings"]
    assert (trainings["missing"], trainings["epochs"]) == (3, 6)
    assert yaml.safe_load(mlcl(*REPRODUCE, "--dry-run").out)["trainings"]["missing"] == 6
    assert (work.plan, Path("outputs").exists()) == (None, False)
