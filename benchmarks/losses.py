"""Measures the losses' time and memory beside the dense path, pytorch-metric-learning and the limit.

    python benchmarks/losses.py [--quick] [--losses supcon any] [--sizes 2048] [--labels 80] [--json FILE]

Forward and backward run in float32 on one thread. `bf16` is `ours` with bfloat16 embeddings; the relative
errors of value and gradient are measured against `ours` in float64. The limit is the time of the two matrix
products that no exact loss avoids, S = Z Z^T and G = S Z. All contenders are timed in turns. A ratio is the
median over rounds of the ratio within a round, ± half the distance between its quartiles. MiB are the peak
above the inputs; each peak is measured in a process of its own.

pytorch-metric-learning's SupConLoss is compared with supcon alone, because the library has no multi-label
loss of this kind. The exit code is 1 if values differ by more than 1e-4 between contenders or one of mlcl's
losses does not finish.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import torch
from losses_clock import Typical, in_turns, ratio, typical
from losses_labels import label_share
from losses_memory import peak
from losses_scenes import Case, cases_of, errors, one_pass, two_products
from losses_table import WIDTHS, Row, label_line, line

from mlcl.losses import LOSSES

FULL = {
    "sizes": [512, 2_048, 4_096],
    "labels": [20, 80, 1_000, 8_692],
    "large": [8_192, 65_536],
    "seconds": 0.5,
}
QUICK = {"sizes": [512], "labels": [80], "large": [2_048], "seconds": 0.2}
SMALL, SMALL_SECONDS = 128, 0.3
SMALL_COLUMNS = ("loss", "B", "L", "ms", "dense ms", "/ dense", "target", "met")
LARGE_COLUMNS = ("loss", "B", "L", "MiB", "target", "met")
HALF_COLUMNS = ("loss", "B", "L", "ms", "bf16 ms", "/ bf16", "value", "gradient", "f32 value", "f32 grad")
PRODUCT_LOSSES = ("supcon", "simdis")
LARGE_DIM, LARGE_LABELS = 128, 80
MOST_LABELS = 8_692
LABEL_LOSSES = ("any", "simdis", "mulsupcon")
SLOW_ROWS = 65_536
SLOW_LOSSES = ["supcon", "simdis"]
"""The losses measured from SLOW_ROWS rows on, where a pass takes a minute, unless --losses is given."""
MOST_PEER_ROWS = 4_096
OWN_PATIENCE = 300.0


def main() -> int:
    args = arguments()
    torch.set_num_threads(1)
    print(f"torch {torch.__version__}, one thread, float32, d={args.dim}")
    names = args.losses or list(LOSSES)

    cases = [case for size in args.sizes for case in cases_of(names, size, args.labels, args.dim)]
    full_rows = printed(
        "Time and memory", WIDTHS, cases, lambda case: full_row(case, args.seconds, args.patience)
    )
    print_lines("Label work, of the loss's time", label_lines(full_rows))

    cases = cases_of(names, SMALL, [LARGE_LABELS], args.dim)
    small_rows = printed("Small batches", SMALL_COLUMNS, cases, small_row)

    products = [name for name in PRODUCT_LOSSES if name in names]
    cases = [case for size in args.sizes for case in cases_of(products, size, [LARGE_LABELS], LARGE_DIM)]
    half_rows = printed(
        f"bfloat16, d={LARGE_DIM}", HALF_COLUMNS, cases, lambda case: half_row(case, args.seconds)
    )

    cases = []
    for size in args.large:
        size_losses = names if size < SLOW_ROWS else args.losses or SLOW_LOSSES
        cases += cases_of(size_losses, size, [LARGE_LABELS], LARGE_DIM)
    large_rows = printed(f"Memory of large batches, d={LARGE_DIM}", LARGE_COLUMNS, cases, large_row)
    return finish([*full_rows, *small_rows, *half_rows, *large_rows], args.json)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--losses", nargs="+", choices=list(LOSSES), metavar="NAME")
    parser.add_argument("--sizes", nargs="+", type=int, metavar="B")
    parser.add_argument("--labels", nargs="+", type=int, metavar="L")
    parser.add_argument("--large", nargs="*", type=int, metavar="B", help="sizes for memory alone")
    parser.add_argument("--dim", type=int, default=256)
    parser.add_argument("--seconds", type=float, help="time for each contender of each case, about")
    parser.add_argument("--patience", type=float, default=3.0, help="seconds; a slower peer is left out")
    parser.add_argument("--quick", action="store_true", help="small sizes, a minute")
    parser.add_argument("--json", type=Path, metavar="FILE", help="every figure, there too")
    parser.set_defaults(**(QUICK if "--quick" in sys.argv else FULL))
    return parser.parse_args()


def label_lines(rows: Sequence[Row]) -> list[str]:
    """Returns lines with the share of label work, for the measured cases with the most labels."""
    wide_cases = [row.case for row in rows if row.case.labels == MOST_LABELS and row.case.rows >= 2_048]
    multi_label_cases = [
        case for case in wide_cases if case.kind == "multi_label" and case.loss in LABEL_LOSSES
    ]
    return [label_line(case, label_share(case)) for case in multi_label_cases]


def full_row(case: Case, seconds: float, patience: float) -> Row:
    peers = ["dense", "PML"] if case.loss == "supcon" else ["dense"]
    row, contenders = weighed(Row(case), ["ours", *peers], patience)
    return timed(row, contenders, seconds) if "ours" in contenders else row


def small_row(case: Case) -> Row:
    return timed(Row(case), ["ours", "dense"], SMALL_SECONDS)


def half_row(case: Case, seconds: float) -> Row:
    """Returns the row with the times of float32 and bf16, and the errors of both."""
    row = Row(case)
    passes = {name: one_pass(name, case) for name in ("ours", "bf16")}
    times, _ = in_turns(passes, seconds, least={})
    for name, durations in times.items():
        row.figures[column(name, "ms")] = typical([1_000 * duration for duration in durations])
    row.figures["/ bf16"] = ratio(times["ours"], times["bf16"])
    for name, (value, gradient) in {"bf16": ("value", "gradient"), "ours": ("f32 value", "f32 grad")}.items():
        row.figures[value], row.figures[gradient] = (Typical(error) for error in errors(name, case))
    return row


def large_row(case: Case) -> Row:
    return weighed(Row(case), ["ours"])[0]


def weighed(row: Row, contenders: Sequence[str], patience: float = 0) -> tuple[Row, list[str]]:
    """Returns the row with each contender's peak memory, and the contenders that finished their pass."""
    finished_contenders = []
    for name in contenders:
        if name != "ours" and row.case.rows > MOST_PEER_ROWS:
            row.left_out.append(f"{name}, {row.case}: peers run up to B={MOST_PEER_ROWS:,}")
            continue
        result = peak(name, row.case, OWN_PATIENCE if name == "ours" else patience)
        if result.problem:
            row.left_out.append(f"{name}, {row.case}: {result.problem}")
            row.failed |= name == "ours"
            continue
        finished_contenders.append(name)
        if result.mib is not None:
            row.figures[column(name, "MiB")] = Typical(result.mib)
    return row, finished_contenders


