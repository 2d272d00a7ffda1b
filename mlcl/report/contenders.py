"""What is compared: settings with their runs by seed, read from MLflow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from mlflow.entities import Run
from mlflow.exceptions import MlflowException

from mlcl.errors import UserError, nearest
from mlcl.tracking import State, Tracker

SEED = "train.seed"
SINGLE = ("run", "cell", "confirmation", "trial")
"""Kinds of runs that trained something."""
FORMS = "a sweep (name or id), SWEEP:SETTING, a run's id, ID,ID,... or a table's 'ROW, COLUMN'"
PARENT = "mlflow.parentRunId"


@dataclass(frozen=True)
class Measured:
    """One run: its seed, the fingerprint of its data, its last metrics."""

    run_id: str
    seed: int
    data: str
    metrics: Mapping[str, float]


@dataclass(frozen=True)
class Contender:
    """A setting, with its complete runs by seed. `word` is how it was asked for."""

    label: str
    word: str
    runs: Mapping[int, Measured]

    @property
    def metrics(self) -> set[str]:
        """Metrics that all of its runs have."""
        return set.intersection(*(set(run.metrics) for run in self.runs.values()))


def find_contenders(tracker: Tracker, words: Sequence[str]) -> list[Contender]:
    """The settings that words name, in their order.

    A sweep stands for all settings that it has confirmed on fresh seeds; a run for itself and all complete
    runs of its experiment that differ in the seed alone, the latest of each seed. Raises UserError for a
    word that names nothing, or nothing that is complete.
    """
    store = _Store(tracker)
    found = [contender for word in words for contender in store.find(word)]
    for contender in found:
        if not contender.runs:
            raise UserError("no complete run", key="WHAT", found=contender.word)
    return found


class _Store:
    """MLflow's runs, by what names them."""

    def __init__(self, tracker: Tracker) -> None:
        self._client = tracker.client
        self._experiments = [str(e.experiment_id) for e in self._client.search_experiments()]

    def find(self, word: str) -> list[Contender]:
        for form in (self._sweep, self._cell, self._run, self._list):
            found = form(word)
            if found:
                return found
        names = sorted(
            {run.data.tags.get("mlcl.name", "") for run in self._search("mlcl.kind", "sweep")} - {""}
        )
        near = nearest(word, names)
        raise UserError(
            "names no run and no sweep" + (f"; did you mean {near}?" if near else ""),
            key="WHAT",
            found=word,
            allowed=FORMS,
        )

    def _sweep(self, word: str) -> list[Contender]:
        name, _, label = word.partition(":")
        sweep = next(iter(self._named(name)), None)
        if sweep is None:
            return []
        groups = [g for g in self._children(sweep) if g.data.tags.get("mlcl.kind") == "confirmation"]
        labels = {str(g.info.run_name): g for g in groups}
        if not groups:
            raise UserError(
                "this sweep has confirmed no setting on fresh seeds",
                key="WHAT",
                found=word,
                allowed="the same sweep with --seeds 5, or a trial's run id",
            )
        if label and label not in labels:
            raise UserError("no such setting of the sweep", key="WHAT", found=word, allowed=sorted(labels))
        # The oldest first: baselines and the job as written come before what was found.
        ordered = sorted(groups, key=lambda g: g.info.start_time)
        chosen = [labels[label]] if label else ordered
        return [
            Contender(str(g.info.run_name), f"{name}:{g.info.run_name}", _by_seed(self._children(g)))
            for g in chosen
        ]

    def _named(self, name: str) -> list[Run]:
        sweeps = [
            run
            for tag in ("mlcl.id", "mlcl.name")
            for run in self._search(tag, name)
            if run.data.tags.get("mlcl.kind") == "sweep"
        ]
        by_id = self._get(name)
        if by_id is not None and by_id.data.tags.get("mlcl.kind") == "sweep":
            sweeps.insert(0, by_id)
        return sweeps

    def _cell(self, word: str) -> list[Contender]:
        runs = self._search("mlcl.cell", f"{word}, seed %", "LIKE")
        return [Contender(word, word, _by_seed(runs))] if runs else []

    def _run(self, word: str) -> list[Contender]:
        run = self._single(word)
        if run is None:
            return []
        label = str(run.data.tags.get("mlcl.cell", run.info.run_name))
        if run.data.tags["mlcl.kind"] == "trial":
            return [Contender(label, word, _by_seed([run]))]
        alike = [
            other
            for other in self._search("mlcl.data_fingerprint", run.data.tags.get("mlcl.data_fingerprint", ""))
            if other.info.experiment_id == run.info.experiment_id
            and other.data.tags.get("mlcl.kind") == run.data.tags["mlcl.kind"]
            and _setting(other) == _setting(run)
        ]
        return [Contender(label, word, _by_seed(alike))]

    def _list(self, word: str) -> list[Contender]:
        ids = word.split(",")
        runs = [self._single(id) for id in ids]
        if len(ids) < 2 or None in runs:
            return []
        known = [run for run in runs if run is not None]
        settings = {tuple(sorted(_setting(run).items())) for run in known}
        if len(settings) > 1:
            keys = sorted({key for pair in set.symmetric_difference(*map(set, settings)) for key in pair[:1]})
            raise UserError("these runs differ in more than the seed", key="WHAT", found=word, allowed=keys)
        return [Contender(str(known[0].info.run_name), word, _by_seed(known))]

    def _single(self, word: str) -> Run | None:
        runs = [self._get(word), *self._search("mlcl.id", word)]
        return next((r for r in runs if r is not None and r.data.tags.get("mlcl.kind") in SINGLE), None)

    def _get(self, id: str) -> Run | None:
        try:
            return self._client.get_run(id)
        except MlflowException:
            return None

    def _children(self, run: Run) -> list[Run]:
        return self._search(PARENT, run.info.run_id)

    def _search(self, tag: str, value: str, how: str = "=") -> list[Run]:
        """Runs by a tag, the latest first."""
        if "'" in value:
            return []
        found: list[Run] = []
        token = None
        while True:
            page = self._client.search_runs(
                self._experiments,
                f"tags.`{tag}` {how} '{value}'",
                order_by=["attributes.start_time DESC"],
                page_token=token,
            )
            found += page
            token = page.token
            if not token:
                return found


def _setting(run: Run) -> dict[str, str]:
    return {key: value for key, value in run.data.params.items() if key != SEED}


def _by_seed(runs: Iterable[Run]) -> dict[int, Measured]:
    """The complete ones, the latest of each seed; `runs` come latest first."""
    found: dict[int, Measured] = {}
    for run in runs:
        tags = run.data.tags
        if tags.get("mlcl.state") != State.COMPLETE or not tags.get("mlcl.seed", "").isdigit():
            continue
        seed = int(tags["mlcl.seed"])
        data = tags.get("mlcl.data_fingerprint", "")
        found.setdefault(seed, Measured(run.info.run_id, seed, data, dict(run.data.metrics)))
    return dict(sorted(found.items()))
