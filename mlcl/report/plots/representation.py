"""Pictures of what runs have learnt, from the embeddings that they left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from mlcl.errors import UserError
from mlcl.report.plots import neighbourhood, tsne
from mlcl.report.plots.collection import Gathered, gather
from mlcl.training.job_data import JobData
from mlcl.training.stored_run import StoredRun


def representation_plots(
    folders: Mapping[str, Path],
    job_data: JobData,
    *,
    seed: int = 0,
    classes: Sequence[str] = (),
    instance: str | None = None,
) -> Gathered:
    """t-SNE of test rows, and of one of them with its neighbours; with what was left out and why.

    `folders` gives each setting the folder of one run, or of its artifacts. Where not all have read the test
    split, validation rows are shown. `classes` are drawn instead of a handful that is chosen, `instance` is
    the id of a row instead of a drawn one. `material` is that of any of the runs: all must have seen the same
    rows. Raises UserError for a class or an id that there is not.
    """
    runs, left = read_runs(folders, job_data)
    if not runs:
        return [], left
    split = "test" if all(run.tested for run in runs.values()) else "validation"
    plots, reasons = gather(
        {
            tsne.NAME: lambda: tsne.embedded_plot(runs, split, classes, seed=seed),
            neighbourhood.NAME: lambda: neighbourhood.neighbourhood_plot(runs, split, instance, seed=seed),
        }
    )
    return plots, left + reasons


def read_runs(
    folders: Mapping[str, Path], job_data: JobData
) -> tuple[dict[str, StoredRun], list[tuple[str, str]]]:
    """The runs that can be read, and why others cannot."""
    runs, left = {}, []
    for setting, folder in folders.items():
        try:
            runs[setting] = StoredRun.read(folder, job_data, test=False)
        except UserError as error:
            left.append((f"embeddings of {setting}", error.problem))
    return runs, left
