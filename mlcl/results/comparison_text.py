"""Renders a comparison of settings as Markdown, LaTeX and JSON, and its table as cells of text."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from typing import Any

from mlcl import markup
from mlcl.results.compared_setting import ComparedSetting
from mlcl.results.comparison import NEIGHBOURS, Comparison, ComparisonRow
from mlcl.significance.verdict import DIGITS, Conclusion

HEADS = (
    "setting", "seeds", "mean ± sd", "difference", "interval", "searches, seeds, rows", "verdict",
)  # fmt: skip
LEFT = (0, len(HEADS) - 1)
RANKS = (0, 5, 2, 0, 1, 6, 0)
"""The order in which a narrow terminal drops the columns: the largest number first; 0 is never dropped."""
MOST_KEYS = 6
"""The largest number of job keys that a note lists; `--json` lists all of them."""


def as_markdown(comparison: Comparison) -> str:
    """Returns the comparison's title, table and notes as Markdown."""
    rows = [[markup.markdown(cell) for cell in cells] for cells in grid(comparison)]
    table = markup.markdown_table(HEADS, rows, LEFT)
    remarks = [markup.markdown(note) for note in notes(comparison)]
    return "\n\n".join([f"**{markup.markdown(title(comparison))}**", table, *remarks])


def as_latex(comparison: Comparison) -> str:
    """Returns the comparison as a LaTeX table for booktabs, with the notes in its caption."""
    rows = [[markup.latex(cell) for cell in cells] for cells in grid(comparison)]
    caption = markup.latex(" ".join([title(comparison) + ".", *notes(comparison)]))
    return markup.latex_table(caption, [markup.latex(head) for head in HEADS], rows, LEFT)


def as_dict(comparison: Comparison) -> dict[str, Any]:
    """Returns the comparison as a dict for JSON, with all numbers and the id of every run."""
    return {
        "metric": comparison.metric,
        "mode": comparison.mode,
        "reference": _setting_dict(comparison.reference, comparison.metric),
        "others": [
            _setting_dict(row.setting, comparison.metric)
            | {"verdict": row.verdict.as_dict(), "unpaired_seeds": row.unpaired, "differs": row.differs}
            for row in comparison.rows
        ],
        "left_out": comparison.left_out,
        "other_draws": comparison.other_draws,
    }


def notes(comparison: Comparison) -> list[str]:
    """Returns the sentences below the table.

    For each setting: its verdict, the job keys in which it differs from the reference, and its unpaired
    seeds. Several fitted baselines with the same decided answer share one sentence. Then remarks on fitted
    baselines, the picks of joined searches, and settings with several names.
    """
    lines = []
    shared_rows = _tied_baselines(comparison)
    for row in comparison.rows:
        if row not in shared_rows:
            lines.append(row.verdict.sentence)
        if row.differs and not row.setting.is_fitted:
            lines.append(f"{row.setting.label} differs in {_join_keys(row.differs)}.")
        if row.unpaired:
            seeds = ", ".join(map(str, row.unpaired))
            lines.append(f"{row.setting.label}: seeds without a partner, not in the difference: {seeds}.")
    for answer in dict.fromkeys(row.answer for row in shared_rows):
        names = _join_keys(tuple(row.setting.label for row in shared_rows if row.answer == answer))
        no_difference = answer == Conclusion.NO_DIFFERENCE
        claim = "make no difference to" if no_difference else f"are {answer} than"
        lines.append(f"Fitted baselines that {claim} {comparison.reference.label}: {names}.")
    settings = (comparison.reference, *(row.setting for row in comparison.rows))
    fitted_labels = tuple(setting.label for setting in settings if setting.is_fitted)
    if fitted_labels and comparison.metric.startswith(NEIGHBOURS):
        lines.append(
            f"{_join_keys(fitted_labels)}: without neighbours, which a fitted baseline does not have."
        )
    if comparison.left_out:
        lines.append(
            f"Left out, for a fitted baseline has no {comparison.metric}: {_join_keys(comparison.left_out)}."
        )
    if comparison.other_draws:
        names = _join_keys(comparison.other_draws, "; ")  # such as `control, search 2, as written`
        lines.append(f"Left out, for they are of other draws from the data: {names}.")
    lines += [f"{setting.label} found {'; '.join(setting.picks)}." for setting in settings if setting.picks]
    aliased_settings = (setting for setting in settings if len(setting.names) > 1)
    return lines + [
        f"{' = '.join(setting.names)}: one setting, with no difference to test."
        for setting in aliased_settings
    ]


