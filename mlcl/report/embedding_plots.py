"""Draws the embeddings that runs logged: t-SNE of test rows, and curves over k-NN parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from mlcl.errors import UserError
from mlcl.report.plots import tsne
from mlcl.report.plots.charts import PlotCollection, build_plots
from mlcl.report.plots.knn_plots import neighbour_plots
from mlcl.results.knn_scores import JobDataCache, fetch, has_embeddings
from mlcl.results.runs import HOW_TO_KEEP, Runs
from mlcl.training.job_data import JobData
from mlcl.training.stored_run import StoredRun

MOST_SETTINGS = 3
"""The largest number of settings whose embeddings are drawn."""
_NAME = "embeddings"


@dataclass(frozen=True)
class EmbeddingOptions:
    """Options of the plots of embeddings, which need the data set and take minutes.

    Attributes:
        quick: Whether to leave out these plots.
        classes: The classes whose rows are drawn; by default the frequent ones.
        instance: The id of the row that is drawn with its neighbours; by default a random row.
    """

    quick: bool = False
    classes: Sequence[str] = ()
    instance: str | None = None


DEFAULTS = EmbeddingOptions()


def representation_plots(
    folders: Mapping[str, Path], job_data: JobData, options: EmbeddingOptions = DEFAULTS, *, seed: int = 0
) -> PlotCollection:
    """Draws t-SNE plots of test rows, and of one test row with its neighbours; no plot for an unreadable run.

    `folders` has the folder of one run, or of its artifacts, for each setting; all runs must have the data
    `job_data`. Validation rows are drawn where a run has not evaluated the test split. Raises UserError for
    an unknown class or id.
    """
    runs, skipped = dict[str, StoredRun](), list[tuple[str, str]]()
    for setting, folder in folders.items():
        try:
            runs[setting] = StoredRun.read(folder, job_data, test=False)
        except UserError as error:
            skipped.append((f"embeddings of {setting}", error.problem))
    if not runs:
        return [], skipped
    split = "test" if all(run.tested for run in runs.values()) else "validation"
    points = partial(tsne.tsne_plot, runs, split, options.classes, seed=seed)
    neighbours = partial(tsne.neighbourhood_plot, runs, split, options.instance, seed=seed)
    plots, reasons = build_plots({tsne.TSNE_NAME: points, tsne.NEIGHBOURHOOD_NAME: neighbours})
    return plots, skipped + reasons


@dataclass
class EmbeddingPlots:
    """Draws the embeddings of settings; downloaded files go to the folder `scratch`.

    `knn` collects, for each setting drawn, the k, lambda and tau with the best mean over its seeds, in words.
    """

    runs: Runs
    job_data_cache: JobDataCache
    scratch: Path
    announce: Callable[[str], None]
    options: EmbeddingOptions
    knn: dict[str, str] = field(default_factory=dict, init=False)
    _announced: bool = field(default=False, init=False)

    def __call__(self, ids: Mapping[str, Sequence[str]]) -> PlotCollection:
        """Draws k-NN curves over all seeds, and t-SNE plots of the first seed, of each setting.

        `ids` has the ids of the runs of each setting, one for each seed. The first runs of all settings must
        have the same data, further ones as many rows of the same data set. Raises UserError for an unknown
        class or row.
        """
        if self.options.quick:
            return [], [(_NAME, "left out by --quick")]
        if not ids:
            return [], [(_NAME, "no run is complete and in MLflow")]
        if not self._announced:
            self.announce("plots of embeddings: the data set is opened, t-SNE takes a while")
        self._announced = True
        available_ids, missing = _find_embedded_runs(self.runs, ids)
        if not available_ids:
            return [], missing
        try:
            folders = {
                name: [fetch(self.runs, run_id, self.scratch) for run_id in run_ids]
                for name, run_ids in available_ids.items()
            }
            job_data = self.job_data_cache(next(iter(folders.values()))[0])
        except UserError as error:
            return [], [(_NAME, error.line())]
        first_folders = {setting: seeds[0] for setting, seeds in folders.items()}
        pictures, skipped = representation_plots(first_folders, job_data, self.options)
        curves, curve_reasons, best_points = neighbour_plots(folders, self.job_data_cache)
        self.knn |= best_points
        return [*curves, *pictures], [*missing, *curve_reasons, *skipped]


def _find_embedded_runs(
    runs: Runs, ids: Mapping[str, Sequence[str]]
) -> tuple[dict[str, list[str]], list[tuple[str, str]]]:
    """Returns each setting's runs that left embeddings, and a reason for each setting that lacks some."""
    available_ids = {
        setting: [run_id for run_id in run_ids if has_embeddings(runs, run_id)]
        for setting, run_ids in ids.items()
    }
    missing = [
        (
            f"embeddings of {setting}",
            f"{len(available_ids[setting])} of {len(run_ids)} runs left them; {HOW_TO_KEEP}",
        )
        for setting, run_ids in ids.items()
        if len(available_ids[setting]) < len(run_ids)
    ]
    return {setting: run_ids for setting, run_ids in available_ids.items() if run_ids}, missing


@contextmanager
def embedding_plots(
    runs: Runs, home: Path, announce: Callable[[str], None], options: EmbeddingOptions = DEFAULTS
) -> Iterator[EmbeddingPlots]:
    """Yields an `EmbeddingPlots`, whose downloads are deleted on exit."""
    with TemporaryDirectory(prefix="mlcl-") as scratch:
        yield EmbeddingPlots(runs, JobDataCache(home), Path(scratch), announce, options)
