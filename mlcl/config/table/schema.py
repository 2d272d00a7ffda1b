"""The table file: rows and columns of jobs, their metrics, and the figures that a paper prints."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from mlcl.config.job import Positive, Section

Text = Annotated[str, Field(min_length=1)]


class Change(Section):
    """What a row, a column or a scale changes in the jobs of its cells."""

    vars: dict[str, str] = Field(default_factory=dict, description="names that stand in braces in `job`")
    set: dict[str, Any] = Field(default_factory=dict, description="dotted keys of the job to their values")
    drop: tuple[str, ...] = Field((), description="dotted keys of the job that are left out")


class Line(Change):
    """A row or a column."""

    job: str | None = Field(None, description="job file; default: the table's")
    metrics: dict[Text, str] | None = Field(None, description="as the table's, for this line alone")


class Scale(Change):
    """A smaller preset of the same table; its figures are no reproduction, and it says why."""

    about: Text = Field(description="how it differs from the paper's setting, printed with every result")
    seeds: int | None = Field(None, ge=1, description="default: the table's")
    rows: tuple[str, ...] | None = Field(None, description="default: all")
    columns: tuple[str, ...] | None = Field(None, description="default: all")
    tolerance: Positive | None = Field(None, description="default: none, figures are shown and not judged")


class Table(Section):
    """A table or figure of a paper.

    Every pair of a row and a column is a cell: a job, trained once a seed, and one figure for each of its
    metrics. `paper` has, by row and column, a figure for each metric, in the order of `metrics`; what is left
    out is not printed there (or is a point of a plot).
    """

    title: Text
    experiment: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")] = Field(
        description="in MLflow, of all its runs; tables of one experiment share their runs"
    )
    source: Text = Field(description="paper and number of the table")
    about: str = Field("", description="what is known to differ from the paper, printed with every result")
    kind: Literal["table", "curve"] = "table"
    job: str | None = Field(None, description="job file of all cells, may hold names in braces")
    set: dict[str, Any] = Field(default_factory=dict, description="dotted keys of every job to their values")
    metrics: dict[Text, str] = Field(min_length=1, description="how a figure is called, and the run's metric")
    better: Literal["higher", "lower"] | dict[str, Literal["higher", "lower"]] = Field(
        "higher", description="for all figures, or by name"
    )
    unit: Literal["percent", "share"] = Field("percent", description="percent: metrics times 100")
    digits: int = Field(2, ge=0, le=6, description="after the point")
    tolerance: Positive = Field(description="how far a mean may be from the paper's figure, in the unit")
    seeds: int = Field(1, ge=1, description="runs of a cell, with seeds 0, 1, ...")
    seed_keys: tuple[str, ...] = Field(("train.seed",), min_length=1, description="keys that get the seed")
    rows: dict[Text, Line] = Field(min_length=1)
    columns: dict[Text, Line] = Field(min_length=1)
    paper: dict[str, dict[str, float | tuple[float | None, ...] | None]] = Field(default_factory=dict)
    scales: dict[str, Scale] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _known(self) -> Self:
        for row, figures in self.paper.items():
            if row not in self.rows:
                raise ValueError(f"paper: no row {row}")
            for column in figures:
                if column not in self.columns:
                    raise ValueError(f"paper.{row}: no column {column}")
        for name, scale in self.scales.items():
            for line, known in ((scale.rows, self.rows), (scale.columns, self.columns)):
                for one in line or ():
                    if one not in known:
                        raise ValueError(f"scales.{name}: no line {one}")
        return self

    def is_better_higher(self, figure: str) -> bool:
        """Whether a larger value of a figure is the better one."""
        kind = self.better if isinstance(self.better, str) else self.better.get(figure, "higher")
        return kind == "higher"
