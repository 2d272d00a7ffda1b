"""A damaged ledger says again, after `doctor --fix`, what it said before."""

import json
import random
from itertools import pairwise

import pytest
from builders import tiny_job
from doctored import look, statuses
from ledgers import events
from reproduced import Tables
from sweeps import World

from mlcl.errors import UserError
from mlcl.service.doctor.ledger_repair import DAMAGED
from mlcl.service.engine.ledger import LEDGER, Ledger
from mlcl.service.runs.run_store import RunFolder
from mlcl.tracking import State

SPACE = """
space:
  objective.heads.*.temperature: {log_float: [0.05, 1.0]}
  evaluation.knn.k: {choice: [1, 3]}
search: {scheduler: asha, reduction_factor: 2, startup: 2}
"""
LONE = ("sweep", "table", "generation")
"""Events that no other store has; nor has any the draw of a search trial."""
REBUILT = ("created", "sum")
"""What of a record is not as it was when it is written anew."""


class Damaged:
    """A finished sweep or table, whose ledger is damaged in several ways."""

    def __init__(self, kind, data, home, patch):
        if kind == "sweep":
            self.world = World(home, patch)
            self.world.formula.fails = lambda job, epoch: epoch == 2 and job.train.lr > 1
            self.plan = self.world.plan(tiny_job(data), SPACE, trials=4, seeds=1)
        else:
            self.world = Tables(home, patch, data)
            self.plan = self.world.plan(seeds=1)
        self.report = self.world.run(self.plan)
        self.path = self.report.folder / LEDGER
        self.read()

    def read(self):
        """Takes the ledger as it is now for the true one."""
        self.whole = self.path.read_bytes()
        self.lines = self.whole.splitlines(keepends=True)
        self.events, self.truth = events(self.world.home), told(self.path)

    def without(self, place, instead=b""):
        """The ledger without a line, or with another one in its place."""
        return b"".join([*self.lines[:place], instead, *self.lines[place + 1 :]])

    def mended(self, raw):
        """What the doctor says of a ledger with this content, which it then mends."""
        self.path.write_bytes(raw)
        with pytest.raises(UserError, match="the ledger of a"):
            Ledger(self.path.parent)
        (found,) = look(self.world.home, "records")
        assert (found.status, found.mendable) == ("FOUND", True)
        assert self.path.read_bytes() == raw
        assert statuses(look(self.world.home, "records", fix=True)) == ["MENDED"]
        assert (self.path.parent / DAMAGED).read_bytes() == raw
        assert told(self.path) == self.truth
        return found.why


def told(path):
    """What a ledger says, without its clocks."""
    ledger = Ledger(path.parent)
    entries = {key: vars(entry) | {"cost": None} for key, entry in sorted(ledger.entries.items())}
    groups = {key: (vars(group), ledger.group_states[key]) for key, group in sorted(ledger.groups.items())}
    return repr(
        (ledger.head | {"sum": ""}, entries, groups, ledger.state, RunFolder(path.parent).record.state)
    )


@pytest.fixture(params=["sweep", "table"])
def damaged(request, tiny, tmp_path, monkeypatch):
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path / "ray"))
    return Damaged(request.param, tiny, tmp_path / "home", monkeypatch)


