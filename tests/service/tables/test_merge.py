"""Parts of one table in several homes, or as files of figures, are the table of one home."""

import itertools
import json
import shutil
from dataclasses import replace

import pytest
from reproduced import TABLE, TUNE, Tables

from mlcl.errors import UserError
from mlcl.service.engine import command
from mlcl.service.engine.ledger import Ledger
from mlcl.service.tables import plan_merge, plan_table, run_merge, write_cells
from mlcl.service.tables.merge import merge_places
from mlcl.service.tables.origin import without_empty
from mlcl.tracking import Provenance, State

FEWER = {"Few": 24, "Half": 48}
WHOLE = {
    "rows": {"Cold": {"tune": False, **TABLE["rows"]["Cold"]}, "Warm": {},
             "Mild": {"set": {"train.lr": 0.02}}},
    "columns": {"All": {}, **{name: {"set": {"data.subset": {"n": n}}} for name, n in FEWER.items()}},
    "tune": TUNE,
    "ranks": {"rope": 0.01},
}  # fmt: skip
"""Nine cells on three data sets; six of them are tuned."""
ROWS = ("cold", "warm", "mild")


@pytest.fixture
def world(tiny, tmp_path, monkeypatch):
    """Makes homes, all with the same table."""
    return lambda name: Tables(tmp_path / name, monkeypatch, tiny)


def part(tables, *only, tree=WHOLE):
    return tables.run(tables.plan(tree, only=only))


def merged(tables, *places, tree=WHOLE, **how):
    return run_merge(tables.plan(tree, **how), places, home=tables.home, watch=tables.events.append)


def content(report):
    """What a table says, but for where its runs and files are."""
    cells = [replace(cell, runs=len(cell.runs), trainings=len(cell.trainings)) for cell in report.cells]
    return cells, report.ranks, report.state, report.reason, report.higher, report.title


def test_parts_of_two_homes_one_of_them_stopped_in_a_search_are_the_unbroken_table(world):
    whole, here, first = part(world("whole")), world("here"), world("first")
    second = world("second")  # the last one made is the one that can be stopped
    for row in ROWS[:2]:
        part(first, row)
    # Stopped in the search of one tuned cell, then in the fresh seeds of another.
    for seed in (0, 2):
        second.stop_when(lambda job, epoch, s=seed: job.train.seed == s and epoch == 1)
        assert part(second, "mild").state is State.STOPPED
    assert part(second, "mild").state is State.COMPLETE
    report = merged(here, first.home, second.home)
    assert content(report) == content(whole)
    assert here.formula.trained == []
    markdown = [(its.folder / "table.md").read_text().splitlines() for its in (whole, report)]
    assert [line for line in markdown[1] if "--merge" not in line] == [
        line for line in markdown[0] if "mlcl reproduce" not in line
    ]
    assert report.command.endswith(f"--merge {first.home} --merge {second.home}")


def test_merging_again_is_the_same_table_and_its_log_is_one(world):
    first, here = world("first"), world("here")
    part(first, "cold", "warm")
    report = merged(here, first.home, tree=WHOLE, only=("cold", "warm"))
    before = here.everything()
    assert merged(here, first.home, only=("cold", "warm")) == report
    assert here.everything() == before
    assert before["logs"]["table"]["end"] == ["COMPLETE", ""]
    assert before["logs"]["table"]["points"]["warm/all/acc 12"] == report.cell("Warm", "All").figures[0].mean


def test_a_merge_that_was_killed_at_any_write_is_gone_on_with(world):
    first, unbroken = world("first"), world("unbroken")
    part(first, "cold")
    merged(unbroken, first.home, only=("cold",))
    for at in itertools.count():
        here = world(f"killed-{at}")
        here.run = lambda plan, home=here.home: run_merge(plan, [first.home], home=home, watch=print)
        plan = here.plan(WHOLE, only=("cold",))
        if not here.killed(plan, at):
            break
        here.run(plan)
        assert here.everything() == unbroken.everything()
    assert at > 10


