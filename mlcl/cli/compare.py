"""`mlcl compare`, `mlcl posthoc` and `mlcl effect`: statistics of finished trainings."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mlcl.cli.options import DEFAULT_HOME, Home, Json, check_writable, local_names, metric_names
from mlcl.cli.output import boxed_table, fitted_table, print_json, results, tell
from mlcl.cli.runs import local_run, trial_keys
from mlcl.config import flatten, parse_override
from mlcl.errors import UserError, did_you_mean
from mlcl.files import replace_text
from mlcl.tracking import State

if TYPE_CHECKING:
    import pandas as pd

    from mlcl.results.posthoc import NeighbourCost
    from mlcl.results.training_result import TrainingResult

ROWS = 9
"""The number of values of the key that `mlcl effect` prints."""
BARS = "▏" + 16 * "█"
"""The bar that `mlcl effect` prints for the largest expected score."""
SCORE = "score"
WIDE_RANGE = 10.0
"""The ratio of a key's largest and smallest value from which on the logarithms of the values are used."""

What = Annotated[
    list[str],
    typer.Argument(
        metavar="WHAT...",
        autocompletion=local_names,
        help="Sweeps (all settings they confirmed), SWEEP:SETTING, run ids, or 'ROW, COLUMN' of a table.",
    ),
]
Metric = Annotated[
    str | None,
    typer.Option(
        "--metric",
        autocompletion=metric_names,
        help="test/micro_f1, or micro_f1: test before validation; default: the sweep's own goal.",
    ),
]


def compare(
    what: What,
    metric: Metric = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown.")] = False,
    latex: Annotated[bool, typer.Option("--latex", help="Print LaTeX.")] = False,
    json: Json = False,
    home: Home = DEFAULT_HOME,
) -> None:
    """Compare settings by a metric: difference, interval, verdict, and how many runs or rows would decide."""
    if markdown + latex + json > 1:
        raise UserError("one form at a time", key="--markdown, --latex, --json", found="several")
    from mlcl.results.comparison import compare_settings
    from mlcl.results.comparison_text import HEADS, RANKS, as_dict, as_latex, as_markdown, grid, notes, title
    from mlcl.results.runs import Runs
    from mlcl.results.settings import find_settings

    if metric == "":
        raise UserError("names no metric", key="--metric", found=metric)
    comparison = compare_settings(
        find_settings(Runs.open_quickly(home), what), metric or "", _jackknife_blocks
    )
    if json:
        print_json(as_dict(comparison))
    elif markdown or latex:
        typer.echo(as_markdown(comparison) if markdown else as_latex(comparison))
    else:
        results.print(fitted_table(HEADS, grid(comparison), title(comparison), ranks=RANKS))
        for line in notes(comparison):
            tell(line)


def _jackknife_blocks(folder: Path, names: Sequence[str]) -> Mapping[str, tuple[float, ...]]:
    """Returns the jackknife blocks of each test metric in `names`; none if the training's folder is gone."""
    test_names = [name for name in names if "test/" in name]
    if not test_names or not folder.is_dir():
        return {}
    from mlcl.training.row_predictions import blocks_of  # imports torch

    return blocks_of(folder, test_names)


def posthoc(
    what: What,
    csv: Annotated[Path | None, typer.Option("--csv", help="Write every point to this file.")] = None,
    cost: Annotated[
        bool, typer.Option("--cost", help="Measure size of the datastore and time a row, too.")
    ] = False,
    json: Json = False,
    home: Home = DEFAULT_HOME,
) -> None:
    """Score finished runs at every k, lambda and tau of the neighbours; choose the best on validation."""
    from mlcl.results.posthoc import measure_costs, score_posthoc
    from mlcl.results.runs import Runs
    from mlcl.results.settings import find_settings
    from mlcl.tracking import Tracker

    if csv is not None:
        check_writable(csv, "--csv")
    runs = Runs(Tracker.open_existing(home))
    settings = find_settings(runs, what)
    result = score_posthoc(runs, settings, home)
    costs = measure_costs(runs, settings, home) if cost else []
    if csv is not None:
        replace_text(csv, result.points.to_csv(index=False))
    if json:
        choices = result.chosen.astype(object).where(result.chosen.notna(), None)
        cost_entry = {"cost": [item._asdict() for item in costs]} if cost else {}
        print_json({"metric": result.metric, "chosen": choices.to_dict("records"), **cost_entry})
        return
    heads = ("setting", "seeds", "which", "k", "lambda", "tau", "threshold", "validation", "test")
    rows = [
        (str(setting), str(seeds), str(label), f"{k:g}", f"{share:g}", f"{tau:g}",
         "" if threshold != threshold else f"{threshold:.3g}", _format_figure(*figures[:2]),
         _format_figure(*figures[2:]))
        for setting, seeds, label, k, share, tau, threshold, *figures in result.chosen.itertuples(index=False)
    ]  # fmt: skip
    title = f"{result.metric} with neighbours: mean over the seeds; chosen on validation"
    results.print(boxed_table(heads, rows, title, right={*heads} - {"setting", "which"}))
    if costs:
        _print_costs(costs)


def _print_costs(costs: Sequence[NeighbourCost]) -> None:
    heads = ("setting", "datastore rows", "MB", "k", "ms a row, model", "with neighbours", "on")
    rows = [
        (cost.setting, str(cost.rows), f"{cost.bytes / 1e6:.2f}", str(cost.k), f"{cost.model_ms:.3f}",
         f"{cost.knn_ms:.3f}", cost.device)
        for cost in costs
    ]  # fmt: skip
    results.print(boxed_table(heads, rows, "cost of the neighbours", right={*heads} - {"setting", "on"}))