def timed(row: Row, contenders: Sequence[str], seconds: float) -> Row:
    """Returns the row with the times of the contenders and the limit, the ratios, and differing values."""
    passes = {name: one_pass(name, row.case) for name in contenders}
    limit = two_products(row.case.rows, row.case.dim)
    times, values = in_turns({"limit": limit, **passes}, seconds, least={"limit": 6, "ours": 6})
    for name, durations in times.items():
        row.figures[column(name, "ms")] = typical([1_000 * duration for duration in durations])
        if name != "ours":
            row.figures[f"/ {name}"] = ratio(times["ours"], durations)
    for name in passes:
        if not math.isclose(values[name], values["ours"], rel_tol=1e-4, abs_tol=1e-4):
            row.disagreements.append(f"{row.case}: ours {values['ours']:.6f}, {name} {values[name]:.6f}")
    return row


def column(contender: str, unit: str) -> str:
    return unit if contender == "ours" else f"{contender} {unit}"


def printed(
    title: str, columns: Iterable[str], cases: Sequence[Case], measure: Callable[[Case], Row]
) -> list[Row]:
    """Measures each case, prints its row at once, and returns all rows."""
    if not cases:
        return []
    print(f"\n{title}\n{line({name: name for name in columns}, columns)}")
    rows = []
    for case in cases:
        rows.append(measure(case))
        print(line(rows[-1].cells(), columns), flush=True)
    return rows


def print_lines(title: str, lines: Sequence[str]) -> None:
    if lines:
        print("\n".join([f"\n{title}", *(f"  {text}" for text in lines)]))


def finish(rows: Sequence[Row], file: Path | None) -> int:
    """Prints cases left out, disagreements and the number of targets met, and returns the exit code."""
    print_lines("Left out", [reason for row in rows for reason in row.left_out])
    disagreements = [disagreement for row in rows for disagreement in row.disagreements]
    print_lines("Values that differ", disagreements)
    met = [row.met for row in rows if row.met is not None]
    print(f"\n{sum(met)} of {len(met)} rows with a target meet it; {len(disagreements)} values differ")
    if file:
        file.write_text(json.dumps([row.plain() for row in rows], indent=1))
    return 1 if disagreements or any(row.failed for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
