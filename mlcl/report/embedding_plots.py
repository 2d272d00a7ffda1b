"""Plots of the embeddings that runs logged: t-SNE of test rows, curves over settings of the neighbours."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from mlcl.errors import UserError
from mlcl.report.plots import tsne
from mlcl.report.plots.charts import PlotCollection, build_plots
from mlcl.report.plots.knn_plots import neighbour_plots
from mlcl.results.knn_scores import JobDataCache, fetch_all
from mlcl.results.runs import Runs
from mlcl.training.job_data import JobData
from mlcl.training.stored_run import StoredRun

MOST_SETTINGS = 3
"""Most settings whose embeddings are drawn."""
_NAME = "embeddings"


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
    runs, skipped = dict[str, StoredRun](), list[tuple[str, str]]()
    for setting, folder in folders.items():
        try:
            runs[setting] = StoredRun.read(folder, job_data, test=False)
        except UserError as error:
            skipped.append((f"embeddings of {setting}", error.problem))
    if not runs:
        return [], skipped
    split = "test" if all(run.tested for run in runs.values()) else "validation"
    plots, reasons = build_plots(
        {
            tsne.TSNE_NAME: lambda: tsne.tsne_plot(runs, split, classes, seed=seed),
            tsne.NEIGHBOURHOOD_NAME: lambda: tsne.neighbourhood_plot(runs, split, instance, seed=seed),
        }
    )
    return plots, skipped + reasons


@dataclass(frozen=True)
class EmbeddingOptions:
    """Options of the plots of embeddings, which need the data set and minutes.

    Attributes:
        quick: Whether they are left out.
        classes: The classes whose rows are drawn; by default the frequent ones.
        instance: The id of the row that is drawn with its neighbours; by default a random row.
    """

    quick: bool = False
    classes: Sequence[str] = ()
    instance: str | None = None


DEFAULTS = EmbeddingOptions()


@dataclass
class EmbeddingPlots:
    """Draws the embeddings of settings. `scratch` holds the files that are downloaded.

    `knn` has the best k, lambda and tau of each setting that was drawn, by the mean over its seeds.
    """

    runs: Runs
    job_data_cache: JobDataCache
    scratch: Path
    announce: Callable[[str], None]
    options: EmbeddingOptions
    knn: dict[str, str] = field(default_factory=dict, init=False)
    _announced: bool = field(default=False, init=False)

    def __call__(self, ids: Mapping[str, Sequence[str]]) -> PlotCollection:
        """Curves over all seeds and pictures of the first seed, for settings with the ids of their runs.

        The runs at one position of all settings must have the same data. Raises UserError for an unknown
        class or row.
        """
        if self.options.quick:
            return [], [(_NAME, "left out by --quick")]
        if not ids:
            return [], [(_NAME, "no run is complete")]
        self._announce()
        try:
            folders = fetch_all(self.runs, ids, self.scratch)
            job_data = self.job_data_cache(next(iter(folders.values()))[0])
        except UserError as error:
            return [], [(_NAME, error.line())]
        first = {setting: seeds[0] for setting, seeds in folders.items()}
        classes, instance = self.options.classes, self.options.instance
        pictures, skipped = representation_plots(first, job_data, classes=classes, instance=instance)
        curves, more, chosen = neighbour_plots(folders, self.job_data_cache)
        self.knn |= chosen
        return [*curves, *pictures], [*more, *skipped]

    def _announce(self) -> None:
        if not self._announced:
            self.announce("plots of embeddings: the data set is opened, t-SNE takes a while")
        self._announced = True


@contextmanager
def embedding_plots(
    runs: Runs,
    home: Path,
    announce: Callable[[str], None],
    options: EmbeddingOptions = DEFAULTS,
) -> Iterator[EmbeddingPlots]:
    """Yields the plotter; deletes its downloads on exit."""
    with TemporaryDirectory(prefix="mlcl-") as scratch:
        yield EmbeddingPlots(runs, JobDataCache(home), Path(scratch), announce, options)
