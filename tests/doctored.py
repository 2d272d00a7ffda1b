"""Homes as crashes leave them, and what the doctor says of them."""

from __future__ import annotations

import optuna
from ledgers import recorded

from mlcl.service.doctor import CHECKS, Scope, run_checks
from mlcl.service.engine.ledger import Ledger
from mlcl.service.search.study import sync_study
from mlcl.service.search.study_storage import open_storage
from mlcl.store import RunFolders
from mlcl.tracking import RunLog, State, tracking_uri


def look(home, *names, fix=False, study=None, uri=None):
    """What the named checks say, or all of them."""
    checks = [check for check in CHECKS if not names or check.name in names]
    assert len(checks) >= len(names)
    return run_checks(Scope(home, uri or tracking_uri(home), study), fix=fix, checks=checks)


def statuses(results):
    return [str(result.status) for result in results]


def tree(folder):
    """Every file with its content and its time, every folder with its time."""
    return {
        path.relative_to(folder): (path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else None)
        for path in (folder, *folder.rglob("*"))
    }


def left(home, kind="runs", state=State.RUNNING, name=""):
    """A folder with its record and its log, which says the same."""
    folder = RunFolders(home, kind).new()
    id = folder.path.name
    recorded(folder, state, uri=tracking_uri(home), name=name)
    log = start(home, id, id)
    if state is not State.RUNNING:
        log.finish(state)
    return folder, log


def start(home, id, owner, **how):
    usual = {"uri": tracking_uri(home), "experiment": "exp", "name": id, "params": {"a": "1"}, "tags": {}}
    return RunLog.start(home, id, owner=owner, **(usual | how))


class Swept:
    """A sweep's folder with its ledger and study, written as a sweep does; or a table's, of a tuned cell."""

    def __init__(self, home, study="", cell=""):
        self.home, self.scope = home, {"scope": cell} if cell else {}
        self.folder, _ = left(home, "tables" if cell else "sweeps", State.STOPPED, name="night")
        self.id = self.folder.path.name
        self.ledger = Ledger(self.folder.path)
        self.storage = open_storage(study or self.folder.path / "study.journal")
        self.study = optuna.create_study(study_name=self.id, storage=self.storage, direction="maximize")
        head = {} if cell else {"study": study}
        self.ledger.append("table" if cell else "sweep", id=self.id, name="night", **head)
        self.ledger.append(
            "generation", number=0, space_hash="s", space="", study=self.id, kept={}, dropped={},
            names=["a"], warm=[], **self.scope,
        )  # fmt: skip

    def trial(self, state=State.RUNNING, *, told=True, score=0.5):
        """A trial with one rung, in the ledger; `told`: in the study too."""
        key = f"trial-{len(self.ledger.entries):04d}"
        trial = self.study.ask()
        trial.suggest_float("a", 0, 1)
        self.ledger.append(
            "open", key=key, label=key, job={}, settings={"a": 1.0}, generation=0, number=trial.number,
            study_number=trial.number, group=None, **self.scope,
        )  # fmt: skip
        sync_study(self.study, self.ledger.entries[key])
        self.ledger.append("begin", key=key, cpus=1, gpus=0)
        self.ledger.append("rung", key=key, epoch=1, score=score)
        if state is not State.RUNNING:
            values = [score] if state is State.COMPLETE else []
            self.ledger.append(
                "close", key=key, state=state, score=score, values=values, metrics={}, chosen={}, reason=""
            )
        if told:
            sync_study(self.study, self.ledger.entries[key])
        return self.ledger.entries[key]

    def trials(self):
        """What the study has, read anew."""
        where = self.folder.path / "study.journal"
        storage = open_storage(where) if where.exists() else self.storage
        return optuna.load_study(study_name=self.id, storage=storage).trials

    def running(self):
        """As a command that was killed leaves the record."""
        self.folder.set_state(State.RUNNING)
