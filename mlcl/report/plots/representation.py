"""t-SNE plots of the embeddings that runs logged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from mlcl.errors import UserError
from mlcl.report.plots import neighbourhood, tsne
from mlcl.report.plots.plot import PlotCollection, build_plots
from mlcl.training.job_data import JobData
from mlcl.training.stored_run import StoredRun


def representation_plots(
    folders: Mapping[str, Path],
    job_data: JobData,
    *,
    seed: int = 0,
    classes: Sequence[str] = (),
    instance: str | None = None,
) -> PlotCollection:
    """t-SNE of test rows, and of one test row with its neighbours.

    `folders`: the folder of a run of each setting, or of its artifacts. Validation rows are drawn where not
    all have read the test split. `classes` and the row of id `instance` are drawn; by default frequent
    classes and a random row. All runs must have the data `job_data`. Raises UserError for an unknown one.
    """
    runs, left = dict[str, StoredRun](), list[tuple[str, str]]()
    for setting, folder in folders.items():
        try:
            runs[setting] = StoredRun.read(folder, job_data, test=False)
        except UserError as error:
            left.append((f"embeddings of {setting}", error.problem))
    if not runs:
        return [], left
    split = "test" if all(run.tested for run in runs.values()) else "validation"
    plots, reasons = build_plots(
        {
            tsne.NAME: lambda: tsne.tsne_plot(runs, split, classes, seed=seed),
            neighbourhood.NAME: lambda: neighbourhood.neighbourhood_plot(runs, split, instance, seed=seed),
        }
    )
    return plots, left + reasons
