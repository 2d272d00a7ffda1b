"""Reads table files: rows and columns of jobs, their metrics, and the numbers printed in a paper."""

from __future__ import annotations

import re
from collections import ChainMap
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, field_validator, model_validator
from typing_extensions import Self

from mlcl.config.job import flatten
from mlcl.config.packaged import FOLDERS, packaged_files
from mlcl.config.safe_yaml import read_yaml
from mlcl.config.section import ExperimentName, Name, Positive, Section, validate
from mlcl.config.space.search import default_mode
from mlcl.errors import UserError, did_you_mean

Text = Annotated[str, Field(min_length=1)]
Direction = Literal["higher", "lower"]
Digits = Annotated[int, Field(ge=0, le=6)]
Tolerance = Positive | dict[str, Positive]


def _as_sequence(value: Any) -> Any:
    if value is None:
        return ()
    return value if isinstance(value, (list, tuple)) else (value,)


Printed = Annotated[
    tuple[Annotated[float, Field(allow_inf_nan=False)] | None, ...], BeforeValidator(_as_sequence)
]
"""The paper's numbers for a cell, one for each metric. A single number is read as a tuple, null as ()."""


def slug(text: str) -> str:
    """Returns a name for the command line: lower case, with hyphens for all but a-z, digits, . and +.

    Example:
        >>> slug("GoEmotions 5,000")
        'goemotions-5000'
    """
    name = re.sub(r"(?<=\d),(?=\d{3})", "", text.lower())
    return re.sub(r"[^a-z0-9.+]+", "-", name).strip("-")


class Tune(Section):
    """A search for the best setting of each cell, which is then trained on fresh seeds."""

    space: str | dict[str, Any] = Field(description="space file, relative to the table, or its content")
    trials: int = Field(ge=1, description="search trials of each cell")
    seeds: int | None = Field(None, ge=1, description="fresh seeds of the best; default: the table's")
    sampler: str | None = Field(None, description="default: the space's")
    searches: int = Field(1, ge=1, description="independent searches, which divide trials and seeds")
    race_seeds: int = Field(
        0,
        ge=0,
        lt=500,
        description="fresh seeds on which the best trials of a search race on validation; 0: no race, "
        "whatever the space says",
    )
    confirm: int = Field(2, ge=1, description="best trials of a search that race, a third of them at most")
    control: str | None = Field(
        None, description="row that each column searches first, and whose best trial this search follows"
    )
    hold: tuple[str, ...] = Field((), description="keys of the space that keep the value of the control")
    start: tuple[str, ...] = Field((), description="keys that have it in the first trial")

    @model_validator(mode="after")
    def _check_control(self) -> Self:
        keys = (*self.hold, *self.start)
        if bool(keys) != (self.control is not None):
            raise ValueError("control goes with hold or start")
        _check_names("hold and start", "key", keys, set(keys))
        if "confirm" in self.model_fields_set and not self.race_seeds:
            raise ValueError("confirm goes with race_seeds")
        return self


class RankTests(Section):
    """The tests that compare the rows, which are methods, over the columns, which are data sets."""

    control: str | None = Field(
        None, description="row with which each other one is compared; default: the first"
    )
    rope: Positive | None = Field(
        None, description="difference, in the unit, that does not matter; adds the Bayesian signed-rank test"
    )
    leave_out: tuple[str, ...] = Field(
        (), description="rows that are neither ranked nor tested, such as the most frequent class"
    )


class Change(Section):
    """The changes that a row, a column or a scale makes to the jobs of its cells."""

    vars: dict[str, str] = Field(default_factory=dict, description="names that stand in braces in `job`")
    set: dict[str, Any] = Field(default_factory=dict, description="dotted keys of the job to their values")
    drop: tuple[str, ...] = Field((), description="dotted keys of the job that are left out")
    tune: Tune | Literal[False] | None = Field(None, description="search its cells; false: do not")


class TableLine(Change):
    """A row or a column."""

    job: str | None = Field(None, description="job file; default: the table's")
    metrics: dict[Text, str] | None = Field(
        None, min_length=1, description="as the table's, for this line alone"
    )
    without: tuple[str, ...] = Field((), description="figures that this line does not have")
    alternative: bool = Field(
        False, description="another reading of the paper: only in the scales that name it"
    )


class TableRow(TableLine):
    """A row, which may have cells in some columns only."""

    columns: tuple[str, ...] | None = Field(
        None, min_length=1, description="columns in which it has a cell; default: all"
    )


class Scale(Change):
    """A preset of a table, usually a smaller one. `about` says how it differs from the paper's setting."""

    about: Text = Field(description="how it differs from the paper's setting, printed with every result")
    seeds: int | None = Field(None, ge=1, description="default: the table's")
    rows: tuple[str, ...] | None = Field(None, min_length=1, description="default: all but the alternatives")
    columns: tuple[str, ...] | None = Field(
        None, min_length=1, description="default: all but the alternatives"
    )
    tolerance: Tolerance | None = Field(None, description="default: none, figures are shown and not judged")


