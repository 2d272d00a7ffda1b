"""Renders a comparison of methods over data sets as sentences and tables of plain text."""

from __future__ import annotations

import math
from dataclasses import asdict
from itertools import combinations
from typing import Any

from mlcl.significance.method_comparison import AgainstControl, MethodComparison
from mlcl.significance.paired_tests import LEVEL, smallest_p

RISK = 1 - LEVEL


def sentences(its: MethodComparison) -> list[str]:
    """Returns sentences with the outcome of the Friedman and Nemenyi tests, and what would decide."""
    found = [_friedman(its), _nemenyi(its), _open(its)]
    if its.left_out:
        found.append(f"Left out, for they lack cells: {', '.join(its.left_out)}.")
    if its.not_compared:
        found.append(f"Not compared, as the table asks: {', '.join(its.not_compared)}.")
    return [sentence for sentence in found if sentence]


def tables(its: MethodComparison) -> list[dict[str, Any]]:
    """Returns a list with one table: the methods by rank, with their tests against the control.

    The table has `heads`, the heads of its columns, and `rows`, tuples of plain text.
    """
    heads = ["method", "average rank", f"difference from {its.control}", f"{LEVEL:.0%} interval"]
    heads += ["p (Wilcoxon)", "p (Holm)", "further data sets"]
    heads += [] if its.rope is None else ["P(worse)", f"P(within {its.rope:g})", "P(better)"]
    against = {each.method: each for each in its.against}
    rows = [_rank_row(its, place, against.get(its.methods[place]), len(heads)) for place in _by_rank(its)]
    return [{"heads": tuple(heads), "rows": tuple(rows)}]


def as_dict(its: MethodComparison) -> dict[str, Any]:
    """Returns the comparison as a dict for JSON, with its sentences and tables."""
    test = asdict(its.test) | {"groups": [list(group) for group in its.test.groups]}
    tree = asdict(its) | {"test": test, "sentences": sentences(its), "tables": tables(its)}
    return {key: _finite(value) for key, value in tree.items()}


def _finite(value: Any) -> Any:
    """Replaces NaN and infinity by None in a value and in the values of a dict, since JSON has neither."""
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _by_rank(its: MethodComparison) -> list[int]:
    return sorted(range(len(its.methods)), key=lambda place: its.test.ranks[place])


def _friedman(its: MethodComparison) -> str:
    test, k = its.test, len(its.methods)
    best = its.methods[_by_rank(its)[0]]
    return (
        f"{its.metric} of {k} methods over {test.n} data sets ({', '.join(its.data_sets)}): the best average "
        f"rank, {min(test.ranks):.2f}, has {best}. Friedman test: chi2({k - 1}) = {test.chi2:.2f}, "
        f"p = {test.p:.3g}; Iman and Davenport: F({k - 1}, {(k - 1) * (test.n - 1)}) = {test.f:.2f}, "
        f"p = {test.f_p:.3g}."
    )


def _nemenyi(its: MethodComparison) -> str:
    test = its.test
    if test.f_p > RISK:
        return "So it is not decided whether the methods differ at all, and pairs are not compared by rank."
    pairs = list(combinations(_by_rank(its), 2))
    apart = [pair for pair in pairs if test.differ(*pair)]
    return (
        f"By Nemenyi's test methods differ (p < 0.05) where their average ranks are "
        f"{test.critical_difference:.2f} apart: {len(apart)} of {len(pairs)} pairs."
    )


def _open(its: MethodComparison) -> str:
    """Returns a sentence on how many more data sets would decide which of two methods is better.

    They are the best method and the control, or the two best methods if the control is the best. The sentence
    is empty if the Nemenyi test decides already.
    """
    test, order, m = its.test, _by_rank(its), len(its.against)
    control = its.methods.index(its.control)
    best, other = order[0], (order[1] if order[0] == control else control)
    if test.f_p <= RISK and test.differ(best, other):
        return ""
    needed = test.data_sets_to_differ(best, other)
    least = next((n for n in range(1, 64) if smallest_p(n) <= RISK / m), 0)
    if needed is None:
        said = "no number of data sets like these, for their average ranks are equal"
    else:
        more = needed - test.n
        said = f"{more} more data set{'' if more == 1 else 's'} with the same average ranks"
        if least > test.n:
            said += (
                f"; Wilcoxon's test with Holm's correction over {m} methods needs at least {least} data sets"
            )
    return f"What would decide between {its.methods[best]} and {its.methods[other]}: {said}."


def _rank_row(its: MethodComparison, place: int, each: AgainstControl | None, width: int) -> tuple[str, ...]:
    first = (its.methods[place], f"{its.test.ranks[place]:.2f}")
    if each is None:
        return (*first, "control", *[""] * (width - 3))
    form, interval = f"+.{its.digits}f", each.paired.interval
    further = each.paired.further_seeds(len(its.against), each.p)
    return (
        *first,
        f"{each.paired.difference:{form}}",
        "" if interval is None else f"{interval[0]:{form}} to {interval[1]:{form}}",
        f"{each.p:.3g}",
        f"{each.adjusted:.3g}",
        "decided" if each.decided else "unknown" if further is None else str(further),
        *(f"{share:.2f}" for share in each.bayes or ()),
    )
