"""Renders a comparison of methods over data sets as sentences and tables of plain text."""

from __future__ import annotations

import math
from dataclasses import asdict
from itertools import combinations
from typing import Any

from mlcl.significance.method_comparison import AgainstControl, MethodComparison
from mlcl.significance.paired_tests import LEVEL, smallest_p

RISK = 1 - LEVEL


def sentences(comparison: MethodComparison) -> list[str]:
    """Returns sentences with the outcome of the Friedman and Nemenyi tests, and what would decide."""
    parts = [_describe_friedman(comparison), _describe_nemenyi(comparison), _describe_undecided(comparison)]
    if comparison.left_out:
        parts.append(f"Left out, for they lack cells: {', '.join(comparison.left_out)}.")
    if comparison.not_compared:
        parts.append(f"Not compared, as the table asks: {', '.join(comparison.not_compared)}.")
    return [sentence for sentence in parts if sentence]


def tables(comparison: MethodComparison) -> list[dict[str, Any]]:
    """Returns a list with one table: the methods by rank, with their tests against the control.

    The table has `heads`, the heads of its columns, and `rows`, tuples of plain text.
    """
    heads = ["method", "average rank", f"difference from {comparison.control}", f"{LEVEL:.0%} interval"]
    heads += ["p (Wilcoxon)", "p (Holm)", "further data sets"]
    heads += [] if comparison.rope is None else ["P(worse)", f"P(within {comparison.rope:g})", "P(better)"]
    against = {entry.method: entry for entry in comparison.against}
    rows = [
        _rank_row(comparison, index, against.get(comparison.methods[index]), len(heads))
        for index in _order_by_rank(comparison)
    ]
    return [{"heads": tuple(heads), "rows": tuple(rows)}]


def as_dict(comparison: MethodComparison) -> dict[str, Any]:
    """Returns the comparison as a dict for JSON, with its sentences and tables."""
    test = asdict(comparison.test) | {"groups": [list(group) for group in comparison.test.groups]}
    tree = asdict(comparison) | {
        "test": test,
        "sentences": sentences(comparison),
        "tables": tables(comparison),
    }
    return {key: _replace_nonfinite(value) for key, value in tree.items()}


def _replace_nonfinite(value: Any) -> Any:
    """Replaces NaN and infinity by None in a value and in the values of a dict, since JSON has neither."""
    if isinstance(value, dict):
        return {key: _replace_nonfinite(item) for key, item in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _order_by_rank(comparison: MethodComparison) -> list[int]:
    return sorted(range(len(comparison.methods)), key=lambda index: comparison.test.ranks[index])


def _describe_friedman(comparison: MethodComparison) -> str:
    test, k = comparison.test, len(comparison.methods)
    best = comparison.methods[_order_by_rank(comparison)[0]]
    return (
        f"{comparison.metric} of {k} methods over {test.n} data sets ({', '.join(comparison.data_sets)}): "
        f"the best average rank, {min(test.ranks):.2f}, has {best}. Friedman test: "
        f"chi2({k - 1}) = {test.chi2:.2f}, p = {test.p:.3g}; Iman and Davenport: "
        f"F({k - 1}, {(k - 1) * (test.n - 1)}) = {test.f:.2f}, p = {test.f_p:.3g}."
    )


def _describe_nemenyi(comparison: MethodComparison) -> str:
    test = comparison.test
    if test.f_p > RISK:
        return "So it is not decided whether the methods differ at all, and pairs are not compared by rank."
    pairs = list(combinations(_order_by_rank(comparison), 2))
    differing = [pair for pair in pairs if test.differ(*pair)]
    return (
        f"By Nemenyi's test methods differ (p < 0.05) where their average ranks are "
        f"{test.critical_difference:.2f} apart: {len(differing)} of {len(pairs)} pairs."
    )


def _describe_undecided(comparison: MethodComparison) -> str:
    """Returns a sentence on how many more data sets would decide which of two methods is better.

    They are the best method and the control, or the two best methods if the control is the best. The sentence
    is empty if the Nemenyi test decides already.
    """
    test, order, m = comparison.test, _order_by_rank(comparison), len(comparison.against)
    control = comparison.methods.index(comparison.control)
    best, other = order[0], (order[1] if order[0] == control else control)
    if test.f_p <= RISK and test.differ(best, other):
        return ""
    n_needed = test.data_sets_to_differ(best, other)
    n_least = next((n for n in range(1, 64) if smallest_p(n) <= RISK / m), 0)
    if n_needed is None:
        answer = "no number of data sets like these, for their average ranks are equal"
    else:
        n_more = n_needed - test.n
        answer = f"{n_more} more data set{'' if n_more == 1 else 's'} with the same average ranks"
        if n_least > test.n:
            answer += (
                f"; Wilcoxon's test with Holm's correction over {m} methods needs at least "
                f"{n_least} data sets"
            )
    return f"What would decide between {comparison.methods[best]} and {comparison.methods[other]}: {answer}."


def _rank_row(
    comparison: MethodComparison, index: int, entry: AgainstControl | None, width: int
) -> tuple[str, ...]:
    cells = (comparison.methods[index], f"{comparison.test.ranks[index]:.2f}")
    if entry is None:
        return (*cells, "control", *[""] * (width - 3))
    form, interval = f"+.{comparison.digits}f", entry.paired.interval
    n_further = entry.paired.further_seeds(len(comparison.against), entry.p)
    return (
        *cells,
        f"{entry.paired.difference:{form}}",
        "" if interval is None else f"{interval[0]:{form}} to {interval[1]:{form}}",
        f"{entry.p:.3g}",
        f"{entry.adjusted:.3g}",
        "decided" if entry.decided else "unknown" if n_further is None else str(n_further),
        *(f"{share:.2f}" for share in entry.bayes or ()),
    )
