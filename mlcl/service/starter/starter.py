"""Writes a job, a space and a README for a file of data; `mlcl sweep` runs the job and space unchanged.

Each value of the job follows from the data by a rule that is printed.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from mlcl.config import load_job, load_space
from mlcl.data.description import in_words
from mlcl.errors import UserError
from mlcl.files import replace_text
from mlcl.service.starter.first_job import FirstJob
from mlcl.service.starter.table_options import Ask, UserOptions
from mlcl.service.starter.user_data import prepare_user_data
from mlcl.tracking.uri import sqlite_file, tracking_uri

FILES = ("job.yaml", "space.yaml", "README.md")
TRIALS, SEEDS = 24, 6  # of each arm: three searches of eight trials, whose picks have two seeds each
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
class StarterFiles:
    """The result of `start`: lines that describe data and rules, the written files, and the next command."""

    found: tuple[str, ...]
    rules: tuple[str, ...]
    files: tuple[Path, ...]
    data: Path
    next: str


def start(
    paths: Sequence[Path], to: Path, home: Path, given: UserOptions | None = None, ask: Ask | None = None
) -> StarterFiles:
    """Looks at data and writes `FILES`, with which a sweep can be run.

    Args:
        paths: Tables with the same columns, a folder of images, or a prepared data set.
        to: The folder to write to.
        home: The home in which the data set is prepared.
        given: The options that the user gives for the columns. For a prepared data set, `labels` is the label
            space to predict.
        ask: Asks the user for options that are neither given nor clear from the data.

    Raises:
        UserError: The data cannot be read, a file of `FILES` exists already or, without `ask`, an option is
            neither given nor clear. No file is written then.
    """
    given, path = given or UserOptions(), paths[0]
    files = tuple(to / name for name in FILES)
    for file in files:
        if file.exists():
            problem = "is there already: nothing is replaced"
            raise UserError(problem, file=file, key="to", allowed="another folder")
    read = prepare_user_data(paths, home, given, ask)
    description = read.description()
    target = given.labels[0] if given.labels and not read.options else None
    try:
        made = read.first_job(target, description)
    except UserError as error:
        raise error.but(file=path) from None
    lines = (*read.found, *in_words(description))
    name = made.job["experiment"]
    sweep = f"mlcl sweep {files[0]} {files[1]} --name {name} --trials {TRIALS} --seeds {SEEDS}"
    predict = " ".join(["mlcl predict model", shlex.quote(str(paths[-1])), *_reading(read.options)])
    commands = (sweep, f"mlcl report {name}", f"mlcl export {name} --to model", predict, _serve(name, home))
    _write(made, files, commands, lines)
    return StarterFiles(lines, made.rules, files, read.folder, sweep)


def _reading(options: Mapping[str, Any]) -> list[str]:
    """Returns the options with which `mlcl predict` reads a file in the way in which the source read it."""
    words = []
    for key in ("text", "image", "vectors", "id", "encoding", "delimiter"):
        values = options.get(key, [])
        option = "text" if key in ("image", "vectors") else key
        words += [f"--{option} {shlex.quote(v)}" for v in ([values] if isinstance(values, str) else values)]
    header = options.get("header")
    return words if header is None else [*words, "--header" if header else "--no-header"]


def _serve(experiment: str, home: Path) -> str:
    """Returns the command that serves the best model, which a sweep registers under its experiment's name."""
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