def test_the_table_itself_runs_on_beside_what_was_merged(world):
    home = world("home")
    parts = [part(home, row) for row in ROWS]
    report = merged(home, home.home)
    assert (report.state, len({each.id for each in (*parts, report)})) == (State.COMPLETE, 4)
    assert "same cells" not in report.about
    # A merged table is no part: merging once more counts each cell once.
    assert merged(home, home.home) == report


def test_the_whole_trains_nothing_that_its_parts_have_trained(world):
    whole, home = part(world("whole")), world("home")
    part(home, "mild/all")
    part(home, "warm", "cold/few")
    trained = home.trained()
    told = plan_table(home.plan(WHOLE), home.home)["trainings"]
    left = {id: its["left"] for id, its in told["tuned"].items()}
    assert left == {f"{row}/{column}": 6 * (row == "mild" and column != "all")
                    for row in ROWS[1:] for column in ("all", "few", "half")}  # fmt: skip
    assert told["missing"] == 2 * 6 + 2 * 2
    # Stopped in a search of its own, and gone on with.
    home.stop_when(lambda job, epoch: job.train.seed == 0 and epoch == 1 and bool(job.objective.heads))
    assert part(home).state is State.STOPPED
    report = part(home)
    assert content(report) == content(whole)
    assert len(home.trained()) - len(trained) == told["missing"]


def test_a_new_row_is_trained_alone(world):
    home = world("home")
    first = part(home, tree={**WHOLE, "rows": {name: WHOLE["rows"][name] for name in ("Cold", "Warm")}})
    trained = home.trained()
    second = part(home)
    assert second.id != first.id
    assert len(home.trained()) - len(trained) == 3 * 6
    assert content(second) == content(part(world("whole")))


@pytest.mark.parametrize("change", [{"trials": 3}, {"trials": 5}, {"seeds": 3}, {"sampler": "random"}])
def test_another_search_is_made_anew(world, change):
    home = world("home")
    part(home, "warm/all")
    report = part(home, "warm/all", "cold/all", tree={**WHOLE, "tune": {**TUNE, **change}})
    asked, ledger = {"trials": 4, "seeds": 2, **change}, Ledger(report.folder)
    assert len(ledger.trials(scope="warm_all")) == asked["trials"]
    assert len([entry for entry in ledger.entries.values() if entry.group]) == asked["seeds"]


def test_a_search_with_a_failed_seed_is_made_anew(world):
    home = world("home")
    home.formula.fails = lambda job, _epoch: job.train.seed == 2
    assert part(home, "warm/all").state is State.FAILED
    home.formula.fails = lambda _job, _epoch: False
    assert part(home, "warm").state is State.COMPLETE
    assert Ledger(part(home, "warm").folder).searches == ["warm_all", "warm_few", "warm_half"]
    assert (
        plan_table(home.plan(WHOLE, only=("*/all",)), home.home)["trainings"]["tuned"]["warm/all"]["left"]
        == 0
    )
    assert part(home, "*/all").state is State.COMPLETE


def test_what_no_place_has_is_missing_and_said(world):
    first, here = world("first"), world("here")
    part(first, "cold")
    report = merged(here, first.home)
    assert (report.state, report.reason[:13]) == (State.FAILED, "no number for")
    assert report.reason.endswith(f"warm/half Acc and {len(report.missing) - 3} more")
    assert report.missing == [f"{row}/{column} Acc" for row in ROWS[1:] for column in ("all", "few", "half")]
    assert "Missing in all of Warm" in (report.folder / "table.md").read_text()
    assert "is not ranked over data sets" in report.ranks[0]["sentences"][0]
    told = plan_merge(here.plan(WHOLE), [first.home])
    assert (told["cells"]["cold/all"], told["cells"]["warm/all"]) == ("2 of 2 seeds", "0 of 2 seeds")


def notes(tables, *places, tree=WHOLE, only=("cold",)):
    return merge_places(tables.plan(tree, only=only), places).notes


