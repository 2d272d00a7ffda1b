"""Compares a short search that begins with four points of a prior with a whole search, on unseen data.

    python benchmarks/prior.py "AAPD 750" --data aapd-750=FILE [--home FOLDER] [KEY=VALUE...]
    python benchmarks/prior.py --summary

`tools/build_prior.py` builds a prior from the table's columns of other data sets. The control and two losses
are then searched with five trials (the job as in the table, and the prior's four points), race as in the
table, and have three test seeds. Their test figures are compared with the cells in
docs/leaderboard/figures/three-searches, which come from three searches with six trials each: about 11
trainings beside 33. The result is appended to --out. KEY=VALUE are overrides of the jobs, as for `mlcl
reproduce`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml
from null_sweeps import commit, read

ROOT = Path(__file__).parents[1]
FIGURES = ROOT / "docs/leaderboard/figures/three-searches"
TABLES = {
    "leaderboard-classes": ("val/accuracy", ("cross-entropy, two views", "simclr", "supcon")),
    "leaderboard-labels": ("val/micro_f1", ("BCE, two views", "any", "mulsupcon")),
}
"""The metric by which a table's prior is built, and the rows that are searched, the control first."""
NEAR = 0.2
"""The points by which a test figure may be lower without counting as worse."""


def cells() -> dict[tuple[str, str], dict[str, Any]]:
    """Returns the leaderboard's cells by column and row."""
    documents = [json.loads(file.read_text()) for file in FIGURES.glob("*/*.json")]
    return {(cell["column"], cell["row"]): cell for cell in documents}


def trials_of(column_id: str) -> Path:
    """Returns the file with the trials of a column."""
    return FIGURES / f"{column_id}-trials.parquet"


def data_of(column: str) -> str:
    """Returns the data set in a column's name, such as ICD-10-CM for "ICD-10-CM 5"."""
    return column.rpartition(" ")[0] or column


def build(table: str, columns: dict[str, str], column: str, out: Path) -> None:
    """Builds the prior from a table's columns of other data sets, given as names with ids, and writes it."""
    files = [
        str(trials_of(column_id)) for name, column_id in columns.items() if data_of(name) != data_of(column)
    ]
    script = str(ROOT / "tools/build_prior.py")
    command = [sys.executable, script, "--out", str(out), "--metric", TABLES[table][0], *files]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def write_table(table: str, column: str, prior: Path, folder: Path) -> Path:
    """Writes the table with one column, three rows, and a short search per cell that begins with a prior."""
    file = ROOT / f"tables/{table}.yaml"
    tree = yaml.safe_load(file.read_text())
    tree["experiment"] = "prior"
    tree["job"] = str(file.parent / tree["job"])
    tree["columns"] = {column: tree["columns"][column]}
    tree["rows"] = {row: tree["rows"][row] for row in TABLES[table][1]}
    tree.pop("ranks")
    for section in (tree, *(row for row in tree["rows"].values() if row.get("tune"))):
        space = yaml.safe_load((file.parent / section["tune"]["space"]).read_text())
        space["search"]["prior"] = str(prior)
        section["tune"] |= {"space": space, "searches": 1, "trials": 5, "seeds": 3}
    target = folder / f"{table}-prior.yaml"
    target.write_text(yaml.safe_dump(tree, sort_keys=False))
    return target


def figures_of(cell: dict[str, Any]) -> tuple[float, float]:
    """Returns the means of the main figure, and of the figure without neighbours, in percent."""
    main_figure = cell["figures"][0]
    plain_figure = next(
        figure for figure in cell["figures"] if figure["name"] == f"{main_figure['name']} without neighbours"
    )
    return main_figure["mean"], plain_figure["mean"]


def measure(column: str, data: list[str], overrides: list[str], home: str | None) -> dict[str, Any]:
    """Searches with the prior of the other columns and returns each row's figures beside its cell's."""
    known_cells = cells()
    tables = {name: cell["table"] for (name, _), cell in known_cells.items()}
    if column not in tables:
        raise SystemExit(f"{column}: no column of {FIGURES}, which has {', '.join(sorted(tables))}")
    table = tables[column]
    columns = {
        name: cell["id"].partition("/")[2]
        for (name, _), cell in known_cells.items()
        if cell["table"] == table
    }
    with tempfile.TemporaryDirectory() as folder_name:
        folder = Path(folder_name)
        build(table, columns, column, folder / "prior.yaml")
        file = write_table(table, column, folder / "prior.yaml", folder)
        data_options = [word for source in data for word in ("--data", source)]
        command = [sys.executable, "-m", "mlcl", "reproduce", str(file), *overrides, *data_options]
        command += ["--home", home or str(folder / "home"), "--figures", str(folder / "figures")]
        subprocess.run(command, check=True, cwd=ROOT, stdout=sys.stderr)
        new_cells = [json.loads(path.read_text()) for path in (folder / "figures").glob("*/*.json")]
        prior = yaml.safe_load((folder / "prior.yaml").read_text())["points"]
    rows = {
        cell["row"]: {"prior": figures_of(cell), "search": figures_of(known_cells[column, cell["row"]])}
        for cell in new_cells
    }
    picks = {cell["row"]: [search["pick"] for search in cell["search"]["searches"]] for cell in new_cells}
    return {
        "column": column,
        "table": table,
        "commit": commit(),
        "rows": rows,
        "picks": picks,
        "prior": prior,
    }


def summary(results: list[dict[str, Any]]) -> str:
    """Returns a line for each data set: the prior's figures less the searches' figures, in points."""
    lines, n_near = [], 0
    for result in results:
        differences = [
            [row["prior"][k] - row["search"][k] for row in result["rows"].values()] for k in range(2)
        ]
        mean, plain_mean = map(statistics.mean, differences)
        n_near += mean >= -NEAR
        lines.append(
            f"{result['column']:18} {mean:+.2f} "
            f"({', '.join(f'{difference:+.2f}' for difference in differences[0])}); "
            f"without neighbours {plain_mean:+.2f}"
        )
    return "\n".join([*lines, f"at most {NEAR} points below the searches: {n_near} of {len(results)}"])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("column", nargs="?", help="a data set, as its column is called")
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE")
    parser.add_argument("--data", action="append", default=[], help="COLUMN=PLACE, as for mlcl reproduce")
    parser.add_argument("--home", help="where trainings are kept; default: nowhere")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks/prior.jsonl")
    parser.add_argument("--summary", action="store_true", help="only print what the file has")
    args = parser.parse_args()
    if args.column is not None and not args.summary:
        result = measure(args.column, args.data, args.overrides, args.home)
        with args.out.open("a") as file:
            file.write(json.dumps(result) + "\n")
    print(summary(read(args.out)))


if __name__ == "__main__":
    main()
