"""Homes in the state in which crashes leave them, and the doctor's findings on them."""

from __future__ import annotations

from ledgers import recorded

from mlcl.service.doctor import CHECKS, Scope, run_checks
from mlcl.service.engine.entries import End, SpaceVersion, Training
from mlcl.service.engine.ledger import Ledger
from mlcl.store import RunFolders
from mlcl.tracking import RunLog, State, tracking_uri

A = '{"name": "FloatDistribution", "attributes": {"low": 0.0, "high": 1.0}}'


def look(home, *names, fix=False, uri=None):
    """Runs the named checks, or all of them, and returns their results."""
    checks = {name: CHECKS[name] for name in names} or CHECKS
    return run_checks(Scope(home, uri or tracking_uri(home)), checks, fix=fix)


def statuses(results):
    return [str(result.status) for result in results]


def mended(home, name):
    """Returns the findings of a check; asserts that --fix repairs them, and that only --fix changes files."""
    before, findings = tree(home), look(home, name)
    assert set(statuses(findings)) == {"FOUND"}
    assert all(result.mendable and result.why and result.cure for result in findings)
    assert tree(home) == before
    assert statuses(look(home, name, fix=True)) == ["MENDED"] * len(findings)
    assert look(home, name) == []
    return [result.what for result in findings]


def tree(folder):
    """Returns every file with its content and its time, and every folder with its time."""
    return {
        path.relative_to(folder): (path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else None)
        for path in (folder, *folder.rglob("*"))
    }


def left(home, kind="runs", state=State.RUNNING, name=""):
    """Returns a new folder whose record and log are in the same state."""
    folder = RunFolders(home, kind).new_folder()
    id = folder.path.name
    recorded(folder, state, uri=tracking_uri(home), name=name)
    log = start(home, id, id)
    if state is not State.RUNNING:
        log.set_state(state)
    return folder, log


def start(home, id, owner, **how):
    defaults = {"uri": tracking_uri(home), "experiment": "exp", "name": id, "params": {"a": "1"}, "tags": {}}
    return RunLog.start(home, id, owner=owner, **(defaults | how))


class Swept:
    """The folder of a sweep with its ledger, written as a sweep writes it."""

    def __init__(self, home):
        self.folder, _ = left(home, "sweeps", State.STOPPED, name="night")
        self.id = self.folder.path.name
        self.ledger = Ledger(self.folder.path)
        self.ledger.append("sweep", id=self.id, name="night")
        version = SpaceVersion(0, "s", "", {"a": A}, ("max",), kept={}, dropped={})
        self.ledger.open_version(version)

    def trial(self, state=State.RUNNING, score=0.5):
        """Adds a trial with one validation to the ledger, and returns its entry."""
        number = len(self.ledger.entries)
        key = f"trial-{number:04d}"
        self.ledger.open(Training(key, key, {}, {"a": 1.0}, number=number, params={"a": 1.0}))
        self.ledger.append("begin", key=key, cpus=1, gpus=0)
        self.ledger.append("value", key=key, epoch=1, score=score)
        if state is not State.RUNNING:
            values = [score] if state is State.COMPLETE else []
            self.ledger.close(key, End(state, score=score, values=values))
        return self.ledger.entries[key]

    def running(self):
        """Sets the state of the record that a killed command leaves."""
        self.folder.set_state(State.RUNNING)
