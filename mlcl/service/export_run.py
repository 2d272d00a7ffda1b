"""Exports the model of a run: downloads the run from MLflow and prepares its data set again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from mlflow.entities import Run

from mlcl.config import load_job
from mlcl.errors import UserError
from mlcl.files import lock_folder
from mlcl.results.documents import read_sweep, read_table
from mlcl.results.model_evidence import model_evidence
from mlcl.results.runs import GROUPS, HOW_TO_KEEP, Runs, kind
from mlcl.tracking import State, Tracker
from mlcl.tracking.names import VERSION_TAG, Tag
from mlcl.tracking.pyfunc import register_export
from mlcl.tracking.registry import check_name
from mlcl.training.export import Index, write_export
from mlcl.training.export.hub import check_push, push_folder
from mlcl.training.export.model_writer import check_formats
from mlcl.training.job_data import JobData
from mlcl.training.run_files import EMBEDDINGS, JOB, MODEL, RESULT

MODELS = "models"
"""The name of the folder of exported models in the home."""
ALIAS = "champion"
"""The default alias of a registered version."""
TAGS = {"name": Tag.ID, "seed": Tag.SEED, "code": Tag.COMMIT, "trained_with": f"{VERSION_TAG}mlcl"}
"""Maps entries about the run, in an exported model's index and README, to the run's tags."""


@dataclass(frozen=True)
class ExportResult:
    """An exported model and its run; `folder` is None if no folder is kept.

    `registered` is a line with the registered version, and `pushed` the address of the repository on the hub;
    both are None if that was not asked for.
    """

    folder: Path | None
    run_id: str
    index: Index
    registered: str | None
    pushed: str | None


def export_run(
    tracker: Tracker,
    word: str,
    to: Path | None = None,
    register: str | None = None,
    alias: str = ALIAS,
    *,
    formats: Sequence[str] = (),
    push: str | None = None,
    public: bool = False,
) -> ExportResult:
    """Exports the model of the run that `word` names; for a sweep, the best seed of its best setting.

    Args:
        tracker: The tracking store.
        word: A run or a sweep, see `model_run`.
        to: The folder; default: `models/RUN_ID` in the home, or none if the model is registered or pushed.
        register: The name under which the model is also registered in MLflow, with `alias`.
        formats: Further formats, see `check_formats`.
        push: The repository of the Hugging Face Hub that the folder is sent to; `public` allows a public one.

    Raises:
        UserError: No run with a model is found, its data changed, the folder exists, MLflow or the hub refuse
            a name, or a format would not be exact.
    """
    if register is not None:
        check_name(register, alias)
    if push is not None:
        check_push(push)
    runs = Runs(tracker)
    run = model_run(runs, word)
    run_id = str(run.info.run_id)
    with TemporaryDirectory(prefix="mlcl-") as scratch:
        target_folder = to if to is not None or register or push else tracker.home / MODELS / run_id
        # The card names the folder.
        folder = target_folder or Path(scratch) / "export" / (push or run_id).rpartition("/")[2]
        if folder.exists():
            raise UserError("already exists", file=folder, key="--to")
        for name in (RESULT, EMBEDDINGS, MODEL):
            runs.download_artifact(run, name, Path(scratch))
        job = load_job(Path(scratch) / MODEL / JOB)
        check_formats(formats, job)
        job_data = JobData.of(job, tracker.home, is_recorded=True)
        with lock_folder(folder, tracker.home / MODELS):
            evidence = _provenance(runs, run), _evidence(runs, run)
            index = write_export(folder, Path(scratch), job_data, *evidence, formats)
        registered = pushed = None
        if register is not None:
            encoder = "features" if job.baseline is not None else job.encoder.name
            registered = register_export(tracker, run_id, folder, index, encoder, register, alias)
        if push is not None:
            pushed = push_folder(folder, push, public=public)
    return ExportResult(target_folder, run_id, index, registered, pushed)


def model_run(runs: Runs, word: str) -> Run:
    """Returns the complete run with a model that `word` names; for a sweep, the run of its best training.

    `word` is MLflow's id of a run, its id in mlcl, or the name or id of a sweep. Raises UserError if there is
    no such run, if several are complete, or if the run is not complete or left no model.
    """
    matches = runs.find_named(word)
    if not matches:
        runs.check_trash(word)
        raise UserError(
            f"names no run and no sweep{runs.hint(word, ('sweep',))}",
            key="RUN",
            found=word,
            allowed="MLflow's id of a run, a run's own id, a sweep's name or id",
        )
    sweeps = [run for run in matches if kind(run) == "sweep"]
    run = _best_run(runs, sweeps, word) if sweeps else _single_run(matches, word)
    state = run.data.tags.get(Tag.STATE)
    if state != State.COMPLETE:
        raise UserError("not a complete run", key="RUN", found=f"{word} ({state})", allowed=State.COMPLETE)
    if not (runs.has_artifact(run, MODEL) and runs.has_artifact(run, EMBEDDINGS)):
        raise UserError(
            "this run left no model", key="RUN", found=f"{word} ({kind(run)})", allowed=_hint(runs, run)
        )
    return run


def _best_run(runs: Runs, sweeps: Sequence[Run], word: str) -> Run:
    """Returns the run of the best training of the first sweep that has one. Raises UserError if none has."""
    for sweep in sweeps:
        training = read_sweep(runs, sweep).best_training
        best = None if training is None or training.run_id is None else runs.get(training.run_id)
        if best is not None:
            return best
    raise UserError("this sweep has no best trial", key="RUN", found=word)


def _single_run(runs: Sequence[Run], word: str) -> Run:
    complete_runs = [run for run in runs if run.data.tags.get(Tag.STATE) == State.COMPLETE]
    if len(complete_runs) > 1:
        ids = [str(run.info.run_id) for run in complete_runs]
        raise UserError("names several runs", key="RUN", found=word, allowed=ids)
    return complete_runs[0] if complete_runs else runs[0]


def _hint(runs: Runs, run: Run) -> str:
    parent = runs.get(run.data.tags.get(Tag.PARENT, ""))
    holds_seeds = kind(run) == "confirmation" and (parent is None or kind(parent) in GROUPS)
    if kind(run) in GROUPS or holds_seeds:
        return "one of the runs that it holds"
    return f"a run with {MODEL}/ and {EMBEDDINGS} among its artifacts; in a sweep {HOW_TO_KEEP}"


def _provenance(runs: Runs, run: Run) -> dict[str, str]:
    experiment = runs.tracker.client.get_experiment(run.info.experiment_id).name
    origin = {name: run.data.tags[tag] for name, tag in TAGS.items() if tag in run.data.tags}
    return {"experiment": str(experiment), "run_id": str(run.info.run_id), **origin}


def _evidence(runs: Runs, run: Run) -> str:
    """Returns the results on fresh seeds of the run's sweep or table, as Markdown; empty for other runs."""
    group: Run | None = run
    while group is not None and kind(group) not in GROUPS:
        group = runs.get(group.data.tags.get(Tag.PARENT, ""))
    if group is None:
        return ""
    read_results = read_sweep if kind(group) == "sweep" else read_table
    try:
        return model_evidence(read_results(runs, group), str(run.info.run_id))
    except UserError:  # the sweep or table has stored no result yet
        return ""