def _tied_baselines(comparison: Comparison) -> list[ComparisonRow]:
    """Returns the fitted baselines whose answer is decided and equals that of another fitted baseline."""
    decided = [
        row
        for row in comparison.rows
        if row.setting.is_fitted and row.verdict.answer is not Conclusion.CANNOT_TELL
    ]
    counts = Counter(row.answer for row in decided)
    return [row for row in decided if counts[row.answer] > 1]


def _join_keys(keys: tuple[str, ...], divider: str = ", ") -> str:
    more = len(keys) - MOST_KEYS
    return divider.join(keys[:MOST_KEYS]) + (f" and {more} more" if more > 0 else "")


def title(comparison: Comparison) -> str:
    """Returns the title of the table: the metric, the reference, and whether higher or lower is better."""
    better = {"max": " (higher is better)", "min": " (lower is better)", None: ""}[comparison.mode]
    return f"{comparison.metric} against {comparison.reference.label}{better}"


def grid(comparison: Comparison) -> list[list[str]]:
    """Returns the table as rows of text, the reference first, with the columns of `HEADS`."""
    reference, metric = comparison.reference, comparison.metric
    reference_row = [
        reference.label,
        _format_seeds(reference),
        _format_mean(reference, metric),
        "",
        "",
        "",
        "reference",
    ]
    return [reference_row, *(_row_cells(row, metric) for row in comparison.rows)]


def _row_cells(row: ComparisonRow, metric: str) -> list[str]:
    verdict = row.verdict
    interval, shares = "", ""
    if verdict.interval is not None:
        interval = f"{verdict.interval[0]:+.{DIGITS}f} to {verdict.interval[1]:+.{DIGITS}f}"
        shares = ", ".join(f"{verdict.shares[part]:.0%}" for part in ("searches", "seeds", "rows"))
    seeds = (
        f"{verdict.treated.trainings} of {_format_seeds(row.setting)}"
        if row.unpaired
        else _format_seeds(row.setting)
    )
    return [
        row.setting.label, seeds, _format_mean(row.setting, metric), f"{verdict.difference:+.{DIGITS}f}",
        interval, shares, row.answer,
    ]  # fmt: skip


def _format_seeds(setting: ComparedSetting) -> str:
    """Returns the number of a setting's seeds, and of its searches if it has several: `6 in 2 searches`."""
    searches = f" in {len(setting.searches)} searches" if len(setting.searches) > 1 else ""
    return f"{len(setting.runs)}{searches}"


def _format_mean(setting: ComparedSetting, metric: str) -> str:
    """Returns mean ± standard deviation over all seeds of a setting; empty where a value is not finite."""
    values = [run.metrics[metric] for run in setting.runs.values()]
    if not all(map(math.isfinite, values)):
        return ""
    spread = f" ± {statistics.stdev(values):.{DIGITS}f}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.{DIGITS}f}{spread}"


def _setting_dict(setting: ComparedSetting, metric: str) -> dict[str, Any]:
    runs = {}
    for seed, run in setting.runs.items():
        value = run.metrics[metric]  # JSON has no NaN; a seed without a partner may have it
        runs[seed] = {"run_id": run.run_id, "value": value if math.isfinite(value) else None}
    entry = {"label": setting.label, "names": " = ".join(setting.names), "word": setting.word, "runs": runs}
    return entry | {"searches": setting.searches, "picks": setting.picks}
