import multiprocessing
from dataclasses import replace

import pytest

from mlcl.data import SOURCES, Dataset, find_prepared, prepare, sources
from mlcl.errors import UserError

SMALL = {"scenes": 100}
SINGLE = {"kind": "single", "column": "c"}


@pytest.fixture
def reading(monkeypatch):
    """Returns a function that replaces the `read` of every source by another function."""
    return lambda read: monkeypatch.setattr(
        sources, "find_source", lambda name: replace(SOURCES[name], read=read)
    )


def test_a_second_call_finds_the_first_ones_folder(tmp_path, reading):
    folder = prepare("digits", tmp_path, SMALL)
    reading(lambda *_: pytest.fail("written again"))
    assert prepare("digits", tmp_path, SMALL) == folder
    assert Dataset.open(folder, verify=True).info.name == "digits"


def test_options_and_split_seed_have_folders_of_their_own(tmp_path):
    folders = {
        prepare("digits", tmp_path, SMALL),
        prepare("digits", tmp_path, SMALL, split_seed=1),
        prepare("digits", tmp_path, {"scenes": 101}),
    }
    assert len(folders) == 3
    # Options that state the defaults are equal to options that omit them.
    assert prepare("digits", tmp_path, {"scenes": 100, "size": 32}) in folders


def test_data_are_found_by_their_options_when_the_source_is_gone(tmp_path):
    file = tmp_path / "rows.csv"

    def write(rows):
        file.write_text("text,c\n" + "".join(f"ball {row},a\nvote {row},b\n" for row in range(rows)))

    write(20)
    options = {"path": str(file), "text": "text", "labels": {"c": SINGLE}}
    assert find_prepared("csv", tmp_path / "home", options) is None
    first = prepare("csv", tmp_path / "home", options)
    write(30)
    second = prepare("csv", tmp_path / "home", options)
    file.unlink()
    assert find_prepared("csv", tmp_path / "home", options) == second != first
    assert find_prepared("csv", tmp_path / "home", options, split_seed=1) is None
    with pytest.raises(UserError, match="no such file"):
        prepare("csv", tmp_path / "home", options)


def _prepare(home, started):
    started.wait()
    prepare("digits", home, SMALL)


def test_two_processes_at_once_make_one_folder(tmp_path):
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(2)
    processes = [context.Process(target=_prepare, args=(tmp_path, barrier)) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    (folder,) = (entry for entry in tmp_path.iterdir() if entry.is_dir())
    assert Dataset.open(folder, verify=True).info.rows["train"] == 80


def test_an_error_leaves_no_folder(tmp_path, reading):
    def fail(options, seed, scratch):
        (scratch.folder / "half").mkdir()
        raise UserError("bad input")

    reading(fail)
    with pytest.raises(UserError, match="bad input"):
        prepare("digits", tmp_path, SMALL)
    assert [entry for entry in tmp_path.iterdir() if entry.is_dir()] == []


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("digit", {}, "key data.source: unknown source; did you mean digits?; found: digit"),
        ("digits", {"scens": 5}, "key data.options.scens: unknown key; did you mean scenes?"),
        ("csv", {}, "key data.options.path: missing key"),
        ("csv", {"path": "nowhere.csv", "text": "t", "labels": {"x": SINGLE}}, "no such file"),
        ("image_folder", {"path": "nowhere"}, "nowhere, key data.options.path: no such folder"),
    ],
)
def test_bad_requests_are_refused_before_anything_is_written(tmp_path, name, options, message):
    with pytest.raises(UserError) as error:
        prepare(name, tmp_path / "home", options)
    assert message in error.value.line()
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize(("place", "said"), [("given", "cannot be read"), ("home/gone", "cannot be written")])
def test_a_file_that_cannot_be_opened_is_named_and_one_of_the_home_is_not_the_users(
    tmp_path, reading, place, said
):
    reading(lambda *_: (tmp_path / place / "file").read_text())
    with pytest.raises(UserError, match=f"{said}; found: .*No such file") as error:
        prepare("digits", tmp_path / "home", SMALL)
    file = error.value.file.removeprefix(f"{tmp_path}/")
    assert file == "given/file" if place == "given" else file.startswith("home/digits-")


def test_a_home_that_cannot_be_made_is_a_user_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be written"):
        prepare("digits", tmp_path / "file" / "home", SMALL)
