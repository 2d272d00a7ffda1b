"""Tests that packaged files are found by name, listed with descriptions, and copied with their bases."""

from pathlib import Path

import pytest
from commands import mlcl

from mlcl.config import load_job, load_space
from mlcl.config.packaged import FOLDERS, PackagedFile, find_file, packaged_files, with_references
from mlcl.config.table.schema import find_table, load_table
from mlcl.errors import UserError

ROOT = Path(__file__).resolve().parents[2]
FILES = [file for kind in FOLDERS for file in packaged_files(kind).values()]


def test_names_are_those_of_all_files_and_distinct():
    kinds = ("job", "space", "table")
    folders = {kind: {file.path for file in packaged_files(kind).values()} for kind in kinds}
    assert folders == {kind: set((ROOT / FOLDERS[kind]).glob("*.yaml")) for kind in folders}
    names = [file.name for file in FILES]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("each", FILES, ids=lambda file: file.name)
def test_each_says_in_a_sentence_what_it_is(each):
    assert 10 < len(each.about) < 200
    assert "\n" not in each.about
    assert not each.about.startswith(("#", "!"))


def test_a_sentence_ends_at_its_full_stop(tmp_path):
    file = tmp_path / "x.yaml"
    file.write_text("# A job of v1.5, on texts:\n# with heads. It is slow.\n#\n# More.\nkey: 1\n")
    assert PackagedFile("job", "x", file).about == "A job of v1.5, on texts: with heads."


def test_jobs_spaces_and_tables_are_given_by_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    job = load_job("icd10cm_ce")
    assert job == load_job(ROOT / "jobs" / "icd10cm_ce.yaml")
    assert load_space("temperatures", load_job("icd10cm_mlcl")).parameters
    assert load_table(find_table("demo-table")).title
    assert find_file("job", "icd10cm_ce") == ROOT / "jobs" / "icd10cm_ce.yaml"
    monkeypatch.chdir(ROOT)
    assert find_file("job", "icd10cm_ce") == Path("jobs/icd10cm_ce.yaml")


def test_a_file_of_the_folder_comes_before_a_packaged_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "icd10cm_ce").mkdir()
    assert find_file("job", "icd10cm_ce") == ROOT / "jobs" / "icd10cm_ce.yaml"  # a folder is not a job
    (tmp_path / "icd10cm_ce").rmdir()
    (tmp_path / "icd10cm_ce").write_text("mine")
    assert find_file("job", "icd10cm_ce") == Path("icd10cm_ce")
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables" / "demo-table.yaml").write_text("mine")
    assert find_table("demo-table") == Path("tables/demo-table.yaml")


@pytest.mark.parametrize(("kind", "name"), [("job", "icd10cm_c"), ("space", "temperature")])
def test_an_unknown_name_is_one_line(kind, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=f"no packaged {kind} of this name; did you mean") as error:
        find_file(kind, name)
    assert "\n" not in error.value.line()


def test_an_override_where_a_file_is_expected(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="an override where the space file is expected: overrides come last"):
        find_file("space", "objective.heads.*.temperature=0.1")
    Path("a=b.yaml").touch()
    assert find_file("space", "a=b.yaml") == Path("a=b.yaml")
    assert find_file("job", "folder/a=b.yaml") == Path("folder/a=b.yaml")


def test_a_table_is_copied_with_its_jobs_and_spaces(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    copied = mlcl("jobs", "copy", "leaderboard-classes", "--to", "mine").out.split()
    assert {"mine/tables/leaderboard-classes.yaml", "mine/tune_spaces/features.yaml"} <= set(copied)
    assert "mine/jobs/icd10cm_features.yaml" in copied
    assert "mine/jobs/icd10cm_mlcl.yaml" not in copied
    assert load_table(Path("mine/tables/leaderboard-classes.yaml")).title
    assert load_job("mine/jobs/beeradvocate_features.yaml")  # its base is copied, too
    assert mlcl("jobs", "copy", "leaderboard-classes", "--to", "mine").status == 0


def test_a_changed_copy_is_not_replaced(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = Path("jobs/icd10cm_ce.yaml")
    assert mlcl("jobs", "copy", "icd10cm_ce").status == 0
    file.write_text("mine")
    Path("jobs/icd10cm_mlcl.yaml").unlink()
    result = mlcl("jobs", "copy", "icd10cm_ce")
    assert (result.status, file.read_text()) == (2, "mine")
    assert not Path("jobs/icd10cm_mlcl.yaml").exists()
    assert "jobs/icd10cm_ce.yaml: already exists with other content" in result.err
    assert mlcl("jobs", "copy", "icd10cm_ce", "--force").status == 0
    Path("file").touch()
    assert "file/jobs/icd10cm_ce.yaml, key --to: cannot be written" in mlcl(
        "jobs", "copy", "icd10cm_ce", "--to", "file"
    ).err  # fmt: skip
    assert file.read_text() == (ROOT / file).read_text()
    assert find_file("job", "icd10cm_ce") == file  # the name now refers to the copy


def test_the_list_has_every_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert mlcl("jobs", "--json").json.keys() == {file.name for file in FILES}
    assert "Cross-entropy alone" in mlcl("jobs").out
    result = mlcl("jobs", "copy", "leaderbord-labels")
    assert (result.status, "did you mean leaderboard-labels?" in result.err) == (2, True)


def test_references_are_found_through_others():
    table = with_references(ROOT / "tables" / "demo-table.yaml")
    assert ROOT / "jobs" / "icd10cm_mlcl.yaml" in table
    assert with_references(ROOT / "tune_spaces" / "features.yaml") == [ROOT / "tune_spaces" / "features.yaml"]