def test_a_duplicate_counts_once_and_is_told(world):
    first, second, here = world("first"), world("second"), world("here")
    part(first, "cold"), part(second, "cold/all")
    assert notes(here, first.home, second.home) == (
        f"{second.home} and {first.home} have the same cells, which count once: cold/all.",
    )
    report = merged(here, first.home, second.home, only=("cold",))
    assert "have the same cells" in report.about
    assert (
        report.cell("Cold", "All").figures[0].values
        == part(first, "cold").cell("Cold", "All").figures[0].values
    )


def edited(home, change):
    """A copy of the home whose `table.json` has other content."""
    copy = home.with_name(f"{home.name}-edited")
    shutil.copytree(home, copy)
    (file,) = copy.glob("tables/*/table.json")
    tree = json.loads(file.read_text())
    for cell in tree["cells"]:
        change(cell)
    file.write_text(json.dumps(tree))
    return copy


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        ("mlcl", "9.9", "another mlcl"),
        ("commit", "abc", "other code"),
        ("fingerprint", "f", "other data"),
        ("setting", "s", "other jobs"),
    ],
)
def test_other_code_data_or_jobs_of_the_same_cell_are_told(world, key, value, why):
    first, here = world("first"), world("here")
    part(first, "cold/all")

    def change(cell):
        cell["origin"][key] = value
        cell["figures"][0]["values"][0] += 0.1

    other = edited(first.home, change)
    (note,) = notes(here, first.home, other, only=("cold/all",))
    assert (
        note == f"{other} has other figures than {first.home} ({why}); those of {first.home} count: cold/all."
    )
    mine = merge_places(here.plan(WHOLE, only=("cold/all",)), [other, first.home])
    # The first place counts, unless it ran other jobs than the table has now.
    counts = first.home if key == "setting" else other
    assert f"than {counts} (" in mine.notes[0]


def test_a_place_with_more_seeds_counts_before_an_earlier_one(world):
    first, second, here = world("first"), world("second"), world("here")
    first.run(first.plan(WHOLE, only=("cold/all",), seeds=1))
    part(second, "cold/all")
    assert merge_places(here.plan(WHOLE, only=("cold/all",)), [first.home, second.home]).notes == (
        f"{first.home} and {second.home} have the same cells, which count once: cold/all.",
    )
    fewer = merged(here, first.home, only=("cold/all",))
    assert fewer.missing == ["cold/all Acc"]
    assert fewer.cells[0].figures[0].values[1] is None


def test_a_part_that_has_no_seed_yet_is_no_duplicate(world):
    first, second = world("first"), world("second")
    second.stop_when(lambda job, epoch: job.train.seed == 0 and epoch == 1)
    assert part(second, "warm/all").state is State.STOPPED
    part(first, "warm/all")
    here = world("here")
    changed = {**WHOLE, "set": {"train.epochs": 3}}
    for tree, told in (
        (WHOLE, ()),
        (changed, (f"{first.home} has other jobs than the table now: warm/all.",)),
    ):
        its = merge_places(here.plan(tree, only=("warm/all",)), [second.home, first.home])
        assert its.notes == told
        assert None not in its.cells[0].figures[0].values


def test_cells_of_several_versions_codes_or_data_are_told(world, monkeypatch):
    first, second, here = world("first"), world("second"), world("here")
    for tables, row, version in ((first, "cold", "1.0"), (second, "mild", "1.1")):
        tags = {
            "mlcl.version.mlcl": version,
            "mlflow.source.git.commit": f"c{version}",
            "mlcl.git.dirty": "true",
        }
        monkeypatch.setattr(command, "provenance", lambda tags=tags: Provenance(tags, ""))
        part(tables, row)
    other = edited(second.home, lambda cell: cell["origin"].update(fingerprint="f"))
    found = notes(here, first.home, other, only=("cold", "mild"))
    assert found[:2] == (
        "The cells are of several versions of mlcl: 1.0 (3), 1.1 (3).",
        "The cells are of several commits: c1.0+ (3), c1.1+ (3).",
    )
    assert [note[:23] for note in found[2:]] == [
        "The cells of All are of", "The cells of Few are of", "The cells of Half are o"
    ]  # fmt: skip


