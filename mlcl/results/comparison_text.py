"""A comparison as Markdown, LaTeX and JSON, and the cells of its table as text."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from mlcl import markup
from mlcl.results.comparison import NEIGHBOURS, Comparison, ComparisonRow
from mlcl.results.settings import ComparedSetting
from mlcl.significance.paired_tests import LEVEL, holm, smallest_p

HEADS = (
    "setting", "seeds", "mean ± sd", "difference", f"{LEVEL:.0%} interval", "effect", "p (Holm)", "p (ranks)",
    "verdict",
)  # fmt: skip
LEFT = (0, len(HEADS) - 1)
RANKS = (0, 5, 2, 0, 1, 6, 3, 4, 0)
"""Which columns a narrow terminal leaves out: the largest first, never those of 0."""
DIGITS = 4
MOST_KEYS = 6
"""Most keys that a note names; `--json` has all."""


def as_markdown(found: Comparison) -> str:
    """Title, table and notes as Markdown."""
    rows = [[markup.markdown(cell) for cell in cells] for cells in grid(found)]
    table = markup.markdown_table(HEADS, rows, LEFT)
    remarks = [markup.markdown(note) for note in notes(found)]
    return "\n\n".join([f"**{markup.markdown(title(found))}**", table, *remarks])


def as_latex(found: Comparison) -> str:
    """A LaTeX table for booktabs, with the notes in its caption."""
    rows = [[markup.latex(cell) for cell in cells] for cells in grid(found)]
    caption = markup.latex(" ".join([title(found) + ".", *notes(found)]))
    return markup.latex_table(caption, [markup.latex(head) for head in HEADS], rows, LEFT)


def as_dict(found: Comparison) -> dict[str, Any]:
    """The comparison as JSON: every number, and the id of every run."""
    return {
        "metric": found.metric,
        "mode": found.mode,
        "level": LEVEL,
        "reference": _setting_dict(found.reference, found.metric),
        "others": [
            _setting_dict(row.setting, found.metric)
            | {"paired": asdict(row.paired), "paired_seeds": row.seeds, "unpaired_seeds": row.unpaired}
            | {"p_holm": row.p, "further_seeds": row.further, "verdict": row.verdict, "differs": row.differs}
            for row in found.rows
        ],
        "left_out": found.left_out,
    }


def notes(found: Comparison) -> list[str]:
    """Remarks below the table: on all settings, then differing keys, seeds and advice of each."""
    lines = general_notes(found)
    for row in found.rows:
        if row.differs:
            lines.append(f"{row.setting.label} differs in {_listed(row.differs)}.")
        if row.unpaired:
            seeds = ", ".join(map(str, row.unpaired))
            lines.append(f"{row.setting.label}: seeds without a partner, not in the difference: {seeds}.")
        if row.better is None and row.p is not None:
            lines.append(f"{row.setting.label}: {_advice(row)}")
    return lines


def general_notes(found: Comparison) -> list[str]:
    """Remarks on all settings: what the tests can reach, what is not tested or left out, equal settings."""
    tested = [row for row in found.rows if row.p is not None]
    lines = [smallest_p_note([row.paired.n for row in tested])] if tested else []
    fixed = tuple(row.setting.label for row in found.rows if row.p is None)
    if fixed:
        lines.append(f"Not tested, for no seed changes them or {found.reference.label}: {_listed(fixed)}.")
    methods = {row.paired.method for row in found.rows}
    if "t" in methods:
        lines.append("Fewer than five pairs: the interval takes the differences for normal.")
    compared = (found.reference, *(row.setting for row in found.rows))
    fitted = tuple(each.label for each in compared if each.is_fitted)
    if fitted and found.metric.startswith(NEIGHBOURS):
        lines.append(f"{_listed(fitted)}: without neighbours, which a fitted baseline does not have.")
    if found.left_out:
        lines.append(f"Left out, for a fitted baseline has no {found.metric}: {_listed(found.left_out)}.")
    several = (each for each in compared if len(each.names) > 1)
    return lines + [f"{_names(each)}: one setting, with no difference to test." for each in several]


def _names(setting: ComparedSetting) -> str:
    return " = ".join(setting.names)


def _listed(keys: tuple[str, ...]) -> str:
    more = len(keys) - MOST_KEYS
    return ", ".join(keys[:MOST_KEYS]) + (f" and {more} more" if more > 0 else "")


def title(found: Comparison) -> str:
    """The metric and the reference."""
    better = {"max": " (higher is better)", "min": " (lower is better)", None: ""}[found.mode]
    return f"{found.metric} against {found.reference.label}{better}"


def grid(found: Comparison) -> list[list[str]]:
    """The cells of the table as text, the reference first; columns as in `HEADS`."""
    reference, metric = found.reference, found.metric
    first = [reference.label, str(len(reference.runs)), _mean(reference, metric), *[""] * 5, "reference"]
    return [first, *(_cells(row, metric) for row in found.rows)]


def _cells(row: ComparisonRow, metric: str) -> list[str]:
    its, all_seeds = row.paired, len(row.setting.runs)
    interval = (
        "" if its.interval is None else f"{its.interval[0]:+.{DIGITS}f} to {its.interval[1]:+.{DIGITS}f}"
    )
    return [
        row.setting.label,
        str(its.n) if its.n == all_seeds else f"{its.n} of {all_seeds}",
        _mean(row.setting, metric),
        f"{its.difference:+.{DIGITS}f}",
        interval,
        "" if its.effect is None else f"{its.effect:+.2f}",
        "" if row.p is None else f"{row.p:.3g}",
        "" if its.wilcoxon is None else f"{its.wilcoxon:.3g}",
        row.verdict,
    ]


def _mean(setting: ComparedSetting, metric: str) -> str:
    """Mean and deviation over all seeds of a setting; empty where one is no number."""
    values = [run.metrics[metric] for run in setting.runs.values()]
    if not all(map(math.isfinite, values)):
        return ""
    spread = f" ± {statistics.stdev(values):.{DIGITS}f}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.{DIGITS}f}{spread}"


def smallest_p_note(pairs: Sequence[int]) -> str:
    """A sentence on the smallest p that tests over so many pairs can reach after Holm's correction."""
    risk, count = 1 - LEVEL, f" over {len(pairs)} tests" if len(pairs) > 1 else ""
    p = holm([smallest_p(n) for n in pairs])
    few, many = (f"{n} pair{'' if n == 1 else 's'}" for n in (min(pairs), max(pairs)))
    low, high = f"{min(p):.3g}", f"{max(p):.3g}"
    said = few if few == many else f"{min(pairs)} to {many}"
    said += f" can reach p = {low if low == high else f'{low} to {high}'}{count}"
    if min(p) > risk:
        return f"{said}, never {risk:.2g}: more seeds are needed to decide anything."
    return f"{said}; some tests can never reach {risk:.2g}." if max(p) > risk else f"{said}."


def _advice(row: ComparisonRow) -> str:
    if row.paired.effect is None:
        return "these pairs do not tell how many seeds would decide."
    if row.further is None:
        return "were the effect as small as it seems, a thousand more seeds would not decide."
    return f"about {row.further} more seeds would decide, were the effect as large as it seems."


def _setting_dict(setting: ComparedSetting, metric: str) -> dict[str, Any]:
    values = {seed: run.metrics[metric] for seed, run in setting.runs.items()}
    runs = {  # JSON has no NaN; a seed without a partner may have it
        seed: {"run_id": run.run_id, "value": values[seed] if math.isfinite(values[seed]) else None}
        for seed, run in setting.runs.items()
    }
    return {"label": setting.label, "names": _names(setting), "word": setting.word, "runs": runs}
