"""Several searches as one source of trainings: they take turns, so that a budget cuts all of them alike."""

from __future__ import annotations

from collections.abc import Sequence

from mlcl.service.engine.entries import End, Entry
from mlcl.service.engine.source import TrainingSource
from mlcl.service.search.search_source import SearchSource


class SearchesSource(TrainingSource):
    """Interrupted trials of any search first, then a new one of the search that has drawn the fewest.

    The searches differ in their scopes; the first is the sweep's own.
    """

    stage = "search"
    test = False

    def __init__(self, searches: Sequence[SearchSource]) -> None:
        self._searches = {search.scope: search for search in searches}
        self.store, self.scores = searches[0].store, searches[0].scores

    def start(self) -> tuple[int, int]:
        """The sums over the searches."""
        counts = [search.start() for search in self._searches.values()]
        return sum(done for done, _ in counts), sum(total for _, total in counts)

    def next(self) -> Entry | None:
        """An interrupted trial, then a new one."""
        searches = self._searches.values()
        ordered = sorted(searches, key=lambda search: (not search.waits, search.drawn))
        return next((entry for search in ordered if (entry := search.next()) is not None), None)

    def prune(self, entry: Entry, epoch: int, score: float) -> bool:
        """What the search's own pruner says."""
        return self._searches[entry.scope].prune(entry, epoch, score)

    def complete(self, entry: Entry, values: list[float]) -> End:
        """What the search makes of it."""
        return self._searches[entry.scope].complete(entry, values)

    def closed(self, entry: Entry) -> None:
        """The search is told."""
        self._searches[entry.scope].closed(entry)

    def left(self) -> int:
        """Trials of all searches that have not ended yet."""
        return sum(search.left() for search in self._searches.values())
