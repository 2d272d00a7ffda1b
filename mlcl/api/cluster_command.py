"""The command that a call with `on=FILE` submits: its words, and the files that its mappings become."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from torch import nn

from mlcl.api.common import JobSource, Overrides, baseline_files, with_encoder
from mlcl.config import JobConfig, dump_job, parse_override, read_job
from mlcl.config.loader import plain_data
from mlcl.config.safe_yaml import dump_yaml
from mlcl.errors import UserError

DIGITS = 12
"""The number of hexadecimal digits of the hash in the name of a file."""
NUMBERS = ("cpus", "gpus", "parallel", "budget")
"""The resource options of a sweep. The cluster file has defaults for the first three."""


@dataclass(frozen=True)
class ClusterCommand:
    """A command to submit.

    `words` are the words of the command line. `given` maps the arguments of the command's
    function to their values, for `check_command`. `files` maps file names to the texts of jobs and spaces
    that were given as mappings. With `fresh`, an earlier submission of the same command that was stopped or
    failed is not resumed.
    """

    words: tuple[str, ...]
    given: Mapping[str, Any]
    files: Mapping[str, str]
    fresh: bool


@dataclass
class Caller:
    """The parts of a call that are in no job file: overrides, and maybe an encoder of the caller.

    `carried` says whether there is such an encoder, which the words of a command line cannot contain.
    `files` collects the texts of the files that the call makes, by name.
    """

    overrides: Mapping[str, Any]
    carried: bool
    files: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        module: tuple[Any, Any],
        source: JobSource,
        overrides: Overrides,
        home: Path,
        say: Callable[[str], None],
        *,
        collate: Any = None,
    ) -> Caller:
        """Returns the parts of a call. Raises UserError for a module or tokenizer, whose files are local."""
        encoder, tokenizer = module
        if isinstance(encoder, nn.Module) or tokenizer is not None:
            key = "encoder" if isinstance(encoder, nn.Module) else "tokenizer"
            raise UserError(
                "an object cannot be sent to the cluster",
                key=key,
                found=type(encoder if key == "encoder" else tokenizer).__name__,
                allowed="a class or a functools.partial of one, which a job carries, or a built-in encoder",
            )
        all_overrides = with_encoder(*module, source, overrides, home, say, collate=collate, elsewhere=True)
        return cls(all_overrides, encoder is not None)

    def job(self, source: JobSource, overrides: Mapping[str, Any]) -> Path:
        """Returns the path of a job's file; if `carried`, the file also has the overrides."""
        tree = dump_job(source) if isinstance(source, JobConfig) else source
        if self.carried:
            job = read_job(tree).with_overrides(overrides)
            tree = job.with_plugins(job.tree)
            tree["plugins"] = [
                {key: plugin[key] for key in ("file", "sha256", "source")} for plugin in tree["plugins"]
            ]
        return self.file("job", tree)

    def file(self, kind: str, source: str | Path | Mapping[str, Any]) -> Path:
        """Returns the path of a job or space; a mapping is added to `files`, under a name with its hash."""
        if not isinstance(source, Mapping):
            return Path(source)
        text = yaml_text(kind, dict(source))
        name = f"{kind}-{hashlib.sha256(text.encode()).hexdigest()[:DIGITS]}.yaml"
        self.files[name] = text
        return Path(name)

    def words(self) -> list[str]:
        """Returns the overrides as words of the command; none if `carried`, since the job file has them."""
        return [] if self.carried else [override_word(*item) for item in self.overrides.items()]


def run_command(caller: Caller, job: JobSource, *, fresh: bool, options: Mapping[str, Any]) -> ClusterCommand:
    """Returns the command `mlcl run` of a call of `mlcl.run`."""
    file, overrides = caller.job(job, caller.overrides), caller.words()
    words = ["run", str(file), *overrides, *(["--fresh"] if fresh else []), *_option_words(options)]
    return ClusterCommand(tuple(words), {"job": file, "overrides": overrides}, caller.files, fresh)


def sweep_command(
    caller: Caller,
    job: JobSource,
    space: str | Path | Mapping[str, Any],
    *,
    name: str,
    shared: Mapping[str, Any],
    numbers: Mapping[str, int],
    options: Mapping[str, Any],
) -> ClusterCommand:
    """Returns the command `mlcl sweep` of a call of `mlcl.sweep`.

    `shared` are the overrides that hold for the control, too. Raises UserError for baselines if there is
    a caller's encoder, since the job files of the baselines do not contain it.
    """
    control = options.get("control")
    baselines = [Path(file) for file in baseline_files(options.get("baselines"))]
    if caller.carried and baselines:
        allowed = "no baselines, or a built-in encoder"
        raise UserError(
            "baselines cannot be trained with your own encoder on a cluster",
            key="baselines",
            found=baselines,
            allowed=allowed,
        )
    files, overrides = (caller.job(job, caller.overrides), caller.file("space", space)), caller.words()
    words = ["sweep", *map(str, files), *overrides]
    if name != "-".join(file.stem for file in files):
        words += ["--name", name]
    words += _option_words(numbers)
    arguments: dict[str, Any] = {
        "job": files[0],
        "space": files[1],
        "overrides": overrides,
        "baseline": baselines,
    }
    arguments["control"] = None if control in (None, False) else caller.job(control, shared)
    words += _option_words({"control": arguments["control"], "warm-start": options.get("warm_start")})
    words += [word for file in baselines for word in ("--baseline", str(file))]
    settings = [
        ",".join(override_word(*item) for item in setting.items()) for setting in options.get("try_first", ())
    ]
    words += [word for setting in settings for word in ("--try", setting)]
    arguments |= {"try_": settings, **{key: options.get(key) for key in NUMBERS}}
    fresh = options.get("fresh", False)
    flags = {"no-control": control is False, "no-baselines": not options.get("fitted", True), "fresh": fresh}
    words += [f"--{flag}" for flag, is_set in flags.items() if is_set]
    words += _option_words({key: options.get(key) for key in NUMBERS})
    return ClusterCommand(tuple(words), arguments, caller.files, fresh)


def _option_words(options: Mapping[str, Any]) -> list[str]:
    """Returns options as words, except those that are None. Floats are written as by `with_share`."""
    words = []
    for name, value in options.items():
        if value is not None:
            words += [f"--{name}", f"{value:g}" if isinstance(value, float) else str(value)]
    return words


def override_word(key: str, value: Any) -> str:
    """Returns an override as the word `key=YAML`. Raises UserError for a value that the word cannot hold."""
    word = f"{key}={yaml_text(key, value, flow=True)}"
    if "\n" in word or parse_override(word) != (key, plain_data(value)):
        raise UserError("cannot be passed on a command line", key=key, found=repr(value))
    return word


def yaml_text(key: str, value: Any, *, flow: bool = False) -> str:
    """Returns a value as YAML, with `flow` on one line. Raises UserError for a value that YAML lacks."""
    data = plain_data(value)
    try:
        if not flow:
            return dump_yaml(data)
        return dump_yaml([data], default_flow_style=True, width=1 << 18).strip()[1:-1]
    except yaml.YAMLError:
        allowed = "numbers, texts, lists and mappings of them"
        raise UserError(
            "cannot be written to a file", key=key, found=repr(value)[:60], allowed=allowed
        ) from None
