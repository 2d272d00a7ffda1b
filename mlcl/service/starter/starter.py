"""Writes a job, a space and a README for a file of data; `mlcl sweep` runs the job and space unchanged.

Each value of the job follows from the data by a rule that is printed.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlcl.config import load_job, load_space
from mlcl.config.safe_yaml import dump_yaml
from mlcl.data.description import in_words
from mlcl.errors import UserError
from mlcl.files import replace_text
from mlcl.markup import format_count
from mlcl.service.starter.first_job import prepare_user_data
from mlcl.service.starter.first_sweep import FirstSweep, first_sweep
from mlcl.service.starter.table_options import Ask, UserOptions
from mlcl.store import home_option
from mlcl.tracking.uri import sqlite_file, tracking_uri

FILES = ("job.yaml", "space.yaml", "README.md")
OTHERS = ("features.yaml", "features_space.yaml", "words.yaml")
"""The files of other jobs that the sweep may compare with the job."""
BUDGET = "20m"
README = """# {name}

```
{commands}
```

The sweep searches {trials}, and as many of {beside}, trains the best on {seeds} fresh seeds
beside baselines of scikit-learn, and ends with its verdicts: {verdicts}whether the best model
is better than the best baseline. The same command goes on where it was stopped. The last one serves the
best model: rows go to localhost:5001/invocations as JSON.

## What was found

{found}"""


@dataclass(frozen=True)
class StarterFiles:
    """The result of `start`: lines on data and rules, files, the data set, and the next command."""

    found: tuple[str, ...]
    rules: tuple[str, ...]
    files: tuple[Path, ...]
    data: Path
    next: str


def start(
    paths: Sequence[Path],
    to: Path,
    home: Path,
    given: UserOptions | None = None,
    ask: Ask | None = None,
    budget: str = BUDGET,
) -> StarterFiles:
    """Looks at data and writes `FILES` and some of `OTHERS`, with which a sweep can be run.

    `paths` are tables with the same columns, a folder of images, or a prepared data set, whose label space
    `given.labels` names. `ask` asks for options that are neither given nor clear. The `budget` decides what
    the sweep compares, see `first_sweep`. Raises UserError, and writes no file, if the data cannot be read, a
    file of these names exists or, without `ask`, an option is not clear.
    """
    given, path = given or UserOptions(), paths[0]
    for name in (*FILES, *OTHERS):
        if (to / name).exists():
            problem = "already exists and is not replaced"
            raise UserError(problem, file=to / name, key="to", allowed="another folder")
    data = prepare_user_data(paths, home, given, ask)
    description = data.description()
    target = data.named_space(given.labels) if given.labels and not data.options else None
    try:
        sweep = first_sweep(data.first_job(target, description), data.info, description, budget)
    except UserError as error:
        raise (error if error.key == "--budget" else error.with_fields(file=path)) from None
    lines = (*data.found, *in_words(description))
    name = sweep.made.job["experiment"]
    baselines = "".join(
        f" --baseline {shlex.quote(f'{to / job_name}.yaml{_space_suffix(sweep, job_name, to)}')}"
        for job_name in sweep.others
    )
    job, space = (shlex.quote(str(to / file)) for file in FILES[:2])
    home_flag = home_option(home)
    sweep_command = f"mlcl sweep {job} {space} --name {name} {sweep.size.options}{baselines}{home_flag}"
    predict = " ".join(["mlcl predict model", shlex.quote(str(paths[-1])), *_reading_options(data.options)])
    export = f"mlcl export {name} --to model{home_flag}"
    commands = (sweep_command, f"mlcl report {name}{home_flag}", export, predict, _serve_command(name, home))
    files = _write_files(sweep, to, commands, lines)
    return StarterFiles(lines, sweep.made.rules, files, data.folder, sweep_command)


def _space_suffix(sweep: FirstSweep, name: str, folder: Path) -> str:
    """Returns the part of `--baseline` that names a job's own space; empty without one."""
    return "" if sweep.others[name][1] is None else f":{folder / name}_space.yaml"


def _reading_options(options: Mapping[str, Any]) -> list[str]:
    """Returns the options with which `mlcl predict` reads a file as the job's source reads it."""
    words = []
    for key in ("text", "image", "vectors", "id", "encoding", "delimiter"):
        values = options.get(key, [])
        option = "text" if key in ("image", "vectors") else key
        words += [f"--{option} {shlex.quote(v)}" for v in ([values] if isinstance(values, str) else values)]
    header = options.get("header")
    return words if header is None else [*words, "--header" if header else "--no-header"]


def _serve_command(experiment: str, home: Path) -> str:
    """Returns the command that serves the best model, which a sweep registers under its experiment's name."""
    file = sqlite_file(tracking_uri(home))
    store = "" if file is None else f"MLFLOW_TRACKING_URI={shlex.quote(f'sqlite:///{file}')} "
    model = shlex.quote(f"models:/{experiment}@best")
    return f"{store}mlflow models serve -m {model} --env-manager local --port 5001"


def _write_files(
    sweep: FirstSweep, folder: Path, commands: Sequence[str], lines: Sequence[str]
) -> tuple[Path, ...]:
    """Writes the files and returns their paths. Raises UserError if a space does not fit its job."""
    main, heads = sweep.made, bool(sweep.made.job["objective"].get("heads"))
    rules = "".join(f"# {rule}\n" for rule in main.rules)
    arms = [*(["the job without its heads"] if heads else []), *(f"{name}.yaml" for name in sweep.others)]
    readme = README.format(
        name=main.job["experiment"], commands="\n".join(commands),
        trials=format_count(sweep.size.trials, "setting"), seeds=sweep.size.seeds,
        beside=" and of ".join(arms), found="".join(f"- {line}\n" for line in lines),
        verdicts="whether the heads help, and " if heads else "",
    )  # fmt: skip
    texts = {
        "job.yaml": f"# As `mlcl init` began it.\n#\n{rules}{_to_yaml(main.job)}",
        "space.yaml": f"# What to vary of job.yaml.\n#\n#   {commands[0]}\n{_to_yaml(main.space)}",
        "README.md": readme,
    }
    load_space("space.yaml", load_job(main.job), main.space)
    for name, (job, space) in sweep.others.items():
        parsed_job = load_job(job)
        texts[f"{name}.yaml"] = f"# Searched beside job.yaml.\n{_to_yaml(job)}"
        if space is not None:
            load_space(f"{name}_space.yaml", parsed_job, space)
            texts[f"{name}_space.yaml"] = f"# What to vary of {name}.yaml.\n{_to_yaml(space)}"
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        replace_text(folder / name, text)
    return tuple(folder / name for name in texts)


def _to_yaml(tree: dict[str, Any]) -> str:
    return dump_yaml(tree, default_flow_style=None, width=110, allow_unicode=True)