def test_a_flipped_bit_is_found_by_the_checksum(damaged):
    for place in random.Random(3).sample(range(8 * len(damaged.whole)), 5):
        flipped = bytearray(damaged.whole)
        flipped[place // 8] ^= 1 << place % 8
        damaged.mended(bytes(flipped))
        assert damaged.path.read_bytes() == damaged.whole
    newline = len(damaged.lines[0]) - 1
    two_in_one = damaged.whole[:newline] + b"\x0b" + damaged.whole[newline + 1 :]
    damaged.mended(two_in_one)
    assert damaged.path.read_bytes() == damaged.whole
    damaged.mended(damaged.whole[:-1] + b"\x0b")
    assert damaged.path.read_bytes() == damaged.whole


def test_a_missing_line_is_written_again(damaged):
    last = {event["event"]: place for place, event in enumerate(damaged.events)}
    first = {event["event"]: place for place, event in reversed(list(enumerate(damaged.events)))}
    assert {"open", "begin", "rung", "close", "end"} <= set(last)
    for place in sorted({*last.values(), *first.values()}):
        event = damaged.events[place]
        if event["event"] not in LONE and event.get("number") is None:
            damaged.mended(damaged.without(place))


def test_what_is_told_is_of_the_training_that_lost_a_line(damaged):
    labels = {event["key"]: event["label"] for event in damaged.events if event["event"] == "open"}
    pairs = [
        (place, labels[event["key"]], labels[behind["key"]])
        for place, (event, behind) in enumerate(pairwise(damaged.events))
        if event["event"] == "close" and event["state"] == "COMPLETE" and behind.get("key") in labels
    ]
    assert pairs
    for place, label, other in pairs:
        said = [damaged.mended(damaged.without(place)), damaged.mended(damaged.without(place, b"{no JSON\n"))]
        assert all(f"; {label}: its log says COMPLETE" in why for why in said)
        assert not any(f"; {other}:" in why for why in said) or other == label


def test_a_ledger_that_lost_its_second_half_is_written_again(damaged):
    first = next(place for place, e in enumerate(damaged.events) if e["event"] == "open")
    lost = len(b"".join(damaged.lines[: first + 3])) + 10
    why = damaged.mended(damaged.whole[:lost])
    assert "run.json knows of later lines" in why
    assert f"; {damaged.events[first]['label']}: its log says COMPLETE" in why


def test_a_ledger_that_is_gone_is_said_and_what_mlflow_has_stays(damaged):
    damaged.path.unlink()
    with pytest.raises(UserError, match="mlcl doctor --fix"):
        damaged.world.run(damaged.plan)
    for fix in (False, True):
        (found,) = look(damaged.world.home, "records", fix=fix)
        assert (found.what, found.mendable) == (str(damaged.path), False)
        assert found.why.startswith("it is gone, and no other store has its first line")
        assert found.why.endswith("the results in MLflow stay")
    assert not damaged.path.exists()
    damaged.path.write_bytes(b"".join(damaged.lines[1:]))  # its first line alone
    assert statuses(look(damaged.world.home, "records", fix=True)) == ["LEFT"]


def test_a_figure_that_was_changed_by_hand_is_that_of_the_other_stores(tiny, tmp_path, monkeypatch):
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path / "ray"))
    damaged = Damaged("sweep", tiny, tmp_path / "home", monkeypatch)
    for name in ("rung", "close"):
        place = next(place for place, e in enumerate(damaged.events) if e["event"] == name)
        score = damaged.events[place]["score"]
        better = damaged.lines[place].replace(f'"score": {score!r}'.encode(), b'"score": 0.99')
        why = damaged.mended(b"".join([*damaged.lines[:place], better, *damaged.lines[place + 1 :]]))
        assert f"line {place + 1} is damaged: its checksum is wrong" in why
        assert "its log says COMPLETE with score" in why


def test_what_no_store_has_is_left(damaged):
    place = next(place for place, e in enumerate(damaged.events) if e["event"] in LONE)
    lines = [
        *damaged.lines[:place],
        damaged.lines[place].replace(b'"id": ', b'"ID": '),
        *damaged.lines[place + 1 :],
    ]
    damaged.path.write_bytes(b"".join(lines))
    (found,) = look(damaged.world.home, "records", fix=True)
    assert (found.status, found.mendable) == ("LEFT", False)
    assert f"line {place + 1}: no other store has what this line says" in found.why
    assert damaged.path.read_bytes() == b"".join(lines)
    assert RunFolder(damaged.path.parent).record.state is State.COMPLETE


def test_a_lost_record_is_refused_and_written_anew(damaged):
    path = damaged.path.with_name("run.json")
    before = json.loads(path.read_text())
    name = path.read_text().replace('"name": "', '"name": "!')
    for text in ("", "{", '{"id": "x"}', name, None):
        path.unlink() if text is None else path.write_text(text)
        with pytest.raises(UserError, match="the record is missing or damaged") as caught:
            damaged.world.run(damaged.plan)
        assert caught.value.file == str(path)
        assert len(list(path.parent.parent.glob("mlcl-*"))) == 1
        assert statuses(look(damaged.world.home, "records", fix=True)) == ["MENDED"]
        after = json.loads(path.read_text())
        assert after["created"][:13] == before["created"][:13]
        assert after | dict.fromkeys(REBUILT) == before | dict.fromkeys(REBUILT)
    assert damaged.world.run(damaged.plan).folder == path.parent
