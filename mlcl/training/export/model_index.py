"""Writes and reads `model.json`: an exported model's labels, predictors, provenance and file checksums."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, model_validator
from typing_extensions import Self

from mlcl.config.section import Section, validate
from mlcl.data.format import LabelSpace, Modality
from mlcl.errors import UserError
from mlcl.evaluation import Decision, Task
from mlcl.files import sha256_of
from mlcl.training.features.inputs import FEATURES
from mlcl.training.run_files import JOB, TOKENIZER

INDEX = "model.json"
VERSION = 2
NETWORK, DATASTORE = "weights.safetensors", "datastore.parquet"

MEMBER = "ensemble"
"""The folder with the tensors and inputs of the baseline of an ensemble."""

PredictorName = Literal["classifier", "probe", "ensemble", "knn", "knn_best"]
"""The names of predictors. `classifier` and `probe` are linear layers; a baseline is a `classifier`.
`ensemble` averages one of them with a baseline. `knn` and `knn_best` blend the neighbours' votes with the
ensemble, or with the layer if there is none, at the setting of the job and at the best one on validation."""
FileName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)*$")]


class KnnSetting(Section):
    """The number of neighbours, their weight lambda in the prediction, and the temperature of their votes."""

    model_config = ConfigDict(populate_by_name=True)

    k: int = Field(ge=1)
    lambda_: float = Field(alias="lambda", ge=0, le=1)
    temperature: float = Field(gt=0)


class EnsembleSetting(Section):
    """The weight of an ensemble's baseline, and how its logits are rescaled, see `Ensemble`."""

    weight: float = Field(ge=0, le=1)
    scale: float
    shift: float


class Level(Section):
    """A coarser level of a hierarchy.

    `classes` are its class names, `parents` the index in `classes` of the parent of each predicted class, -1
    if unknown.
    """

    classes: tuple[str, ...]
    parents: tuple[int, ...]


class GroupFacts(Section):
    """The frequency bands and the hierarchy of the labels, which groups of metrics read, see `LabelFacts`."""

    band: tuple[int, ...] | tuple[tuple[int, ...], ...]
    path: tuple[tuple[int, ...], ...] | None


class Index(Section):
    """The content of `model.json`: what an exported model predicts, its predictors, and its files.

    `levels` are the coarser levels of the label space's hierarchy. `baseline` is the name of a fitted
    baseline, None for a network. `predictors` maps the name of a predictor to its setting of the neighbours,
    None for a predictor without neighbours, as the first one. `ensemble` is set if there is a predictor of
    this name. `best` is the predictor with the best validation value of the job's `metric`. `decisions` say
    for each predictor which labels it predicts. `facts` is set if the job has groups of metrics.
    `preprocessing` informs readers; predicting uses the job and the tokenizer instead. `files` has the
    SHA-256 of every file but `model.json` and the README.
    """

    model_config = ConfigDict(ser_json_inf_nan="constants")

    version: Literal[2] = 2
    modality: Modality
    task: Task
    labels: str
    space: LabelSpace
    levels: dict[str, Level]
    baseline: str | None = None
    predictors: dict[PredictorName, KnnSetting | None]
    ensemble: EnsembleSetting | None = Field(None, exclude_if=lambda value: value is None)
    best: PredictorName
    metric: str
    decisions: dict[PredictorName, Decision]
    facts: GroupFacts | None = Field(None, exclude_if=lambda value: value is None)
    preprocessing: dict[str, int | list[float]]
    metrics: dict[str, float]
    provenance: dict[str, str]
    files: dict[FileName, str]

    @model_validator(mode="after")
    def _check_fields(self) -> Self:
        layers = [predictor for predictor in self.predictors if predictor in ("classifier", "probe")]
        if not layers or next(iter(self.predictors)) != layers[0]:
            raise ValueError("the first of the predictors must be classifier or probe")
        base_predictors = (*layers, "ensemble")
        if any(
            (self.predictors[predictor] is None) != (predictor in base_predictors)
            for predictor in self.predictors
        ):
            raise ValueError("knn and knn_best need a setting, the other predictors have none")
        if ("ensemble" in self.predictors) != (self.ensemble is not None):
            raise ValueError("the predictor ensemble and the key ensemble need each other")
        if self.best not in self.predictors:
            raise ValueError(f"best is {self.best}, which is none of the predictors")
        sizes = {len(decision.thresholds) for decision in self.decisions.values() if decision.k is None}
        if sizes - {1, self.space.n_classes}:
            raise ValueError(f"{sizes} thresholds for {self.space.n_classes} labels")
        if self.decisions.keys() != self.predictors.keys():
            raise ValueError("each of the predictors needs a decision")
        if self.facts is not None and self.facts.path is not None:
            lengths = [len(path) for path in self.facts.path]
            if len(lengths) != self.space.n_classes or min(lengths, default=0) < 2 or len(set(lengths)) > 1:
                raise ValueError("the paths of facts do not fit the classes")
        for name, level in self.levels.items():
            valid_parents = range(-1, len(level.classes))
            if len(level.parents) != self.space.n_classes or any(
                parent not in valid_parents for parent in level.parents
            ):
                raise ValueError(f"parents of level {name} do not fit the classes")
        return self

    def prefix(self, predictor: PredictorName) -> str:
        """Returns the prefix in the names of a predictor's metrics; it is empty for the first predictor."""
        return "" if predictor == next(iter(self.predictors)) else f"{predictor}/"


def write_index(folder: Path, index: Index) -> None:
    """Writes `model.json`, which describes an exported model and lists its files."""
    text = index.model_dump_json(indent=2, by_alias=True)
    (folder / INDEX).write_text(text + "\n", encoding="utf-8")


def read_index(folder: Path) -> Index:
    """Reads the index. Raises UserError, by the checksums, for a damaged, missing or unlisted file."""
    file = folder / INDEX
    try:
        tree = json.loads(file.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise UserError("not an exported model: no such file", file=file) from None
    except (OSError, ValueError, RecursionError) as error:
        raise UserError("not valid JSON", file=file, found=error) from None
    if not isinstance(tree, dict):
        raise UserError("must be a mapping of keys", file=file, found=type(tree).__name__)
    version = tree.get("version")
    if isinstance(version, int) and version > VERSION:
        problem, allowed = "written by a newer mlcl", f"up to {VERSION}"
        raise UserError(problem, file=file, key="version", found=version, allowed=allowed)
    index = validate(Index, tree, file)
    preprocessing = [folder / TOKENIZER, *(folder / FEATURES).rglob("*"), *(folder / MEMBER).rglob("*")]
    present_files = {path.relative_to(folder).as_posix() for path in preprocessing if path.is_file()}
    required_files = {JOB, NETWORK} if index.baseline is not None else {JOB, NETWORK, DATASTORE}
    missing_files = {*required_files, *present_files} - index.files.keys()
    if missing_files:
        raise UserError("a file is not listed", file=file, key="files", found=missing_files)
    for name, expected in index.files.items():
        try:
            checksum = _sha256(folder / name)
        except OSError as error:
            problem = "a file of this model cannot be read"
            raise UserError(problem, file=folder / name, found=error.strerror) from None
        if checksum != expected:
            problem = "SHA-256 differs: the file is damaged"
            raise UserError(problem, file=folder / name, found=checksum, allowed=expected)
    return index


def checksums(folder: Path) -> dict[str, str]:
    """Returns the SHA-256 of all files in a folder, keyed by their path relative to it."""
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    return {file.relative_to(folder).as_posix(): _sha256(file) for file in files}


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return sha256_of(stream)
