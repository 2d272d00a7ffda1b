"""Plots of the embeddings that runs logged."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from mlcl.errors import UserError
from mlcl.report.plots.collection import PlotCollection
from mlcl.report.plots.neighbours import neighbour_plots
from mlcl.report.plots.representation import representation_plots
from mlcl.report.run_artifacts import JobDataCache, fetch_all
from mlcl.report.runs import Runs

MOST_SETTINGS = 3
"""Most settings whose embeddings are drawn."""
_NAME = "embeddings"


@dataclass
class EmbeddingPlots:
    """Draws the embeddings of settings. `scratch` holds the files that are downloaded.

    With `quick` nothing is drawn: the plots need the data set, which may have to be prepared, and minutes.
    `classes` and the row of id `instance` are shown; by default frequent classes and a random row.
    """

    runs: Runs
    job_data_cache: JobDataCache
    scratch: Path
    quick: bool
    announce: Callable[[str], None]
    classes: Sequence[str] = ()
    instance: str | None = None
    _announced: bool = field(default=False, init=False)

    def __call__(self, ids: Mapping[str, Sequence[str]]) -> PlotCollection:
        """Curves over all seeds and pictures of the first seed, for settings with the ids of their runs.

        The runs at one position of all settings must have the same data. Raises UserError for an unknown
        class or row.
        """
        if self.quick:
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
        pictures, left = representation_plots(first, job_data, classes=self.classes, instance=self.instance)
        curves, more = neighbour_plots(folders, self.job_data_cache)
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
    *,
    quick: bool = False,
    classes: Sequence[str] = (),
    instance: str | None = None,
) -> Iterator[EmbeddingPlots]:
    """Yields the plotter; deletes its downloads on exit."""
    with TemporaryDirectory(prefix="mlcl-") as scratch:
        yield EmbeddingPlots(runs, JobDataCache(home), Path(scratch), quick, announce, classes, instance)
