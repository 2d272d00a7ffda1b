"""`mlcl reproduce` around the work itself: what it asks for, where it prints what, how it exits."""

import json
import shlex
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from builders import job_tree
from typer.testing import CliRunner

from mlcl.cli.main import app
from mlcl.errors import UserError
from mlcl.results.cell_result import CellResult, FigureResult, Origin
from mlcl.results.table_result import TableResult
from mlcl.service import tables
from mlcl.service.engine.budget import parse_budget
from mlcl.service.engine.packing import Resources
from mlcl.service.engine.progress import ProgressEvent
from mlcl.tracking import State

TABLE = {
    "title": "A [small] table",
    "experiment": "tiny",
    "source": "A paper, Table 1",
    "job": "../job.yaml",
    "metrics": {"Acc": "test/accuracy"},
    "tolerance": 5,
    "seeds": 3,
    "rows": {"Cold": {}, "Warm": {"set": {"train.epochs": 2}}},
    "columns": {"All": {}},
    "scales": {"small": {"about": "Less of it.", "seeds": 1}},
}
BUDGET_HINT = "the budget is used up; the same command with --budget MORE goes on with table"


def report(*values, printed=None, **how):
    figure = FigureResult("Acc", "test/accuracy", printed, values or (71.0, 72.0), 0.5)
    runs = tuple("mlcl-2" for _ in figure.values)
    fields = {
        "id": "mlcl-1",
        "name": "table",
        "command": "mlcl reproduce table",
        "title": "A table",
        "source": "A paper, Table 1",
        "about": "",
        "state": State.COMPLETE,
        "reason": "",
        "folder": Path("outputs/tables/mlcl-1"),
        "cells": (CellResult("CE", "All", "ce/all", (figure,), runs),),
        "unit": "percent",
        "higher": {"Acc": True},
    }
    return TableResult(**{**fields, **how})


class Reproduce:
    """`mlcl reproduce` in a folder with one table; `plan` is what was then asked for."""

    def __init__(self, folder):
        self.folder, self.plan, self.report = folder, None, report()
        (folder / "tables").mkdir()
        (folder / "job.yaml").write_text(yaml.safe_dump(job_tree(folder / "data")))
        self.write(TABLE)

    def write(self, tree):
        (self.folder / "tables" / "table.yaml").write_text(yaml.safe_dump(tree, sort_keys=False))

    def run_table(self, plan, *, home, watch, strict_code):
        self.plan = plan
        watch(ProgressEvent("note", "this goes to standard error"))
        return self.report

    def __call__(self, *arguments):
        command = ["reproduce", *map(str, arguments), "--home", str(self.folder / "outputs")]
        return CliRunner().invoke(app, command)


@pytest.fixture
def mlcl(tmp_path, monkeypatch):
    """The command line alone: no Ray, no store."""
    made = Reproduce(tmp_path)
    monkeypatch.setattr(tables, "run_table", made.run_table)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.chdir(tmp_path)
    return made


def test_what_was_asked_reaches_the_table(mlcl):
    options = "--scale small --seeds 2 --only cold --only */all --cpus 2 --gpus 0.5 --budget 30cpu-h"
    answer = mlcl("table", "train.lr=0.5", "train.epochs=2", *options.split(), "--data", "coco=a=b")
    assert answer.exit_code == 0, answer.output
    plan = mlcl.plan
    assert (plan.name, plan.table.title) == ("table@small", TABLE["title"])
    assert plan.file == Path("tables/table.yaml")
    assert (plan.scale, plan.seeds, list(plan.only)) == ("small", 2, ["cold", "*/all"])
    assert plan.resources == Resources(2.0, 0.5, None, parse_budget("30cpu-h"))
    assert (plan.overrides, plan.data) == ({"train.lr": 0.5, "train.epochs": 2}, {"coco": "a=b"})


def test_the_command_that_stands_below_a_table_asks_for_the_same(mlcl):
    mlcl(
        "table", "train.lr=0.5", "train.clip_norm=null", "--only", "*/all", "--data", "coco=a b", "--seeds", 2
    )
    first = mlcl.plan
    words = shlex.split(first.command)
    assert words[:3] == ["mlcl", "reproduce", "table"]
    mlcl(*words[2:])
    assert mlcl.plan == first


def test_a_file_of_ones_own_is_named_by_its_path(mlcl):
    own = mlcl.folder / "own table.yaml"
    own.write_text(yaml.safe_dump({**TABLE, "job": "job.yaml"}))
    mlcl(own)
    assert mlcl.plan.command == f"mlcl reproduce '{own}'"