class Table(Section):
    """A table or figure of a paper.

    Every pair of a row and one of its columns is a cell, which has a job, trained once for each seed, and
    shows one number for each metric. `paper` has the paper's numbers by row and column, in the order of
    `metrics`. Values that the paper does not print, such as the points of a plot, are left out.
    """

    title: Text
    experiment: ExperimentName = Field(
        description="in MLflow, of all its runs; tables of one experiment share their runs"
    )
    source: Text = Field(description="paper and number of the table")
    about: str = Field("", description="what is known to differ from the paper, printed with every result")
    job: str | None = Field(None, description="job file of all cells, may hold names in braces")
    set: dict[str, Any] = Field(default_factory=dict, description="dotted keys of every job to their values")
    tune: Tune | None = Field(None, description="search every cell; default: train its job as it is")
    metrics: dict[Text, str] = Field(min_length=1, description="how a figure is called, and the run's metric")
    better: Direction | dict[str, Direction] = Field(
        "higher", description="for all figures, or by name; default: by the metric"
    )
    unit: Literal["percent", "share"] = Field("percent", description="percent: metrics times 100")
    digits: Digits | dict[str, Digits] = Field(2, description="after the point; for all figures, or by name")
    tolerance: Tolerance = Field(
        description="how far a mean may be from the paper's figure, in the unit; for all figures, or by name"
    )
    ranks: RankTests | None = Field(
        None, description="rank the rows over the columns, and test; only where columns are data sets"
    )
    gains: str | None = Field(
        None, description="row whose gains over the others, and the deviation of all, stand below the table"
    )
    places: tuple[str, ...] = Field(
        (), description="keys of paths: another file or folder there does not change the paper's setting"
    )
    clean: bool = Field(
        False, description="true: train, and write the figures of cells, from committed code alone"
    )
    models: bool = Field(True, description="false: trainings keep their figures, no embeddings and no model")
    seeds: int = Field(1, ge=1, description="runs of a cell, with seeds 0, 1, ...")
    seed_keys: tuple[str, ...] = Field(("train.seed",), min_length=1, description="keys that get the seed")
    rows: dict[Text, TableRow] = Field(min_length=1)
    columns: dict[Text, TableLine] = Field(min_length=1)
    paper: dict[str, dict[str, Printed]] = Field(default_factory=dict)
    scales: dict[Name, Scale] = Field(default_factory=dict)

    @field_validator("seed_keys")
    @classmethod
    def _check_seed_keys(cls, keys: tuple[str, ...]) -> tuple[str, ...]:
        if "train.seed" not in keys:
            raise ValueError("lacks train.seed, by which runs are told apart and paired")
        return keys

    @model_validator(mode="after")
    def _check_known_names(self) -> Self:
        for row, line in self.rows.items():
            _check_names(f"rows.{row}.columns", "column", line.columns or (), self.columns)
        for row, figures in self.paper.items():
            _check_names("paper", "row", [row], self.rows)
            _check_names(f"paper.{row}", "column", figures, self.rows[row].columns or self.columns)
        if self.gains is not None:
            _check_names("gains", "row", [self.gains], self.rows)
        if self.ranks is not None:
            _check_names("ranks.leave_out", "row", self.ranks.leave_out, self.rows)
            ranked_rows = [row for row in self.rows if row not in self.ranks.leave_out]
            if not ranked_rows:
                raise ValueError("ranks.leave_out names all rows; allowed: some of them")
            if self.ranks.control is not None:
                _check_names("ranks.control", "ranked row", [self.ranks.control], ranked_rows)
        changes: list[Change] = [*self.rows.values(), *self.columns.values(), *self.scales.values()]
        for tune in (self.tune, *(change.tune for change in changes)):
            if tune and tune.control is not None:
                _check_names("tune.control", "row", [tune.control], self.rows)
        settings = [flatten(tree) for tree in (self.set, *(change.set for change in changes))]
        for key in ("experiment", *self.seed_keys):
            if any(key in keys for keys in settings):
                raise ValueError(f"set: the table itself sets {key} in every job")
        for name, scale in self.scales.items():
            _check_names(f"scales.{name}", "row", scale.rows or (), self.rows)
            _check_names(f"scales.{name}", "column", scale.columns or (), self.columns)
        options: dict[str, Any] = {"better": self.better, "digits": self.digits, "tolerance": self.tolerance}
        options |= {f"scales.{name}.tolerance": scale.tolerance for name, scale in self.scales.items()}
        for key, value in options.items():
            if isinstance(value, dict):
                _check_names(key, "figure", value, self._metrics_by_figure())
        lines: dict[str, TableLine] = {f"rows.{name}": table_line for name, table_line in self.rows.items()}
        lines |= {f"columns.{name}": table_line for name, table_line in self.columns.items()}
        for key, table_line in lines.items():
            _check_names(f"{key}.without", "figure", table_line.without, self._metrics_by_figure())
        _check_distinct("rows", self.rows)
        _check_distinct("columns", self.columns)
        for metrics in self._all_metrics():
            _check_distinct("metrics", metrics)
        return self

    def _all_metrics(self) -> list[dict[str, str]]:
        lines = (*self.rows.values(), *self.columns.values())
        return [self.metrics, *(line.metrics for line in lines if line.metrics)]

    def _metrics_by_figure(self) -> dict[str, str]:
        """Returns the metric of each figure, keyed by its name. The metrics of the table have priority."""
        return dict(ChainMap(*self._all_metrics()))

    @property
    def control(self) -> str:
        """The row with which the other rows are compared; empty if the table names none.

        With `ranks` it is `ranks.control`, by default the first ranked row; else the first `control` of a
        `tune`.
        """
        if self.ranks is not None:
            first_row = next(row for row in self.rows if row not in self.ranks.leave_out)
            return self.ranks.control or first_row
        changes: list[Change] = [*self.rows.values(), *self.columns.values()]
        tunes = (self.tune, *(change.tune for change in changes))
        return next((tune.control for tune in tunes if tune and tune.control is not None), "")

    def pairs(self, rows: Iterable[str], columns: Collection[str]) -> list[tuple[str, str]]:
        """Returns the cells of these rows and columns as pairs, row by row."""
        lines = [(row, self.rows[row].columns) for row in rows]
        return [
            (row, column) for row, names in lines for column in columns if names is None or column in names
        ]

    def is_better_higher(self, figure: str) -> bool:
        """Whether higher values of a figure are better: by `better` of the table, or else by the metric."""
        if isinstance(self.better, dict) and figure in self.better:
            return self.better[figure] == "higher"
        if isinstance(self.better, str) and "better" in self.model_fields_set:
            return self.better == "higher"
        return default_mode(self._metrics_by_figure()[figure]) == "max"

    def digits_of(self, figure: str) -> int:
        """Returns the number of decimals of a figure."""
        return self.digits if isinstance(self.digits, int) else self.digits.get(figure, 2)

    def tolerance_of(self, figure: str, scale: str | None = None) -> float | None:
        """Returns the largest accepted distance of a mean from the paper's figure; None for no limit."""
        limit = self.tolerance if scale is None else self.scales[scale].tolerance
        return limit.get(figure) if isinstance(limit, dict) else limit


