"""Plots of the embeddings that runs logged."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from mlcl.errors import UserError
from mlcl.report.plots.neighbours import neighbour_plots
from mlcl.report.plots.plot import PlotCollection
from mlcl.report.plots.representation import representation_plots
from mlcl.report.run_artifacts import JobDataCache, fetch_all
from mlcl.report.runs import Runs

MOST_SETTINGS = 3
"""Most settings whose embeddings are drawn."""
_NAME = "embeddings"


@dataclass(frozen=True)
class EmbeddingOptions:
    """What is drawn of embeddings: nothing with `quick`, `classes`, and the row of id `instance`.

    By default frequent classes and a random row. The plots need the data set, which may have to be prepared,
    and minutes.
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
        pictures, left = representation_plots(first, job_data, classes=classes, instance=instance)
        curves, more, chosen = neighbour_plots(folders, self.job_data_cache)
        self.knn |= chosen
        return [*curves, *pictures], [*more, *left]

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
