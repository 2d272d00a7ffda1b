"""Opens and closes a sweep's trainings: first in the ledger, then in Optuna and MLflow."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import optuna

from mlcl.config import JobConfig, Space, dump_job, load_job
from mlcl.service.engine.ledger import Entry, Group, Ledger, SpaceVersion
from mlcl.service.engine.state_sync import log_id, sync_log, sync_study
from mlcl.service.engine.trial_logs import TrialLogs
from mlcl.service.search.pruner import ReplayPruner
from mlcl.service.search.sampling import draw
from mlcl.service.search.study import ask, reopen
from mlcl.tracking import RunLog, State
from mlcl.tracking.names import Tag
from mlcl.training.files import RESULT


class TrialRecorder:
    """One sweep's trainings."""

    def __init__(
        self, ledger: Ledger, folder: Path, trial_logs: TrialLogs, space: Space, scores: tuple[str, ...]
    ) -> None:
        self.ledger, self.folder, self.trial_logs, self.space = ledger, folder, trial_logs, space
        self._scores = scores
        self._study: optuna.Study | None = None
        self._pruner: ReplayPruner | None = None

    def take_up(self, generation: SpaceVersion, study: optuna.Study, pruner: ReplayPruner) -> None:
        """The present study; then tells everybody what the ledger knows: a kill may have cut that short."""
        self._study, self._pruner = study, pruner
        for key, group in self.ledger.groups.items():
            self._start(group)
            if key in self.ledger.group_states:
                self._tell_group(key)
        for entry in self.ledger.entries.values():
            self._start(entry)
        self._replay()
        for entry in self.ledger.entries.values():
            sync_log(self.trial_logs.home, self.trial_logs.sweep, entry)
            if entry.number is not None and entry.generation == generation.number:
                sync_study(study, entry)
        if generation.number > 0:
            self._tell_dropped(generation)

    def _tell_dropped(self, generation: SpaceVersion) -> None:
        """Which trials do not fit the present space, and why: what reads MLflow must leave them out too."""
        counted = {entry.key for entry in self.ledger.counted()}
        for entry in self.ledger.trials():
            reason = "" if entry.key in counted else generation.dropped.get(entry.key, "of an earlier space")
            RunLog.attach(self.trial_logs.home, log_id(self.trial_logs.sweep, entry.key)).tags(
                {Tag.DROPPED: reason}
            )

    def _replay(self) -> None:
        """The judge decides again as it did; a trial that it stopped just before a kill is closed now."""
        assert self._pruner is not None
        counted = {entry.key: entry for entry in self.ledger.counted()}
        stopped = set()
        for event, key, epoch in list(self.ledger.order):
            entry = counted.get(key)
            if entry is None or entry.number is None:
                continue
            if event == "close":
                self._pruner.close(entry.number, entry.state, entry.score)
            elif self._pruner.rung(entry.number, epoch, dict(entry.rungs)[epoch]):
                stopped.add(key)
        present = self.ledger.generations[-1].number
        for key in stopped:
            entry = counted[key]
            if entry.resumable and entry.generation == present:
                self._close(entry, State.PRUNED, entry.rungs[-1][1])

    def draw(self, base: JobConfig) -> Entry:
        """A new search trial."""
        assert self._study is not None
        generation = self.ledger.generations[-1]
        known = [e.study_number for e in self.ledger.trials(generation.number) if e.study_number is not None]
        trial = ask(self._study, known)
        settings = draw(self.space, trial)
        number = len(self.ledger.trials())
        return self._open(
            key=f"trial-{number:04d}",
            label=f"trial {number}",
            job=load_job(dump_job(base), settings),
            settings=settings,
            number=number,
            study_number=trial.number,
        )

    def open_group(self, key: str, label: str, job: JobConfig, settings: Mapping[str, Any]) -> None:
        """A nested run that holds the seeds of one confirmation; nothing where it is open already."""
        if key not in self.ledger.groups:
            self.ledger.append("group", key=key, label=label, job=dump_job(job), settings=dict(settings))
        self._start(self.ledger.groups[key])

    def tag_groups(self, labels: Mapping[str, str]) -> None:
        """How the confirmed settings rank now: the best found may be another one than last time."""
        for key in self.ledger.groups:
            log = RunLog.attach(self.trial_logs.home, log_id(self.trial_logs.sweep, key))
            log.tags({Tag.CANDIDATE: labels.get(key, "no longer")})

    def open_seed(self, group: str, seed: int) -> Entry:
        """One seed of a confirmation; the one that is open already where there is one."""
        held = self.ledger.groups[group]
        key = f"{group}-seed{seed}"
        if key in self.ledger.entries:
            return self.ledger.entries[key]
        job = load_job(held.job, {"train.seed": seed})
        return self._open(
            key=key, label=f"{held.label}, seed {seed}", job=job, settings=held.settings, group=group
        )

    def _open(
        self,
        *,
        key: str,
        label: str,
        job: JobConfig,
        settings: Mapping[str, Any],
        number: int | None = None,
        study_number: int | None = None,
        group: str | None = None,
    ) -> Entry:
        self.ledger.append(
            "open",
            key=key,
            label=label,
            job=dump_job(job),
            settings=dict(settings),
            generation=self.ledger.generations[-1].number,
            number=number,
            study_number=study_number,
            group=group,
        )
        entry = self.ledger.entries[key]
        if number is not None:
            assert self._study is not None
            sync_study(self._study, entry)
        self._start(entry)
        return entry

    def _start(self, opened: Entry | Group) -> None:
        self.trial_logs.start(opened, tuple(self.ledger.head["free"]))

    def tried(self) -> int:
        """Different points of the space that the study knows, those of earlier trials that fit included."""
        assert self._study is not None
        known = {entry.study_number for entry in self.ledger.trials(self.ledger.generations[-1].number)}
        return len(
            {
                frozenset(trial.params.items())
                for trial in self._study.get_trials(deepcopy=False)
                if trial.number in known or trial.state.is_finished()
            }
        )

    def resume(self, entry: Entry) -> Entry:
        """An interrupted search trial, before new ones are drawn: not every sampler knows what waits."""
        assert self._study is not None
        assert entry.study_number is not None
        reopen(self._study, entry.study_number)
        return entry

    def begin(self, key: str, cpus: float, gpus: float) -> Entry:
        """A process begins with a training."""
        entry = self.ledger.entries[key]
        if entry.ended:
            raise RuntimeError(f"{entry.label} is {entry.state} and cannot begin again")
        self.ledger.append("begin", key=key, cpus=cpus, gpus=gpus)
        sync_log(self.trial_logs.home, self.trial_logs.sweep, entry)
        if entry.group is not None:
            RunLog.attach(self.trial_logs.home, log_id(self.trial_logs.sweep, entry.group)).reopen()
        return entry

    def rung(self, key: str, epoch: int, score: float) -> bool:
        """A validation's score, once; whether the training is to be stopped early."""
        entry = self.ledger.entries[key]
        if epoch not in dict(entry.rungs):
            self.ledger.append("rung", key=key, epoch=epoch, score=score)
        if entry.number is None:
            return False
        assert self._pruner is not None
        return self._pruner.rung(entry.number, epoch, score)

    def close(self, key: str, state: State, values: list[float] | None = None, reason: str = "") -> Entry:
        """A training's end. COMPLETE without finite values is a failure."""
        entry = self.ledger.entries[key]
        if state is State.COMPLETE:
            return self._complete(entry, values or [])
        self._close(entry, state, entry.rungs[-1][1] if entry.rungs else None, reason=reason)
        return entry

    def _complete(self, entry: Entry, values: list[float]) -> Entry:
        metrics = json.loads((self.folder / "trials" / entry.key / RESULT).read_text())
        broken = [name for name, v in zip(self._scores, values, strict=True) if not math.isfinite(v)]
        if broken:
            self._close(entry, State.FAILED, None, reason=f"{', '.join(broken)} is not a number")
            return entry
        grid = entry.job["evaluation"]["knn"]["grid"]
        chosen = {}
        for key in self.ledger.head["free"]:
            name = key.rpartition(".")[2]
            chosen[key] = _one_of(grid[name], metrics[f"knn_best/{name}"])
        score = values[self.space.goals.index(self.space.prune_by)]
        self._close(entry, State.COMPLETE, score, values=values, metrics=metrics, chosen=chosen)
        return entry

    def _close(
        self,
        entry: Entry,
        state: State,
        score: float | None,
        *,
        values: list[float] | None = None,
        metrics: Mapping[str, float] | None = None,
        chosen: Mapping[str, Any] | None = None,
        reason: str = "",
    ) -> None:
        self.ledger.append(
            "close",
            key=entry.key,
            state=state,
            score=score,
            values=values or [],
            metrics=dict(metrics or {}),
            chosen=dict(chosen or {}),
            reason=reason,
        )
        # The study last: a storage that is away must not keep the others from being told.
        sync_log(self.trial_logs.home, self.trial_logs.sweep, entry)
        if entry.number is not None:
            assert self._study is not None
            assert self._pruner is not None
            if entry.ended:
                self._pruner.close(entry.number, state, score)
            sync_study(self._study, entry)

    def close_group(self, key: str, state: State, reason: str = "") -> None:
        """The end of a confirmation: the mean of its seeds, and its state."""
        if self.ledger.group_states.get(key) != (state, reason):
            self.ledger.append("close_group", key=key, state=state, reason=reason)
        self._tell_group(key)

    def _tell_group(self, key: str) -> None:
        state, reason = self.ledger.group_states[key]
        log = RunLog.attach(self.trial_logs.home, log_id(self.trial_logs.sweep, key))
        if (log.state, log.reason) == (state, reason):
            return
        log.reopen()  # an earlier reason must not stay
        seeds = [entry.metrics for entry in self.ledger.seeds_of(key)]
        if state is State.COMPLETE:
            names = sorted(set.intersection(*(set(metrics) for metrics in seeds)))
            log.metrics({n: math.fsum(m[n] for m in seeds) / len(seeds) for n in names}, step=len(seeds))
        log.finish(state, reason)


def _one_of(values: Sequence[Any], number: float) -> Any:
    """The value as it was given: metrics are all floats, k is not."""
    return next((value for value in values if value == number), number)
