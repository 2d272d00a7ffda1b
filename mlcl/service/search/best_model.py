"""Registers the model of a sweep's best trial under the alias `best`, as a model that MLflow can serve."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from mlcl.config import dump_job, flatten, load_job
from mlcl.markup import markdown, markdown_table
from mlcl.results.training_result import training_folder
from mlcl.service.engine.entries import Entry, scope_key
from mlcl.service.engine.ledger import Ledger
from mlcl.service.process.signals import StopRequest
from mlcl.service.search.arms import SearchPlan
from mlcl.service.search.confirmation import Candidate, race_pick, race_results
from mlcl.service.search.sweep_plan import SweepPlan
from mlcl.significance.roles import Role
from mlcl.tracking import State, Tracker
from mlcl.tracking.names import Tag
from mlcl.tracking.registry import Score, move_best, register_version
from mlcl.training.export import write_export
from mlcl.training.job_data import JobData
from mlcl.training.run_files import MODEL


def model_training(
    plan: SweepPlan,
    ledger: Ledger,
    plans: Sequence[SearchPlan],
    entrants_by_scope: Mapping[str, Sequence[Candidate]],
    settings_by_scope: Mapping[str, Sequence[Candidate]],
) -> Entry | None:
    """Returns the training whose model is registered; None if no race of the swept job has ended.

    It is a training of the best setting among the winners of the races: the trial with this setting or, if
    none has a model, the setting's first training in the race. If races choose k, lambda and temperature, it
    is the setting's first complete training on fresh seeds, since only these have the chosen values.
    `entrants_by_scope` are those of races, `settings_by_scope` the confirmed settings.
    """
    picks = []
    for search in plans:
        race = race_results(search, entrants_by_scope.get(search.scope, []), ledger)
        if search.role is Role.MODEL and race:
            winner = race_pick(race, plan.space.mode)
            picks.append((winner.mean, search.scope, entrants_by_scope[search.scope][race.index(winner)]))
    sign = 1 if plan.space.mode == "max" else -1
    finite_picks = [pick for pick in picks if math.isfinite(pick[0])]
    if not finite_picks:
        return None
    _, scope, setting = max(finite_picks, key=lambda pick: sign * pick[0])
    candidates = settings_by_scope.get(scope, []) if plan.knn_races else []
    seeds = [seed for candidate in candidates for seed in ledger.seeds_of(scope_key(scope, candidate.key))]
    if complete_seeds := [seed for seed in seeds if seed.state is State.COMPLETE]:
        return complete_seeds[0]
    setting_trials = (
        trial for trial in ledger.counted_trials(scope) if setting.trial and trial.label == setting.trial
    )
    # A trial that took results has no model, nor has one that was not among the best of an earlier command.
    trials = [
        trial for trial in setting_trials if (training_folder(ledger.folder, trial.key) / MODEL).exists()
    ]
    return (trials or ledger.seeds_of(scope_key(scope, setting.key)))[0]


def register_best(
    tracker: Tracker, plan: SweepPlan, best: Entry, folder: Path, run_id: str, stop: StopRequest
) -> str:
    """Exports the training `best` in `folder` and registers it as a version of the experiment's model.

    The version gets the alias `best` unless the model that has it is at least as good. Returns a line for the
    user. A signal interrupts the export, which then leaves no files, but not the registration. Raises
    MlflowException or UserError if MLflow refuses the model, or the training's files or data have changed.
    """
    assert best.score is not None
    version = export_version(tracker, plan, best, folder, run_id, stop)
    fingerprint = tracker.client.get_run(run_id).data.tags[Tag.FINGERPRINT]
    job = flatten(dump_job(plan.search_job())) | {Tag.FINGERPRINT.value: fingerprint}
    searched_keys = (*plan.searched_keys, *plan.space.posthoc, *plan.posthoc_keys)
    score = Score(plan.score, best.score, plan.space.mode, job, searched_keys)
    return move_best(tracker, plan.job.experiment, version, score)


def export_version(
    tracker: Tracker, plan: SweepPlan, best: Entry, folder: Path, run_id: str, stop: StopRequest
) -> str:
    """Exports a training, logs the export to its MLflow run, and returns the registered version's number."""
    from mlcl.tracking.pyfunc import log_export  # imports pandas and MLflow's models

    job, name = load_job(best.job), plan.job.experiment
    settings = [(markdown(key), markdown(str(value))) for key, value in (best.settings | best.chosen).items()]
    description = f"{best.label} of sweep {plan.name}: {plan.score} {best.score:.4f}\n\n" + markdown_table(
        ("searched", ""), settings, left=(0, 1)
    )
    source = {"experiment": name, "name": f"{best.label} of {plan.name}", "run_id": run_id}
    source["seed"] = str(job.train.seed)
    with TemporaryDirectory(prefix="mlcl-") as scratch:
        target = Path(scratch) / "model"
        with stop.interruptible():
            index = write_export(target, folder, JobData.of(job, tracker.home, verify=False), source)
            model = log_export(tracker, run_id, target, index, job.encoder.name)
        return register_version(tracker, model, index, name, description)
