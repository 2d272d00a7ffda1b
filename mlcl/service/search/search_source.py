"""Searches, which draw trials with Optuna and prune them, and the source that hands out these trials."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import Any

from mlcl.config import dump_job, flatten, load_job
from mlcl.service.engine.entries import End, Entry, SearchStop, Training, scope_key
from mlcl.service.engine.ledger import Ledger
from mlcl.service.engine.nested_trials import NestedTrials
from mlcl.service.engine.source import Files, TrainingSource
from mlcl.service.search.kept_files import KeptFiles
from mlcl.service.search.pruner import ReplayPruner, stop_of, stop_reason
from mlcl.service.search.sampling import prior_starts, start
from mlcl.service.search.starts import Start, asked_starts, control_start
from mlcl.service.search.study import draw_trial, trials_to_learn
from mlcl.service.search.sweep_plan import SweepPlan
from mlcl.significance.roles import figure_name
from mlcl.tracking import State
from mlcl.training.row_predictions import blocks_of
from mlcl.training.run_files import RESULT


class Search:
    """One search: hands out interrupted trials, then draws new ones from its present space.

    The constructor reports the values of the ledger to the pruner again, and closes a trial that was pruned
    just before the command was killed. `announce` is called with a text if the search stops early.
    """

    def __init__(
        self,
        plan: SweepPlan,
        ledger: Ledger,
        scope: str = "",
        announce: Callable[[str], None] = lambda _text: None,
    ) -> None:
        self.plan, self.scope, self._announce = plan, scope, announce
        self._ledger = ledger
        self._version = ledger.versions(scope)[-1]
        self._job = plan.search_job()
        self._flat_job = flatten(dump_job(self._job))
        job_point = start(plan.space, self._flat_job)
        self._written_starts = [] if job_point is None else [Start(job_point, "as written", self._job)]
        self._starts = list(self._written_starts)
        self._add_starts(Start(point, "prior") for point in prior_starts(plan.space, self._flat_job))
        self._requested_starts = list(asked_starts(plan.space, self._job, plan.try_first))
        self._waiting_trials: list[Entry] = []
        self._point_cache = {_point_key(trial.params) for trial in self._version.kept.values()}
        self._points_offset = self._jobs_offset = 0
        self._keys_by_digest: dict[bytes, list[str]] = {}
        self.pruner = ReplayPruner(
            plan.space.search,
            plan.space.mode,
            epochs=self._job.train.epochs,
            every=self._job.evaluation.every,
            name=plan.name,
        )
        self._replay_history()

    def _replay_history(self) -> None:
        entries = {entry.key: entry for entry in self._ledger.counted_trials(self.scope)}
        stopped_keys = set()
        for event, key, epoch in list(self._ledger.history):
            entry = entries.get(key)
            if entry is None or entry.number is None:
                continue
            if event == "close":
                self.pruner.tell(entry.number, entry.state, entry.score)
            elif self.pruner.should_prune(entry.number, epoch, dict(entry.intermediate)[epoch]):
                stopped_keys.add(key)
        for key in stopped_keys:
            entry = entries[key]
            if entry.resumable and entry.version == self._version.number:
                self._ledger.close(key, End(State.PRUNED, score=entry.intermediate[-1][1]))
                self.tell(entry)

    def tell(self, entry: Entry) -> None:
        """Passes the end of a trial to the pruner."""
        assert entry.number is not None
        self.pruner.tell(entry.number, entry.state, entry.score)

    def stop_early(self) -> None:
        """Writes an early end to the ledger if `search.stop` is set and more trials would gain little."""
        search, queued_count = self.plan.space.search, len(self._queued_starts)
        skip_count = self._room() - queued_count  # settings that the user asked for are trained in any case
        if search.stop is None or skip_count <= 0:
            return
        ended_trials = [trial for trial in self.trials if trial.state in (State.COMPLETE, State.PRUNED)]
        scores = [
            trial.score for trial in ended_trials if trial.state is State.COMPLETE and trial.score is not None
        ]
        margin, mode = self.plan.job.evaluation.margin, self.plan.space.mode
        remaining = skip_count + queued_count + sum(trial.resumable for trial in self.trials)
        reason = stop_reason(
            scores, len(ended_trials), remaining, startup=search.startup, margin=margin, mode=mode
        )
        if reason:
            stop = SearchStop(self._version.number, self.plan.trials, skip_count, reason)
            self._ledger.append("stop_search", scope=self.scope, **asdict(stop))
            self._announce(f"{self.plan.name}: {stop.sentence}")

    def start_at(self, setting: Mapping[str, Any]) -> None:
        """Puts the `control_start` of a setting into the list of starts, after the job as written."""
        point = control_start(self.plan.space, self._flat_job, setting)
        if point is not None:
            later_starts = self._starts[len(self._written_starts) :]
            self._starts = list(self._written_starts)
            self._add_starts([Start(point, "control"), *later_starts])

    def _add_starts(self, starts: Iterable[Start]) -> None:
        for new_start in starts:
            if new_start.point not in [trial_start.point for trial_start in self._starts]:
                self._starts.append(new_start)

    @property
    def _tried_points(self) -> set[frozenset[tuple[str, Any]]]:
        """The points of all trials, including trials of earlier spaces that fit the present one."""
        new_trials = self._ledger.trials(self._version.number, self.scope, start=self._points_offset)
        self._point_cache.update(_point_key(trial.params) for trial in new_trials)
        self._points_offset += len(new_trials)
        return self._point_cache

    @property
    def _queued_starts(self) -> list[Start]:
        if not self._requested_starts:
            return []
        tried_points = self._tried_points | {
            _point_key(trial_start.point) for trial_start in self._written_starts
        }
        starts: dict[frozenset[tuple[str, Any]], Start] = {}
        for trial_start in self._requested_starts:
            starts.setdefault(_point_key(trial_start.point), trial_start)
        return [trial_start for point, trial_start in starts.items() if point not in tried_points]

    @property
    def trials(self) -> list[Entry]:
        """The trials that were drawn from the present space."""
        return self._ledger.trials(self._version.number, self.scope)

    @property
    def turn(self) -> tuple[bool, int]:
        """A sort key: searches with interrupted trials come first, then those with the fewest trials."""
        return not self._waiting_trials, self._trial_count

    @property
    def _trial_count(self) -> int:
        return self._ledger.trial_count(self._version.number, self.scope)

    def start(self) -> tuple[int, int]:
        """Returns the number of ended trials, and the number of all trials including those still to draw."""
        self.stop_early()  # a kill may have prevented the event of an early end
        trials = self.trials
        self._waiting_trials = [trial for trial in trials if trial.resumable]
        return len(trials) - len(self._waiting_trials), len(trials) + self._room()

    def next(self) -> Entry | None:
        """Returns an interrupted trial, or else a newly drawn one; None if no more are to be drawn."""
        if self._waiting_trials:
            return self._waiting_trials.pop(0)
        if self._room() <= 0:
            return None
        points, queued_starts, count = self._tried_points, self._queued_starts, self._trial_count
        due_starts = (
            queued_starts
            if all(_point_key(trial_start.point) in points for trial_start in self._written_starts)
            else []
        )
        open_starts = [*due_starts, *self._starts]
        first_point = next(
            (trial_start.point for trial_start in open_starts if _point_key(trial_start.point) not in points),
            None,
        )
        earlier_trials = trials_to_learn(self._ledger, self.plan.space, self._version, self.scope)
        settings, trial = draw_trial(self.plan.space, self._version, earlier_trials, count, first_point)
        all_starts = [*self._written_starts, *queued_starts, *self._starts]
        trial_start = next(
            (trial_start for trial_start in all_starts if trial_start.point == trial.params),
            Start(trial.params, "drawn"),
        )
        settings = trial_start.align_settings(settings)
        job = trial_start.job or load_job(dump_job(self._job), settings)
        number = self._ledger.trial_count(scope=self.scope)
        return self._ledger.open(
            Training(
                key=scope_key(self.scope, f"trial-{number:04d}"),
                label=f"{self.plan.name}, trial {number}" if self.scope else f"trial {number}",
                job=dump_job(job),
                settings=dict(settings),
                version=self._version.number,
                number=number,
                scope=self.scope,
                params=trial.params,
                system_attrs=trial.system_attrs,
                origin="drawn" if _point_key(trial.params) in points else trial_start.origin,
            )
        )

    def scored_as(self, other: Search) -> bool:
        """Whether trials with equal jobs have equal scores and post-hoc values in both searches."""
        plan, other_plan = self.plan, other.plan
        return (plan.scores, plan.space.posthoc) == (other_plan.scores, other_plan.space.posthoc)

    def first_with(self, job: Mapping[str, Any]) -> Entry | None:
        """Returns the first trial with this job that has not failed; None if there is none."""
        new_trials = self._ledger.trials(scope=self.scope, start=self._jobs_offset)
        self._jobs_offset += len(new_trials)
        for trial in new_trials:
            self._keys_by_digest.setdefault(_job_digest(trial.job), []).append(trial.key)
        matches = (self._ledger.entries[key] for key in self._keys_by_digest.get(_job_digest(job), ()))
        return next((trial for trial in matches if trial.state is not State.FAILED), None)

    def left(self) -> int:
        """Returns the number of trials that have not ended, including those still to draw."""
        return self._room() + self._ledger.left_count(self._version.number, self.scope)

    def best(self) -> Entry | None:
        """Returns the best complete trial among those of the present space and earlier ones that fit it."""
        return next(iter(self._ledger.ranked_trials(self.scope, self.plan.space.mode)), None)

    def _room(self) -> int:
        """Returns the number of trials still to draw, at least one for each untried setting asked for."""
        room = self.plan.trials - self._trial_count
        if self.plan.points is not None:
            room = min(room, self.plan.points - len(self._tried_points))
        if stop_of(self.plan, self._ledger, self.scope) is not None:
            room = 0
        return max(room, len(self._queued_starts))


def _point_key(point: Mapping[str, Any]) -> frozenset[tuple[str, Any]]:
    return frozenset(point.items())


def _job_digest(job: Mapping[str, Any]) -> bytes:
    return sha256(json.dumps(job, sort_keys=True).encode()).digest()


class SearchSource(TrainingSource):
    """Hands out the trials of searches in turn, so that all searches lose equally if the budget is used up.

    `notify` is called after each end of a trial. Forecasts include the trials of `later` searches.
    """

    stage = "search"
    test = False

    def __init__(
        self,
        searches: Sequence[Search],
        store: NestedTrials,
        kept: KeptFiles,
        notify: Callable[[], None] = lambda: None,
        later: Sequence[Search] = (),
    ) -> None:
        self._searches, self._notify = {search.scope: search for search in searches}, notify
        self._kept_files, self._later_searches = kept, later
        self.store, self.scores = store, searches[0].plan.scores

    def start(self) -> tuple[int, int]:
        """Returns the numbers of ended trials and of all trials, summed over the searches."""
        counts = [search.start() for search in self._searches.values()]
        return sum(done for done, _ in counts), sum(total for _, total in counts)

    def next(self) -> Entry | None:
        """Returns an interrupted trial of any search, or else a newly drawn one; None if none is left."""
        searches = sorted(self._searches.values(), key=lambda search: search.turn)
        return next((entry for search in searches if (entry := search.next()) is not None), None)

    def twin(self, entry: Entry) -> Entry | None:
        """Returns an earlier trial with the same job, of the same search or of one with the same scoring.

        A sampler may draw the values of a small space again, and searches on the same validation rows begin
        with the same job. If the search prunes, other searches are not used, since its pruner needs the
        intermediate values of its own trials.
        """
        search, scopes = self._searches[entry.scope], list(self._searches)
        prunes = search.plan.space.search.scheduler != "none"

        def turn(trial: Entry) -> tuple[int, int]:
            return trial.number or 0, scopes.index(trial.scope)

        searches = (
            other
            for other in self._searches.values()
            if other is search or (not prunes and other.scored_as(search))
        )
        first_trials = (trial for other in searches if (trial := other.first_with(entry.job)) is not None)
        return min((trial for trial in first_trials if turn(trial) < turn(entry)), key=turn, default=None)

    def prune(self, entry: Entry, epoch: int, score: float) -> bool:
        """Returns whether the pruner of the trial's search stops the trial at this epoch."""
        assert entry.number is not None
        return self._searches[entry.scope].pruner.should_prune(entry.number, epoch, score)

    def complete(self, entry: Entry, values: list[float]) -> End:
        """Returns the `End` of a trial with its score; FAILED if one of its final values is not finite."""
        return score_training(self._searches[entry.scope].plan, entry, self.store.folder(entry), values)

    def on_end(self, entry: Entry) -> None:
        """Passes the end of a trial to the pruner, ends the search early if due, and removes unkept files."""
        if entry.ended:
            self._searches[entry.scope].tell(entry)
            self._searches[entry.scope].stop_early()
            self._kept_files.trim(entry)
        self._notify()

    def files(self, entry: Entry) -> Files:
        """Returns the type of the model and embeddings that a trial stores, and whether it logs them."""
        return self._kept_files.files(entry)

    def left(self) -> int:
        """Returns the number of trials of these searches and of later ones that have not ended."""
        return sum(search.left() for search in (*self._searches.values(), *self._later_searches))