@pytest.mark.parametrize(
    ("its", "status", "hint"),
    [
        (report(printed=71.5), 0, ""),
        (report(printed=75.0), 3, "out of tolerance: ce/all Acc"),
        (report(state=State.STOPPED), 130, "stopped; the same command goes on"),
        (report(printed=75.0, state=State.STOPPED), 130, "stopped; the same command goes on"),
        (report(state=State.BUDGET, reason="the budget is used up"), 4, BUDGET_HINT),
        (report(state=State.FAILED, reason="1 of 4 runs are missing"), 3, "failed: 1 of 4 runs are missing"),
    ],
)
def test_a_state_is_an_exit_status_and_a_word_on_it(mlcl, its, status, hint):
    mlcl.report = its
    answer = mlcl("table")
    assert answer.exit_code == status
    assert hint in answer.stderr
    assert "| CE | 71.50 ± 0.71" in answer.stdout
    assert not hint or hint not in answer.stdout


def test_the_table_goes_to_standard_output_and_progress_does_not(mlcl):
    answer = mlcl("table")
    assert "outputs/tables/mlcl-1/table.{md,tex,json}; dashboard: mlflow ui" in answer.stdout
    assert "this goes to standard error" in answer.stderr
    assert "this goes to standard error" not in answer.stdout


def test_logs_that_wait_are_told(mlcl):
    mlcl.report = report(undelivered=2)
    assert f"2 logs are kept in {mlcl.folder / 'outputs' / 'logs'}" in mlcl("table").stderr


def test_json_is_one_document_and_json_lines(mlcl):
    mlcl.report = report(71.0, None, printed=75.0, state=State.FAILED, reason="no")
    answer = mlcl("table", "--json")
    tree = json.loads(answer.stdout, parse_constant=pytest.fail)
    assert (tree["id"], tree["state"]) == ("mlcl-1", "FAILED")
    assert (tree["outside"], tree["missing"]) == ([], ["ce/all Acc"])
    assert tree["cells"][0]["figures"][0]["values"] == [71.0, None]
    assert tree["dashboard"].startswith("mlflow ui")
    assert json.loads(answer.stderr.splitlines()[0])["kind"] == "note"
    assert answer.exit_code == 3


def test_the_list_says_what_tables_are_and_need(mlcl):
    other = {"data": {"source": "icd10cm"}, "evaluation.transfer_to": {"source": "digits", "labels": "x"}}
    mlcl.write({**TABLE, "set": other})
    answer = mlcl("--list")
    assert answer.exit_code == 0, answer.output
    for text in ("table", "A paper, Table 1", "A [small] table", "2", "3", "digits, icd10cm", "small"):
        assert text in answer.stdout
    assert json.loads(mlcl("--list", "--json").stdout) == {
        "table": {
            "title": "A [small] table", "source": "A paper, Table 1", "cells": 2, "seeds": 3,
            "data": ["digits", "icd10cm"], "scales": {"small": "Less of it."},
        }
    }  # fmt: skip
    assert mlcl().stdout == answer.stdout
    assert mlcl.plan is None


@pytest.mark.parametrize("how", [(), ("--json",)])
def test_no_tables_are_no_list(mlcl, how):
    (mlcl.folder / "tables" / "table.yaml").unlink()
    answer = mlcl("--list", *how)
    assert isinstance(answer.exception, UserError)
    assert answer.exception.key == "TABLE"


@pytest.mark.parametrize(
    ("arguments", "key"),
    [
        (("tabel",), "TABLE"),
        (("table", "--data", "coco"), "--data"),
        (("table", "--data", "=x"), "--data"),
        (("table", "--data", "a=x", "--data", "a=y"), "--data"),
        (("table", "--figures", "job.yaml/figures"), "--figures"),
        (("absent.yaml",), None),
    ],
)
def test_bad_input_ends_before_the_work(mlcl, arguments, key):
    answer = mlcl(*arguments)
    assert isinstance(answer.exception, UserError)
    assert answer.exception.key == key
    assert mlcl.plan is None


def test_figures_are_written_a_cell(mlcl):
    its = report(71.0, 72.0)
    mlcl.report = replace(its, cells=(replace(its.cells[0], row="Cold", id="cold/all", origin=Origin("s")),))
    answer = mlcl("table", "--figures", mlcl.folder / "figures")
    assert f"the figures of 1 of 1 cells are in {mlcl.folder / 'figures'}" in answer.stderr
    assert json.loads((mlcl.folder / "figures" / "cold" / "all.json").read_text())["row"] == "Cold"


@pytest.mark.parametrize("option", [("--seeds", 0), ("--cpus", 0), ("--gpus", -1)])
def test_numbers_have_bounds(mlcl, option):
    assert mlcl("table", *option).exit_code == 2
    assert mlcl.plan is None


def test_a_dry_run_prints_the_plan_and_starts_nothing(mlcl, tiny):
    (mlcl.folder / "job.yaml").write_text(yaml.safe_dump(job_tree(tiny)))
    answer = mlcl("table", "--dry-run", "--json", "--only", "warm")
    assert answer.exit_code == 0, answer.output
    tree = json.loads(answer.stdout)
    assert tree["trainings"]["missing"] == 3
    assert tree["trainings"]["epochs"] == 6
    assert yaml.safe_load(mlcl("table", "--dry-run").stdout)["trainings"]["missing"] == 6
    assert mlcl.plan is None
    assert not (mlcl.folder / "outputs" / "tables").exists()
