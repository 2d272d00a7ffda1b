"""Small data sets and jobs that train in a second."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from mlcl.config import JobConfig, load_job
from mlcl.data.format import LabelSpace
from mlcl.data.writer import NewDataset, write_dataset

DETAILS = ("ball", "run", "vote", "law")
SPLITS = {"train": 48, "validation": 24, "test": 24}
HEADS_SPACE: dict[str, Any] = {
    "space": {
        "objective.heads.*.temperature": {"log_float": [0.05, 1.0]},
        "objective.heads.*.weight": {"simplex": {"total": [0.1, 0.6]}},
        "evaluation.knn.k": {"choice": [1, 3]},
        "evaluation.knn.lambda": {"float": [0, 1]},
    },
    "search": {"scheduler": "asha", "reduction_factor": 2, "startup": 2},
}
"""A search space of the tiny job."""


def dataset(folder: Path, name: str, spaces: dict[str, Any], rows: dict[str, Any], **how: Any) -> Path:
    """Writes a data set of texts.

    A value of `spaces` may also be the classes of single labels. Ids are numbers unless `rows` has them.
    """
    shard_rows = how.pop("shard_rows", 65_536)
    fields = {"modality": "text", "origin": "made for tests", "licence": "none", **how}
    batch = {"id": [str(i) for i in range(len(rows["split"]))], **rows}
    label_spaces = {key: _space(space) for key, space in spaces.items()}
    write_dataset(
        folder, NewDataset(name=name, label_spaces=label_spaces, batches=[batch], **fields), shard_rows
    )
    return folder


def _space(its: Any) -> LabelSpace:
    return its if isinstance(its, LabelSpace) else LabelSpace(kind="single", classes=its)


def shades(folder: Path) -> Path:
    """Writes a data set of images that are dark and bright in turn."""
    rows = {
        "split": [split for split in SPLITS for _ in range(8)],
        "image": [png(30 + 200 * (i % 2)) for i in range(24)],
        "kind": [i % 2 for i in range(24)],
    }
    return dataset(folder, "shades", {"kind": ("dark", "bright")}, rows, modality="image")


def png(shade: int) -> bytes:
    with io.BytesIO() as file:
        Image.new("RGB", (9, 9), (shade, shade, shade)).save(file, "PNG")
        return file.getvalue()


def rare_class_dataset(folder: Path) -> Path:
    """Writes a data set of texts with five classes; the last class has six rows, all of them for training."""
    splits = ["train"] * 36 + ["validation"] * 24 + ["test"] * 8
    detail = [4 if 30 <= i < 36 else i % 4 for i in range(len(splits))]
    texts = [f"word {'abcdefghij'[i // 10]} {'abcdefghij'[i % 10]}" for i in range(len(splits))]
    rows = {"text": texts, "split": splits, "detail": detail}
    return dataset(folder, "rare", {"detail": tuple("abcde")}, rows)


def text_dataset(folder: Path, seed: int = 0) -> Path:
    """Writes a data set of texts whose words determine their labels.

    The label spaces are topic (2 classes), detail (4, within topics), tags (5), and ratings of two aspects.
    """
    rng = np.random.default_rng(seed)
    rows: dict[str, list[Any]] = {
        name: [] for name in ("id", "text", "split", "topic", "detail", "tags", "ratings")
    }
    for split, count in SPLITS.items():
        for i in range(count):
            detail = i % 4
            noise = rng.choice([f"noise{j}" for j in range(12)], 3)
            rows["id"].append(f"{split}{i}")
            rows["text"].append(" ".join([DETAILS[detail], *noise]))
            rows["split"].append(split)
            rows["topic"].append(detail // 2)
            rows["detail"].append(detail)
            rows["tags"].append([] if i % 11 == 10 else sorted({detail, 4 if i % 2 else detail}))
            rows["ratings"].append([detail + 1, 0 if i % 7 == 6 else 1 + i % 4])
    spaces = {
        "topic": ("sport", "state"),
        "detail": DETAILS,
        "tags": LabelSpace(kind="multi_label", classes=("a", "b", "c", "d", "e")),
        "ratings": LabelSpace(kind="aspects", aspects=("word", "other"), scale=(1, 2, 3, 4)),
        "path": LabelSpace(kind="hierarchy", levels=("topic", "detail")),
    }
    return dataset(folder, "tiny", spaces, rows)


def unknown_dataset(folder: Path, unknown: bool = True, unlabelled: str = "") -> Path:
    """Writes a data set of texts of one or two words, each of which is a finding (5 in all).

    If `unknown`, each finding is left open with probability 1/4. In the split `unlabelled`, all findings are
    open.
    """
    rng = np.random.default_rng(0)
    splits = [split for split, count in SPLITS.items() for _ in range(count)]
    words = [sorted({int(word) for word in rng.integers(0, 5, 2)}) for _ in splits]
    shares = [1.0 if split == unlabelled else 0.25 * unknown for split in splits]
    unknown_findings = [np.flatnonzero(rng.random(5) < share).tolist() for share in shares]
    findings = LabelSpace(kind="multi_label", classes=tuple(f"word{i}" for i in range(5)), unknown=unknown)
    rows = {
        "id": [f"r{i}" for i in range(len(splits))],
        "text": [" ".join(f"word{word}" for word in row) for row in words],
        "split": splits,
        "findings": [
            sorted({*row} - {*unknown_row}) for row, unknown_row in zip(words, unknown_findings, strict=True)
        ],
        "findings.unknown": unknown_findings,
    }
    return dataset(folder, "open", {"findings": findings}, rows)


def tree_dataset(folder: Path) -> Path:
    """Writes a data set of texts of one or two words, each of which is a tag (6) of a group (3).

    A row may have several paths.
    """
    words = [[i % 6] if i % 3 else sorted({i % 6, (i // 6) % 6}) for i in range(72)]
    spaces = {
        "group": LabelSpace(kind="multi_label", classes=("x", "y", "z")),
        "tags": LabelSpace(kind="multi_label", classes=tuple(f"word{i}" for i in range(6))),
        "path": LabelSpace(kind="hierarchy", levels=("group", "tags"), parents=((0, 0, 1, 1, 2, 2),)),
    }
    rows = {
        "text": [" ".join(f"word{word}" for word in row) for row in words],
        "split": [("train", "train", "validation", "test")[i // 18] for i in range(72)],
        "group": [sorted({word // 2 for word in row}) for row in words],
        "tags": words,
    }
    return dataset(folder, "tree", spaces, rows)


def job_tree(data: Path, **train: Any) -> dict[str, Any]:
    """Returns a joint job with two heads on `text_dataset`."""
    return {
        "experiment": "tiny",
        "data": {"path": str(data)},
        "encoder": {"name": "cnn_text", "width": 8, "embedding_dim": 16, "max_length": 8, "dropout": 0.2},
        "objective": {
            "heads": {
                "detail": {"loss": "supcon", "labels": "detail", "weight": 0.2, "projection": {"dim": 8}},
                "topic": {
                    "loss": "supcon",
                    "labels": "path.topic",
                    "temperature": 0.5,
                    "weight": 0.2,
                    "projection": {"dim": 8},
                },
            },
            "classifier": {"loss": "cross_entropy", "labels": "detail"},
        },
        "train": {"epochs": 4, "batch_size": 16, "lr": 0.01, "threads": 1, "device": "cpu"}
        | {"patience": None, "checkpoint_every": 1}
        | train,
        "evaluation": {"knn": {"k": 3, "grid": {"k": [1, 3], "lambda": [0, 0.5, 1], "temperature": [1.0]}}},
    }


def tiny_job(data: Path, *overrides: str, **train: Any) -> JobConfig:
    """Returns `job_tree` with overrides as a validated job."""
    return load_job(job_tree(data, **train), overrides)