def test_jobs_that_the_table_has_no_more_are_told(world):
    first, here = world("first"), world("here")
    part(first, "cold/all")
    changed = {**WHOLE, "set": {"train.epochs": 3}}
    assert notes(here, first.home, tree=changed, only=("cold/all",)) == (
        f"{first.home} has other jobs than the table now: cold/all.",
    )


def test_where_the_data_lies_is_no_other_job(world, tiny, tmp_path):
    elsewhere = shutil.copytree(tiny, tmp_path / "elsewhere")
    first, here = world("first"), world("here")
    part(first, "warm/all", tree={**WHOLE, "set": {"data.path": str(elsewhere)}})
    assert notes(here, first.home, only=("warm/all",)) == ()


def test_the_figures_of_cells_are_files_from_which_the_table_is_made_again(world, tmp_path):
    home, here = world("home"), world("here")
    whole, folder = part(home), tmp_path / "figures"
    files = write_cells(whole, folder)
    assert sorted(str(file.relative_to(folder)) for file in files) == sorted(
        f"{row}/{column}.json" for row in ROWS for column in ("all", "few", "half")
    )
    tree = json.loads((folder / "warm" / "few.json").read_text())
    cell = whole.cell("Warm", "Few")
    assert (tree["table"], tree["row"], tree["column"]) == ("table", "Warm", "Few")
    assert tree["settings"] == dict(cell.settings)
    assert tuple(tree["figures"][0]["values"]) == cell.figures[0].values
    assert tree["higher"] == {"Acc": True}
    assert (tree["origin"]["fingerprint"], tree["origin"]["data"]) == (cell.origin.fingerprint, "tiny")
    assert tree["search"]["trials"] == dict(cell.search.trials)
    shutil.rmtree(home.home / "tables")
    assert content(merged(here, folder)) == content(whole)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda tree: tree.update(format=2), "another mlcl; found: 2; allowed: 1"),
        (lambda tree: tree["figures"][0].update(values=["high"]), "not the figures of a cell"),
        (lambda tree: tree.update(figures=[1]), "not the figures of a cell"),
        (lambda tree: tree.update(search=[1]), "not the figures of a cell"),
    ],
)
def test_a_file_of_figures_that_cannot_be_read_is_named(world, tmp_path, change, text):
    first, here = world("first"), world("here")
    (file,) = write_cells(part(first, "cold/all"), tmp_path)
    tree = json.loads(file.read_text())
    change(tree)
    file.write_text(json.dumps(tree))
    with pytest.raises(UserError, match=text) as caught:
        merged(here, tmp_path)
    assert caught.value.file == str(file)
    file.unlink()
    file.mkdir()
    with pytest.raises(UserError, match="damaged"):
        merged(here, tmp_path)


def test_cells_that_lack_a_seed_are_not_written(world, tmp_path):
    home = world("home")
    home.formula.fails = lambda job, _epoch: job.train.seed == 1
    report = home.run(home.plan())
    assert report.missing == ["cold/all Acc", "warm/all Acc"]
    assert write_cells(report, tmp_path / "figures") == []
    assert not (tmp_path / "figures").exists()


def test_a_place_without_the_table_is_one_error(world, tmp_path):
    here = world("here")
    with pytest.raises(UserError, match="no cells of table") as caught:
        merged(here, tmp_path / "nowhere")
    assert caught.value.key == "--merge"
    first = world("first")
    part(first, "cold/all")
    (file,) = first.home.glob("tables/*/table.json")
    file.write_text(file.read_text().replace('"origin"', '"orgin"'))
    with pytest.raises(UserError, match="of an earlier mlcl") as caught:
        merged(here, first.home)
    assert caught.value.file == str(file)
    with pytest.raises(UserError, match="another unit"):
        merged(here, first.home, tree={**WHOLE, "unit": "percent"})
    file.write_text("{")
    with pytest.raises(UserError, match="damaged"):
        merged(here, first.home)
    assert not list(here.home.glob("tables/mlcl-*"))


def test_a_key_that_a_later_mlcl_adds_without_a_value_is_no_other_job():
    assert without_empty({"a": None, "b": {"c": None, "d": 0}, "e": [], "f": False, "g": {}}) == {
        "b": {"d": 0},
        "f": False,
    }
