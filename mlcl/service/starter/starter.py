"""From a file of data to a job, a space and a README that `mlcl sweep` takes as they are."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from mlcl.config import load_job, load_space
from mlcl.data import Dataset, prepare
from mlcl.data.description import describe, in_words
from mlcl.data.format import INFO_FILE
from mlcl.data.table_file import ENCODING
from mlcl.errors import UserError
from mlcl.files import replace_text
from mlcl.service.starter.first_job import FirstJob, first_job, has_gpu
from mlcl.service.starter.table_options import Ask, table_options
from mlcl.tracking.uri import sqlite_file, tracking_uri

FILES = ("job.yaml", "space.yaml", "README.md")
TRIALS, SEEDS = 24, 6  # the fewest seeds with which a test of pairs reaches p = 0.05


@dataclass(frozen=True)
class Start:
    """What was found, the rules that were applied, the files that were written, and the next command."""

    found: tuple[str, ...]
    rules: tuple[str, ...]
    files: tuple[Path, ...]
    data: Path
    next: str


def start(
    path: Path,
    to: Path,
    home: Path,
    text: str | None = None,
    labels: Sequence[str] = (),
    ask: Ask | None = None,
    encoding: str = ENCODING,
    group: str | None = None,
) -> Start:
    """Look at a table, a folder of images or a prepared set, and write `FILES` to the folder `to`.

    `text` and `labels` name columns, `labels` of a prepared set the label space to predict; the rest is
    asked, or without `ask` refused where the data do not tell. Raises UserError; then no file is written.
    """
    files = tuple(to / name for name in FILES)
    for file in files:
        if file.exists():
            problem = "is there already: nothing is replaced"
            raise UserError(problem, file=file, key="--to", allowed="another folder")
    if (path / INFO_FILE).is_file():
        source, options, found = None, dict[str, Any](), [f"{path}: a prepared data set"]
    elif path.is_dir():
        source, options, found = "image_folder", {"path": str(path)}, [f"{path}: images in a folder a class"]
    else:
        source, options, found = table_options(path, text, labels, ask, encoding, group)
    place = path if source is None else prepare(source, home / "data", options)
    info, description = Dataset.open(place).info, describe(place)
    data = {"path": str(path)} if source is None else {"source": source, "options": options}
    target = labels[0] if labels and source is None else None
    made = first_job(info, description, target, data, gpu=has_gpu())
    lines = (*found, *in_words(description))
    name = made.job["experiment"]
    sweep = f"mlcl sweep {files[0]} {files[1]} --name {name} --trials {TRIALS} --seeds {SEEDS}"
    columns = [f"--{key} {shlex.quote(options[key])}" for key in ("text", "id") if key in options]
    predict = " ".join(["mlcl predict model", shlex.quote(str(path)), *columns])
    commands = (sweep, f"mlcl report {name}", f"mlcl export {name} --to model", predict, _serve(name, home))
    _write(made, files, commands, lines)
    return Start(lines, made.rules, files, Path(place), sweep)


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


README = """# {name}

```
{commands}
```

The sweep searches {trials} settings, trains the best on {seeds} fresh seeds beside baselines of scikit-learn,
says whether it beats them, and ends with two links to its trials in MLflow. The same command goes on where
it was stopped. The last one serves the best model: rows go to localhost:5001/invocations as JSON.

## What was found

{found}"""
