"""Tests the replacements for functions that Python 3.10 lacks, with any Python."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from mlcl import backports


def messages(error):
    """Returns the error as Python 3.10 raises it, without a code."""
    return type(error)(str(error))


def test_a_locked_a_readonly_and_an_absent_database_have_their_codes(tmp_path):
    file = tmp_path / "a.db"
    with closing(sqlite3.connect(file)) as holder, closing(sqlite3.connect(file, timeout=0)) as other:
        holder.execute("CREATE TABLE t (x)")
        holder.execute("BEGIN EXCLUSIVE")
        with pytest.raises(sqlite3.Error) as busy_excinfo:
            other.execute("BEGIN IMMEDIATE")
        holder.rollback()
    reader = sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True)
    with closing(reader), pytest.raises(sqlite3.Error) as readonly_excinfo:
        reader.execute("INSERT INTO t VALUES (1)")
    with pytest.raises(sqlite3.Error) as absent_excinfo:
        sqlite3.connect(tmp_path / "no" / "a.db")
    for excinfo, code in (
        (busy_excinfo, "BUSY"),
        (readonly_excinfo, "READONLY"),
        (absent_excinfo, "CANTOPEN"),
    ):
        for error in (excinfo.value, messages(excinfo.value)):
            assert backports.sqlite_code(error) == backports.SqliteCode[code]
    assert backports.sqlite_code(sqlite3.OperationalError("no such table: t")) == 0


def test_codes_are_those_of_sqlite3():
    for code in backports.SqliteCode:
        assert getattr(sqlite3, f"SQLITE_{code.name}", code) == code


def test_a_strings_enumeration_prints_its_value():
    class Colour(backports.StrEnum):
        RED = "red"

    assert f"{Colour.RED} {Colour.RED!s}" == "red red"
    assert Colour("red") is Colour.RED == "red"


def test_the_folder_is_changed_in_the_context_alone(tmp_path):
    before = Path.cwd()
    with backports.chdir(tmp_path):
        assert Path.cwd() == tmp_path
    assert Path.cwd() == before


def test_notes_are_added():
    error = ValueError("x")
    backports.add_note(error, "a")
    backports.add_note(error, "b")
    assert error.__notes__ == ["a", "b"]
