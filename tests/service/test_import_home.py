"""Complete runs of another home are here after an import, and a table does not train them again."""

from dataclasses import replace

import pytest
from reproduced import TABLE, TUNE, Tables, content

from mlcl.errors import UserError
from mlcl.service import import_home as importing
from mlcl.service.engine.ledger import Ledger
from mlcl.service.import_home import import_home
from mlcl.store import Database, State, home_records

WHOLE = {
    "rows": {"Cold": {"tune": False, **TABLE["rows"]["Cold"]}, "Warm": {}},
    "columns": {"All": {}, "Few": {"set": {"data.subset": {"n": 24}}}},
    "tune": TUNE,
    "ranks": {"rope": 0.01},
}
"""Four cells on two data sets; two of them are tuned."""


@pytest.fixture
def world(tiny, tmp_path, monkeypatch):
    """Makes homes, all with the same table."""
    return lambda name, **how: Tables(tmp_path / name, monkeypatch, tiny, **how)


def part(tables, *only):
    return tables.run(tables.plan(WHOLE, only=only))


def said(home):
    """What a home's database says, in an order of its own: imports may come in any."""
    records = [record for _, record in home_records(home)]
    events = {record.id: Database(home).events(record.number)[0] for record in records}
    return sorted((replace(record, number=0) for record in records), key=repr), events


def test_parts_of_two_homes_are_the_unbroken_table_and_nothing_is_trained(world):
    whole, here, first, second = part(world("whole")), world("here"), world("first"), world("second")
    part(first, "cold")
    part(second, "warm")
    for other in (first, second):
        assert import_home(other.home, here.home)
    report = part(here)
    assert content(report) == content(whole)
    assert here.formula.trained == []


def test_what_is_here_is_not_copied_again_and_nothing_changes(world):
    here, first = world("here"), world("first")  # the last one made is the one that trains
    part(first, "cold")
    copied = import_home(first.home, here.home)
    assert [record.kind for record in copied] == ["tables"] + ["runs"] * 4
    before = said(here.home)
    assert import_home(first.home, here.home) == []
    assert said(here.home) == before == said(first.home)
    table = here.home / "tables" / copied[0].id
    assert Ledger(table).entries.keys() == Ledger(first.home / "tables" / copied[0].id).entries.keys()


def test_what_is_not_complete_stays_there(world):
    here, first = world("here"), world("first")  # the last one made is the one that trains
    first.stop_when(lambda job, epoch: job.train.seed == 1 and epoch == 1)
    assert part(first, "cold/all").state is State.STOPPED
    assert {record.state for record in import_home(first.home, here.home)} == {State.COMPLETE}
    before = len(first.trained())
    assert part(here, "cold/all").state is State.COMPLETE
    assert len(first.trained()) == before + 1


def test_an_import_that_was_killed_is_gone_on_with(world, monkeypatch):
    here, first = world("here"), world("first")  # the last one made is the one that trains
    part(first, "warm/all")
    copy, calls = importing.shutil.copytree, []

    def dying(*args, **kwargs):
        calls.append(args)
        if len(calls) == 5:
            raise KeyboardInterrupt
        return copy(*args, **kwargs)

    monkeypatch.setattr(importing.shutil, "copytree", dying)
    with pytest.raises(KeyboardInterrupt):
        import_home(first.home, here.home)
    import_home(first.home, here.home)
    assert said(here.home) == said(first.home)
    assert not list(here.home.rglob("*.partial"))


def test_a_home_that_is_none_this_one_or_damaged_is_refused(world, tmp_path):
    here = world("here")
    part(here, "cold/all")
    for other in (here.home, tmp_path / "nothing", tmp_path):
        with pytest.raises(UserError, match="no home to import from"):
            import_home(other, here.home)
    file = Database(here.home).file
    file.write_bytes(file.read_bytes().replace(b"COMPLETE", b"COMPLETF"))
    with pytest.raises(UserError, match="damaged"):
        import_home(here.home, tmp_path / "new")
    assert not (tmp_path / "new").exists()