def _format_figure(mean: float, spread: float) -> str:
    if mean != mean:
        return ""
    return f"{mean:.4f}" + ("" if spread != spread else f" ± {spread:.4f}")


def effect(
    sweep: Annotated[str, typer.Argument(help="A sweep of `mlcl list`.", autocompletion=local_names)],
    key: Annotated[
        str,
        typer.Argument(help="A key that varies, or its end: section.temperature.", autocompletion=trial_keys),
    ],
    at: Annotated[
        list[str] | None, typer.Option("--at", help="KEY=VALUE of another key, held there.")
    ] = None,
    json: Json = False,
    home: Home = DEFAULT_HOME,
) -> None:
    """Print the score expected over a key, from a Gaussian process that is fitted to the complete trials."""
    from mlcl.results.documents import local_sweep

    run = local_run(home, sweep)
    if run.kind != "sweep":
        raise UserError("is no sweep", key="SWEEP", found=run.name)
    result = local_sweep(run.folder)
    score, mode = result.score, result.mode
    frame = _trial_frame([trial for trial in result.trials if trial.state is State.COMPLETE])
    axis = _find_key(key, frame)
    point = {
        _find_key(name, frame): _parse_number(name, value) for name, value in map(parse_override, at or [])
    }
    if axis in point:
        raise UserError("is the key of the curve", key="--at", found=axis, allowed="another key")
    names = [axis, *point]
    curve, count = _fit_curve(frame, names, point)
    if json:
        rows = curve.to_dict("records")
        print_json({"key": axis, "at": point, "score": score, "mode": mode, "trials": count, "curve": rows})
        return
    suffix = "".join(f", at {name} {value:g}" for name, value in point.items())
    low, high = curve["expected"].min(), curve["expected"].max()
    lines = [
        (f"{value:.4g}", f"{mean:.4f}", f"{deviation:.4f}",
         BARS[: round((len(BARS) - 1) * (mean - low) / ((high - low) or 1.0)) + 1])
        for value, mean, deviation in curve.itertuples(index=False)
    ]  # fmt: skip
    title = f"{score} ({mode}) over {axis}{suffix}; {count} complete trials"
    results.print(fitted_table((axis, "expected", "± sd", ""), lines, title, ranks=(0, 0, 1, 2), texts=(3,)))
    for name, value in point.items():
        start, end = frame[name].min(), frame[name].max()
        if not start <= value <= end:
            tell(f"extrapolated: the trials had {name} from {start:.4g} to {end:.4g}, none at {value:g}")
    best = curve.sort_values("expected", ascending=mode == "min").iloc[0]
    tell(f"best near {axis} {best['value']:.4g}: {best['expected']:.4f} ± {best['deviation']:.4f}")


def _trial_frame(trials: Sequence[TrainingResult]) -> pd.DataFrame:
    """Returns a frame with SCORE and the numeric keys that differ, a row for each trial with a score."""
    import pandas as pd

    rows = [
        {SCORE: trial.score}
        | {
            key: float(value)
            for key, value in flatten({**trial.settings, **trial.chosen}).items()
            if isinstance(value, int | float) and not isinstance(value, bool)
        }
        for trial in trials
        if trial.score is not None
    ]
    frame = pd.DataFrame(rows)
    return frame[[str(name) for name in frame if name == SCORE or frame[str(name)].nunique() > 1]]


def _fit_curve(frame: pd.DataFrame, names: list[str], point: Mapping[str, float]) -> tuple[pd.DataFrame, int]:
    """Returns the expected score over `names[0]`, the other keys at `point`, and the number of trials."""
    import numpy as np
    import pandas as pd

    from mlcl.results.gaussian_process import FEWEST, expected_scores

    rows = frame[[*names, SCORE]].dropna()
    if len(rows) < FEWEST:
        raise UserError("too few complete trials", key="SWEEP", found=len(rows), allowed=f"{FEWEST} or more")
    x_ND = rows[names].to_numpy(float)
    log = [bool(column.min() > 0 and column.max() / column.min() >= WIDE_RANGE) for column in x_ND.T]
    for name, on_log in zip(names[1:], log[1:], strict=True):
        if on_log and point[name] <= 0:
            problem, found = "the scale of this key is logarithmic", f"{name}={point[name]:g}"
            raise UserError(problem, key="--at", found=found, allowed="above 0")
    ends = x_ND[:, 0].min(), x_ND[:, 0].max()
    grid = np.geomspace(*ends, ROWS) if log[0] else np.linspace(*ends, ROWS)
    grid_GD = np.column_stack([grid, *(np.full(ROWS, point[name]) for name in names[1:])])
    mean, deviation = expected_scores(x_ND, rows[SCORE], grid_GD, log=log)
    return pd.DataFrame({"value": grid, "expected": mean, "deviation": deviation}), len(rows)


def _parse_number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise UserError("not a number", key="--at", found=f"{name}={value}", allowed="a finite number")
    return float(value)


def _find_key(word: str, frame: pd.DataFrame) -> str:
    """Returns the key that is `word` or ends with `.word`. Raises UserError if there are none or several."""
    keys = [str(name) for name in frame if name != SCORE]
    matches = [key for key in keys if key == word or key.endswith(f".{word}")]
    if len(matches) != 1:
        hint = did_you_mean(word, keys) if not matches else "; ends several keys"
        allowed = sorted(matches or keys) or "none: no number differs between the complete trials"
        raise UserError(f"is not a number that varies{hint}", key="KEY", found=word, allowed=allowed)
    return matches[0]