def score_training(plan: SweepPlan, entry: Entry, folder: Path, values: list[float]) -> End:
    """Returns the end of a training that reported `values`, one per goal: FAILED if one is not finite."""
    metrics = json.loads((folder / RESULT).read_text())
    broken_names = [name for name, v in zip(plan.scores, values, strict=True) if not math.isfinite(v)]
    if broken_names:
        return End(State.FAILED, f"{', '.join(broken_names)} is not a number")
    posthoc = _chosen_settings(plan.free_keys, entry.job, metrics)
    score = values[plan.space.goals.index(plan.space.prune_by)]
    test_names = [figure_name(name.replace("val/", "test/"), metrics) for name in plan.scores]
    blocks = blocks_of(folder, [name for name in test_names if name in metrics])
    return End(State.COMPLETE, score=score, values=values, metrics=metrics, blocks=blocks, chosen=posthoc)


def _chosen_settings(
    keys: Sequence[str], job: Mapping[str, Any], metrics: Mapping[str, float]
) -> dict[str, Any]:
    """Returns the best values of the post-hoc `keys`, read from the metrics, as the job's grid has them."""
    if not keys or job.get("baseline") is not None:
        return {}
    grid, settings = job["evaluation"]["knn"]["grid"], {}
    for key in keys:
        name = key.rpartition(".")[2]
        best = metrics[f"knn_best/{name}"]
        settings[key] = next((value for value in grid[name] if value == best), best)
    return settings
