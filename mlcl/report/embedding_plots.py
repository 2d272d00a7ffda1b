"""Plots of what models have learnt, from the embeddings that their runs left."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from mlcl.errors import UserError
from mlcl.report.plots.collection import Gathered
from mlcl.report.plots.neighbours import neighbour_plots
from mlcl.report.plots.representation import representation_plots
from mlcl.report.run_artifacts import JobDataCache, fetch_all
from mlcl.report.runs import Runs

MOST_SETTINGS = 3
"""Settings whose embeddings are drawn beside each other."""
_NAME = "embeddings"


@dataclass
class EmbeddingPlots:
    """Draws settings by the ids of their runs, one a seed; those of one place saw the same rows.

    `quick` leaves it all out: it needs the data set, which is prepared where it is not there, and minutes.
    Pictures are of `classes` instead of a handful that is chosen, and of the row of id `instance` instead of
    a drawn one.
    """

    runs: Runs
    job_data_cache: JobDataCache
    scratch: Path
    quick: bool
    announce: Callable[[str], None]
    classes: Sequence[str] = ()
    instance: str | None = None
    _announced: bool = field(default=False, init=False)

    def __call__(self, ids: Mapping[str, Sequence[str]]) -> Gathered:
        """The neighbours' curves over all seeds, pictures of the first; what was left out, and why.

        Raises UserError for a class or an id that there is not.
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
    """What draws them, while inside: for as long it keeps the files of runs."""
    with TemporaryDirectory(prefix="mlcl-") as scratch:
        yield EmbeddingPlots(runs, JobDataCache(home), Path(scratch), quick, announce, classes, instance)
