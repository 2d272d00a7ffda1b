"""The spaces that a sweep has searched: a changed one takes over the earlier trials that still fit it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import optuna
from optuna.storages import BaseStorage
from optuna.trial import TrialState

from mlcl.config import Space, dump_job, flatten
from mlcl.errors import UserError
from mlcl.service.engine.entries import Entry, SpaceVersion, scoped
from mlcl.service.engine.ledger import Ledger
from mlcl.service.search.sampling import Misfit, distributions, fit, start
from mlcl.service.search.study import add_done, open_study, sync_study
from mlcl.service.search.sweep_plan import SweepPlan
from mlcl.store import RunFolders
from mlcl.tracking import State

TAKEN = (State.COMPLETE, State.PRUNED)
"""States of trials that a sampler can learn from."""


def space_hash(space: Space, warm: Iterable[str]) -> str:
    """What is searched: the parameters, the post-hoc grid, the goals, and whose trials were taken over."""
    parts = [repr(space.parameters), repr(sorted(space.posthoc.items())), repr(space.goals), *sorted(warm)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


class SpaceVersions:
    """Opens the study of the present space of the search `scope`."""

    def __init__(
        self, plan: SweepPlan, ledger: Ledger, storage: BaseStorage, home: Path, scope: str = ""
    ) -> None:
        self._plan, self._ledger, self._storage, self._home = plan, ledger, storage, home
        self._scope = scope

    def open(self, announce: Callable[[str], None]) -> tuple[SpaceVersion, optuna.Study]:
        """The last version where the space is still the same, else a new one."""
        head, space = self._ledger.head, self._plan.space
        warm = sorted({*self._warm_before(), *([self._plan.warm_start] if self._plan.warm_start else [])})
        found = space_hash(space, warm)
        self._settle_earlier(found)
        versions = self._ledger.versions(self._scope)
        if versions and versions[-1].space_hash == found:
            return versions[-1], open_study(self._storage, versions[-1].study, space)
        number, name = len(versions), scoped(self._scope, head["id"])
        study = self._empty_study(name if number == 0 else f"{name}-{number}")
        kept, dropped = self._keep(study, warm)
        self._enqueue_start(study)
        version = SpaceVersion(
            number=number,
            space_hash=found,
            space=self._plan.space_text,
            study=study.study_name,
            names=tuple(parameter.name for parameter in space.parameters),
            kept=kept,
            dropped=dropped,
            warm=tuple(warm),
        )
        self._ledger.open_version(version, self._scope)
        if number or warm:
            announce(_summary(kept, dropped))
        return version, study

    def _settle_earlier(self, present: str) -> None:
        """Tells the studies of earlier spaces: a kill may have kept them from hearing of their last trial."""
        names = optuna.get_all_study_names(self._storage)
        for version in self._ledger.versions(self._scope):
            if version.space_hash == present or version.study not in names:
                continue
            study = optuna.load_study(study_name=version.study, storage=self._storage)
            entries = self._ledger.trials(version.number, self._scope)
            for entry in entries:
                sync_study(study, entry)
            known = {entry.study_number for entry in entries}
            for trial in study.get_trials(deepcopy=False):
                if trial.state is TrialState.RUNNING and trial.number not in known:
                    study.tell(trial.number, state=TrialState.FAIL)  # half drawn, and never trained

    def _warm_before(self) -> tuple[str, ...]:
        versions = self._ledger.versions(self._scope)
        return versions[-1].warm if versions else ()

    def _empty_study(self, name: str) -> optuna.Study:
        """A command that was killed before it wrote the version down leaves half a study."""
        if name in optuna.get_all_study_names(self._storage):
            optuna.delete_study(study_name=name, storage=self._storage)
        return open_study(self._storage, name, self._plan.space)

    def _keep(self, study: optuna.Study, warm: Iterable[str]) -> tuple[dict[str, int], dict[str, str]]:
        """Adds the earlier trials that fit; says why the others do not."""
        kept: dict[str, int] = {}
        dropped: dict[str, str] = {}
        sources = {"": self._ledger.trials(scope=self._scope)}
        for name in warm:
            try:
                sources[name] = Ledger(find_sweep(self._home, name)).trials()
            except UserError:
                dropped[name] = "is gone"
        for name, entries in sources.items():
            for entry in entries:
                key = f"{name}/{entry.key}" if name else entry.key
                try:
                    kept[key] = self._add(study, key, entry)
                except Misfit as error:
                    dropped[key] = str(error)
        return kept, dropped

    def _add(self, study: optuna.Study, key: str, entry: Entry) -> int:
        if entry.state not in TAKEN:
            raise Misfit(f"is {entry.state}")
        if entry.state is State.COMPLETE and len(entry.values) != len(self._plan.space.goals):
            raise Misfit("has other goals")
        base = dump_job(self._plan.search_job())
        if self._plan.space.posthoc and entry.job["evaluation"]["knn"] != base["evaluation"]["knn"]:
            raise Misfit("was scored over other k, lambda or temperatures")
        job = {**entry.job, "experiment": base["experiment"]}
        point = fit(self._plan.space, flatten(job), flatten(base))
        values = entry.values if entry.state is State.COMPLETE else None
        return add_done(
            study,
            point,
            distributions(self._plan.space, point),
            entry.state,
            values,
            entry.rungs,
            {"from": key, "settings": entry.settings, "label": entry.label, "state": entry.state},
        )

    def _enqueue_start(self, study: optuna.Study) -> None:
        """The job as written goes first, where the space holds it and no earlier trial was it."""
        point = start(self._plan.space, flatten(dump_job(self._plan.search_job())))
        if point is not None and all(trial.params != point for trial in study.get_trials(deepcopy=False)):
            study.enqueue_trial(point)


def find_sweep(home: Path, name: str) -> Path:
    """The folder of the sweep with an id, or of the latest with a name. Raises UserError."""
    folders = RunFolders(home, "sweeps")
    found = folders.find(name) or folders.named(name)
    if found is None:
        known = sorted({record.name for _, record in folders.records()})
        allowed = ", ".join(known) or "none yet"
        raise UserError("no such sweep", key="--warm-start", found=name, allowed=allowed)
    return found.path


def warm_sweep(home: Path, name: str, head: Mapping[str, Any]) -> str:
    """The id of another sweep. Raises UserError unless it scored what `head` says on the same data."""
    path = find_sweep(home, name)
    ledger = Ledger(path)
    for key in ("scores", "fingerprint"):
        if ledger.head.get(key) != head[key]:
            raise UserError(
                f"its {key} differ from this sweep's",
                key="--warm-start",
                found=f"{name}: {ledger.head.get(key)}",
                allowed=head[key],
            )
    return path.name


def _summary(kept: dict[str, int], dropped: dict[str, str]) -> str:
    lines = [f"{len(kept)} earlier trials fit the space and are taken over, {len(dropped)} are not"]
    reasons: dict[str, list[str]] = {}
    for key, reason in dropped.items():
        reasons.setdefault(reason, []).append(key)
    lines += [f"  {', '.join(keys)}: {reason}" for reason, keys in reasons.items()]
    return "\n".join(lines)