def _check_names(key: str, kind: str, names: Iterable[str], known_names: Collection[str]) -> None:
    """Raises ValueError if `known_names` lacks one of `names`, or has it less often than `names`."""
    unused_names = list(known_names)
    for name in names:
        if name not in known_names:
            raise ValueError(f"{key}: no {kind} {name}")
        if name not in unused_names:
            raise ValueError(f"{key}: {kind} {name} stands twice")
        unused_names.remove(name)


def _check_distinct(key: str, names: Iterable[str]) -> None:
    """Raises ValueError if `slug` makes two names equal or a name empty."""
    names_by_slug: dict[str, str] = {}
    for name in names:
        short_name = slug(name)
        if not short_name:
            raise ValueError(f"{key}: {name} needs one of a-z and 0-9")
        if short_name in names_by_slug:
            raise ValueError(f"{key}: {name} and {names_by_slug[short_name]} are both {short_name}")
        names_by_slug[short_name] = name


def table_files(folder: Path | None = None) -> list[Path]:
    """Returns the table files of a folder, sorted by name. Default: those of `tables/` and the packaged ones.

    A file of `tables/` replaces the packaged file with the same name.
    """
    if folder is not None:
        return sorted(folder.glob("*.yaml"))
    files = {name: file.display_path for name, file in packaged_files("table").items()}
    files |= {file.stem: file for file in Path(FOLDERS["table"]).glob("*.yaml")}
    return [files[name] for name in sorted(files)]


def find_table(name: str, folder: Path | None = None) -> Path:
    """Returns the file of a table, given by path or by a name of `table_files`; else raises UserError."""
    if name.endswith((".yaml", ".yml")):
        return Path(name)
    names = {file.stem: file for file in table_files(folder)}
    if name not in names:
        problem, allowed = f"no such table{did_you_mean(name, names)}", sorted(names) or f"{folder}/*.yaml"
        raise UserError(problem, key="TABLE", found=name, allowed=allowed)
    return names[name]


def load_table(file: Path) -> Table:
    """Reads and checks a table file. Raises UserError if it cannot be read, or for a wrong key."""
    return validate(Table, read_yaml(file), file)
