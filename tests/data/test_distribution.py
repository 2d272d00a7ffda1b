import gzip
import io
import os
import random
import tarfile
import zipfile

import pytest

from mlcl.data.sources.common.distribution import Distribution, compare_counts, hash_of_files
from mlcl.data.writer import in_batches
from mlcl.errors import UserError

CONTENT = {"top/lists/names.txt": b"one\r\ntwo\n\nfour", "top/rows.csv.gz": gzip.compress(b"a,b\n")}


def as_folder(path, content):
    for name, data in content.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(data)
    return path


def as_zip(path, content):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in content.items():
            file.writestr(name, data)
    return path


def as_tar(path, content):
    with tarfile.open(path, "w:gz") as file:
        for name, data in content.items():
            member = tarfile.TarInfo(f"./{name}")
            member.size = len(data)
            file.addfile(member, io.BytesIO(data))
    return path


MAKERS = {"set": as_folder, "set.zip": as_zip, "set.tar.gz": as_tar}


@pytest.fixture(params=MAKERS)
def stored(request, tmp_path):
    return MAKERS[request.param](tmp_path / request.param, CONTENT)


def opened(path, expected=("lists/names.txt",)):
    return Distribution(path, "Toy (toy.zip)", expected)


def test_files_are_found_two_folders_deep_and_decompressed(stored):
    with opened(stored) as files:
        assert list(files.lines("lists/names.txt")) == [(1, "one"), (2, "two"), (3, ""), (4, "four")]
        assert files.find_first("rows.csv", "rows.csv.gz") == "rows.csv.gz"
        assert files.read("rows.csv", "rows.csv.gz") == b"a,b\n"
        assert files.file("rows.csv.gz") == stored / "top" / "rows.csv.gz"


def test_all_missing_files_are_listed(stored):
    expected = ["lists/names.txt", ("rows.csv", "rows.csv.gz"), "c.txt", ("d.txt", "d.txt.gz")]
    with pytest.raises(UserError, match=r"files of Toy \(toy.zip\) are missing.*no c.txt, d.txt or d.txt.gz"):
        opened(stored, expected)
    with opened(stored) as files, pytest.raises(UserError, match=r"a file of Toy .* no e.txt or f.txt"):
        files.read("e.txt", "f.txt")


def test_no_path_out_and_a_name_that_is_too_long_is_no_file(tmp_path):
    (tmp_path / "secret").write_bytes(b"secret")
    root = as_folder(tmp_path / "set", CONTENT)
    (root / "top" / "link").symlink_to(tmp_path / "secret")
    with opened(root) as files:
        for name in ("link", "../../secret"):
            with pytest.raises(UserError, match="outside the folder"):
                files.read(name)
        assert files.find_first("x" * 5_000) is None
        assert len(files.state("x" * 5_000)) == 1


def linked(path):
    """Writes an archive with a symbolic link to a file outside it."""
    with tarfile.open(path, "w") as file:
        link = tarfile.TarInfo("lists/names.txt")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/hostname"
        file.addfile(link)


def encrypted(path):
    """Writes a ZIP archive whose file is flagged as encrypted, in its own header and in the directory."""
    data = bytearray(as_zip(path, {"lists/names.txt": b"one"}).read_bytes())
    data[6] |= 1
    data[data.index(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(bytes(data))


def damaged_xz(path):
    with tarfile.open(path, "w:xz") as file:
        for name in ("a", "lists/names.txt"):
            member = tarfile.TarInfo(name)
            member.size = 1 << 20
            file.addfile(member, io.BytesIO(random.Random(0).randbytes(member.size)))
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2] + bytes(200) + data[len(data) // 2 + 200 :])


@pytest.mark.parametrize(
    ("name", "make", "message"),
    [
        ("none", lambda path: None, "none, key data.options.path: no such file or folder"),
        ("set.zip", lambda path: path.write_bytes(b"no archive"), r"set.zip: cannot be .* a folder, .tar"),
        ("set.tar", linked, r"no lists/names\.txt"),
        ("set.zip", encrypted, r"names.txt: cannot be read.*encrypted"),
        ("set.tar.xz", damaged_xz, r"set.tar.xz.*: cannot be read"),
        ("set", lambda path: as_folder(path, {"lists/names.txt": b"fine\nK\xe4se"}), "line 2 is no .*utf-8"),
        ("set", lambda to: as_folder(to, {"lists/names.txt.gz": gzip.compress(b"one")[:-9]}), "is it whole"),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path, name, make, message):
    make(tmp_path / name)
    names = ("lists/names.txt", "lists/names.txt.gz")
    with pytest.raises(UserError, match=message), opened(tmp_path / name, [names]) as files:
        list(files.lines(*names))


def test_class_names_and_json(tmp_path):
    content = {"names.txt": b"\xef\xbb\xbfone\n\n two \n", "a.json": b'{"x": {"y": 1}}', "latin": b"K\xe4se"}
    with opened(as_folder(tmp_path / "set", content), ["names.txt"]) as files:
        assert files.class_names("names.txt") == ("one", "two")
        assert list(files.lines("latin", encoding="latin-1")) == [(1, "Käse")]
        assert files.json("a.json", lambda entry: entry.get("x", 7)) == 7
        with pytest.raises(UserError, match=r"names.txt: not valid JSON"):
            files.json("names.txt")


def test_state_changes_with_files_and_with_folders_of_files(stored):
    with opened(stored) as files:
        initial_state = files.state("images")
        assert initial_state == files.state("images")
        assert initial_state != []
    if stored.is_dir():
        (stored / "top" / "images" / "a").mkdir(parents=True)
        with opened(stored) as files:
            folder_state = files.state("images")
            (stored / "top" / "images" / "a" / "1.jpg").write_bytes(b"1")
            assert len({str(initial_state), str(folder_state), str(files.state("images"))}) == 3


def test_names_that_are_not_utf_8_have_a_hash(tmp_path):
    folder = tmp_path / os.fsdecode(b"K\xe4se")
    folder.mkdir()
    files = [folder / os.fsdecode(name) for name in (b"\xe4.txt", b"\xe5.txt")]
    for file in files:
        file.write_bytes(b"")
    assert hash_of_files(folder, files[:1]) != hash_of_files(folder, files)


def test_counts_that_differ_are_all_named(tmp_path):
    published_counts = {"train": 1000, "test": 10, "classes": 3, "labels a row": 2.9}
    assert compare_counts(tmp_path, published_counts, {**published_counts, "labels a row": 2.94}) is None
    with pytest.raises(UserError, match="check_counts=false") as error:
        compare_counts(tmp_path, published_counts, {**published_counts, "train": 999, "labels a row": 1.5})
    assert error.value.found == ["train 999", "labels a row 1.5"]
    with pytest.raises(UserError, match="found: train 0; allowed: train 1,000"):
        compare_counts(tmp_path, {"train": 1000}, {"test": 10})
    assert error.value.allowed == ["train 1,000", "labels a row 2.9"]


def test_batches_draw_the_content_as_it_is_wanted(monkeypatch):
    monkeypatch.setattr("mlcl.data.writer.ROWS_AT_ONCE", 2)
    drawn_rows = []
    texts = (drawn_rows.append(i) or f"text {i}" for i in range(5))
    batches = in_batches({"id": list("abcde")}, "text", texts)
    assert next(batches) == {"id": ["a", "b"], "text": ["text 0", "text 1"]}
    assert drawn_rows == [0, 1]
    assert [batch["id"] for batch in batches] == [["c", "d"], ["e"]]
