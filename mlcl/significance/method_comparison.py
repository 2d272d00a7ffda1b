"""Methods compared over several data sets: ranks, a control against the others, wins and losses."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mlcl.significance.paired_tests import LEVEL, Paired, compare_paired, holm, paired_p
from mlcl.significance.rank_tests import LEAST, RankTest, bayesian_signed_rank, rank_test

Seeds = Mapping[int, float]
"""The figures of a cell by seed."""
Cells = Mapping[tuple[str, str], Seeds]
"""The complete cells by (method, data set)."""
Record = tuple[int, int, int]
"""On how many data sets a method wins, ties and loses against another."""


@dataclass(frozen=True)
class AgainstControl:
    """A method against the control: `paired` has a pair of means over seeds for each data set, control first.

    `p` is the Wilcoxon signed-rank test's, exact, `adjusted` with Holm's correction over all methods. `bayes`
    has the probabilities that the method is practically worse, equal and better; None without a rope.
    """

    method: str
    paired: Paired
    p: float
    adjusted: float
    bayes: tuple[float, float, float] | None = None

    @property
    def decided(self) -> bool:
        """Whether the corrected p is at most 0.05."""
        return self.adjusted <= 1 - LEVEL


@dataclass(frozen=True)
class MethodComparison:
    """A metric of several methods over several data sets.

    `test` has the ranks in the order of `methods`; `wins[i][j]` is the record of method i against j. A win is
    a data set on which the sign-flip test over the seeds that both have gives p <= 0.05 in the method's
    favour, uncorrected. `left_out` names the methods and data sets that lack a cell, `not_compared` the
    methods that the caller leaves out. `rope` is the difference that makes no practical difference.
    """

    metric: str
    higher: bool
    methods: tuple[str, ...]
    data_sets: tuple[str, ...]
    left_out: tuple[str, ...]
    test: RankTest
    control: str
    against: tuple[AgainstControl, ...]
    wins: tuple[tuple[Record, ...], ...]
    rope: float | None = None
    digits: int = 2
    not_compared: tuple[str, ...] = ()


def complete_part(
    cells: Cells, methods: Sequence[str], data_sets: Sequence[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Methods and data sets of which every pair has a cell.

    The one that lacks the largest share of its cells is left out until none lacks any; of equals a data set
    before a method, and the last one first.
    """
    rows, columns = list(methods), list(data_sets)
    while rows and columns:
        lacking = [(sum((row, column) not in cells for row in rows) / len(rows), 1, place)
                   for place, column in enumerate(columns)]  # fmt: skip
        lacking += [(sum((row, column) not in cells for column in columns) / len(columns), 0, place)
                    for place, row in enumerate(rows)]  # fmt: skip
        share, is_data_set, place = max(lacking)
        if not share:
            break
        del (columns if is_data_set else rows)[place]
    return tuple(rows), tuple(columns)


def compare_methods(
    metric: str,
    cells: Cells,
    methods: Sequence[str],
    data_sets: Sequence[str],
    *,
    higher: bool,
    control: str,
    rope: float | None = None,
    digits: int = 2,
    leave_out: Sequence[str] = (),
) -> MethodComparison | None:
    """Compares the methods, without those in `leave_out`, over the data sets for which all cells are there.

    None where fewer than three methods or three data sets are left, or not the control.
    """
    compared = [method for method in methods if method not in leave_out]
    rows, columns = complete_part(cells, compared, data_sets)
    if min(len(rows), len(columns)) < LEAST or control not in rows:
        return None
    means = {row: [statistics.fmean(cells[row, column].values()) for column in columns] for row in rows}
    return MethodComparison(
        metric=metric,
        higher=higher,
        methods=rows,
        data_sets=columns,
        left_out=tuple(name for name in (*compared, *data_sets) if name not in (*rows, *columns)),
        test=rank_test([means[row] for row in rows], higher=higher),
        control=control,
        against=_against(means, control, rope, higher=higher),
        wins=_records(cells, rows, columns, higher=higher),
        rope=rope,
        digits=digits,
        not_compared=tuple(method for method in methods if method in leave_out),
    )


def _against(
    means: Mapping[str, Sequence[float]], control: str, rope: float | None, *, higher: bool
) -> tuple[AgainstControl, ...]:
    others = [method for method in means if method != control]
    pairs = [compare_paired(means[control], means[method]) for method in others]
    # Where all differences are equal, the sign flips of ranks are those of the differences.
    p = [pair.p if pair.wilcoxon is None else pair.wilcoxon for pair in pairs]
    found = []
    for method, pair, own, adjusted in zip(others, pairs, p, holm(p), strict=True):
        sign = 1 if higher else -1
        gains = [sign * (x - y) for x, y in zip(means[method], means[control], strict=True)]
        bayes = None if rope is None else bayesian_signed_rank(gains, rope)
        found.append(AgainstControl(method, pair, own, adjusted, bayes))
    return tuple(found)


def _records(
    cells: Cells, methods: Sequence[str], data_sets: Sequence[str], *, higher: bool
) -> tuple[tuple[Record, ...], ...]:
    """Each pair is tested once: what one wins the other loses."""
    k = len(methods)
    net = {(i, j): [_outcome(cells[methods[i], name], cells[methods[j], name], higher=higher)
                    for name in data_sets] for i in range(k) for j in range(i)}  # fmt: skip

    def record(i: int, j: int) -> Record:
        sign, known = (1, net[i, j]) if i > j else (-1, net[j, i])
        return known.count(sign), known.count(0), known.count(-sign)

    return tuple(
        tuple((0, len(data_sets), 0) if i == j else record(i, j) for j in range(k)) for i in range(k)
    )


def _outcome(mine: Seeds, theirs: Seeds, *, higher: bool) -> int:
    """1, 0 or -1: a decided difference in favour, none, one against."""
    seeds = sorted(mine.keys() & theirs.keys())
    if not seeds:
        return 0
    a, b = [theirs[seed] for seed in seeds], [mine[seed] for seed in seeds]
    if paired_p(a, b) > 1 - LEVEL:
        return 0
    return 1 if (sum(b) > sum(a)) == higher else -1
