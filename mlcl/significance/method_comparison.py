"""Compares methods over several data sets: their ranks, and tests against a control."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mlcl.significance.paired_tests import LEVEL, Paired, compare_paired, holm
from mlcl.significance.rank_tests import LEAST, RankTest, bayesian_signed_rank, rank_test

Seeds = Mapping[int, float]
"""The values of a metric in one cell, keyed by the seed."""
Cells = Mapping[tuple[str, str], Seeds]
"""The complete cells, keyed by (method, data set)."""


@dataclass(frozen=True)
class AgainstControl:
    """A method compared with the control.

    `paired` compares the means over seeds, with one pair for each data set and the control as A. `p` is the
    p-value of the exact Wilcoxon signed-rank test, `adjusted` is `p` with Holm's correction over all methods.
    `bayes` has the probabilities that the method is practically worse, equal and better; None without a
    `rope` (see `MethodComparison`).
    """

    method: str
    paired: Paired
    p: float
    adjusted: float
    bayes: tuple[float, float, float] | None = None

    @property
    def decided(self) -> bool:
        """Whether the difference is significant: the adjusted p-value is at most 0.05."""
        return self.adjusted <= 1 - LEVEL


@dataclass(frozen=True)
class MethodComparison:
    """The comparison of several methods over several data sets in one metric.

    Attributes:
        metric: The name of the metric; with `higher`, larger values are better.
        methods: The compared methods.
        data_sets: The data sets, for which every compared method has a cell.
        left_out: The methods and data sets that were left out because cells are missing.
        test: The ranks, in the order of `methods`, and the Friedman test.
        control: The method with which the others are compared.
        against: The comparison of each other method with the control.
        rope: The largest difference without practical importance; None if the Bayesian test is not asked for.
        digits: The number of decimals that are shown.
        not_compared: The methods that the caller left out.
    """

    metric: str
    higher: bool
    methods: tuple[str, ...]
    data_sets: tuple[str, ...]
    left_out: tuple[str, ...]
    test: RankTest
    control: str
    against: tuple[AgainstControl, ...]
    rope: float | None = None
    digits: int = 2
    not_compared: tuple[str, ...] = ()


def complete_part(
    cells: Cells, methods: Sequence[str], data_sets: Sequence[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns the methods and data sets that remain when each pair of them must have a cell.

    The method or data set that lacks the largest fraction of its cells is dropped, repeatedly, until no cell
    is missing. Of equal fractions a data set is dropped before a method, and the last one first.
    """
    rows, columns = list(methods), list(data_sets)
    while rows and columns:
        missing_shares = [(sum((row, column) not in cells for row in rows) / len(rows), 1, index)
                          for index, column in enumerate(columns)]  # fmt: skip
        missing_shares += [(sum((row, column) not in cells for column in columns) / len(columns), 0, index)
                           for index, row in enumerate(rows)]  # fmt: skip
        share, is_data_set, index = max(missing_shares)
        if not share:
            break
        del (columns if is_data_set else rows)[index]
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
    """Compares the methods that are not in `leave_out` over the data sets, as far as cells are complete.

    Methods and data sets are dropped as in `complete_part`. Returns None if fewer than three methods or three
    data sets remain, or the control was dropped.
    """
    candidates = [method for method in methods if method not in leave_out]
    rows, columns = complete_part(cells, candidates, data_sets)
    if min(len(rows), len(columns)) < LEAST or control not in rows:
        return None
    means = {row: [statistics.fmean(cells[row, column].values()) for column in columns] for row in rows}
    return MethodComparison(
        metric=metric,
        higher=higher,
        methods=rows,
        data_sets=columns,
        left_out=tuple(name for name in (*candidates, *data_sets) if name not in (*rows, *columns)),
        test=rank_test([means[row] for row in rows], higher=higher),
        control=control,
        against=_compare_with_control(means, control, rope, higher=higher),
        rope=rope,
        digits=digits,
        not_compared=tuple(method for method in methods if method in leave_out),
    )


def _compare_with_control(
    means: Mapping[str, Sequence[float]], control: str, rope: float | None, *, higher: bool
) -> tuple[AgainstControl, ...]:
    other_methods = [method for method in means if method != control]
    pairs = [compare_paired(means[control], means[method]) for method in other_methods]
    # If all differences are equal, so are all ranks, and the sign-flip test gives the p-value of both.
    p_values = [pair.p if pair.wilcoxon is None else pair.wilcoxon for pair in pairs]
    comparisons = []
    for method, pair, p_value, adjusted in zip(other_methods, pairs, p_values, holm(p_values), strict=True):
        sign = 1 if higher else -1
        gains = [sign * (x - y) for x, y in zip(means[method], means[control], strict=True)]
        bayes = None if rope is None else bayesian_signed_rank(gains, rope)
        comparisons.append(AgainstControl(method, pair, p_value, adjusted, bayes))
    return tuple(comparisons)
