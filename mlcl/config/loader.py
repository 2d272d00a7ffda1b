"""Reads job files, merges them with their bases, applies overrides `key.path=value`, checks the result."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath
from typing import Any, NamedTuple

import yaml

from mlcl.config.job import JobConfig, covers, dump_job
from mlcl.config.packaged import find_file
from mlcl.config.plugin_files import read_plugins
from mlcl.config.safe_yaml import dump_yaml, key_nodes, load_yaml, read_yaml_lines
from mlcl.config.section import validate
from mlcl.errors import UserError, did_you_mean

_Layer = tuple[Path | None, Mapping[str, Any], dict[str, int]]


class KeyOrigin(NamedTuple):
    """The origin of a value: a file and the number of a line, or the command line if `file` is None."""

    file: Path | None
    line: int = 0

    def __str__(self) -> str:
        return "command line" if self.file is None else f"{self.file}:{self.line}"


@dataclass(frozen=True)
class WrittenJob:
    """A job with its bases merged in, before defaults are added and before it is checked.

    Attributes:
        tree: The keys and values, without `base` and `drop`.
        files: The job file, its base, the base's base and so on; empty for a job that is not from a file.
        origins: The origin of each dotted key. The origin of a section is its line in the last file that
            has the section.
    """

    tree: dict[str, Any]
    files: tuple[Path, ...] = ()
    origins: Mapping[str, KeyOrigin] = field(default_factory=dict)

    def with_overrides(self, overrides: Mapping[str, Any]) -> WrittenJob:
        """Returns the job with dotted keys set, see `apply_overrides`.

        Raises UserError for a key with `*` that matches no key of the job.
        """
        check_stars([self.tree], overrides)
        tree = apply_overrides(self.tree, overrides)
        override_origins = dict.fromkeys(_expand_stars(self.tree, overrides), KeyOrigin(None))
        return replace(self, tree=tree, origins=_drop_keys(self.origins, override_origins) | override_origins)

    def origin_of(self, key: str | None) -> KeyOrigin | None:
        """Returns the origin of a dotted key; None if neither a file nor the command line sets it.

        If an override sets a whole section that contains the key, the origin is the command line.
        """
        parts = (key or "").split(".")
        prefixes = (".".join(parts[:depth]) for depth in range(len(parts), 0, -1))
        nearest_key = next((prefix for prefix in prefixes if prefix in self.origins), None)
        origin = self.origins.get(nearest_key or "")
        return origin if nearest_key == key or (origin and origin.file is None) else None

    def file_of(self, key: str | None = None) -> Path | None:
        """Returns the file that sets a dotted key, or else the job file; None for a job from a mapping."""
        origin = self.origin_of(key)
        if origin is not None and origin.file is not None:
            return origin.file
        return self.files[0] if self.files else None

    def with_plugins(self, tree: Mapping[str, Any]) -> dict[str, Any]:
        """Returns `tree`, a changed copy of `self.tree`, with its plugin files read, see `read_plugins`."""
        inherited = tree.get("plugins") == self.tree.get("plugins")
        return read_plugins(tree, self.file_of("plugins" if inherited else None))


def read_job(source: str | Path | Mapping[str, Any]) -> WrittenJob:
    """Reads a job file or a mapping with a job's keys, and merges its bases.

    A job file is given by its path or by the name of a packaged job. Paths in a mapping are relative to the
    working directory.

    Raises:
        UserError: A file cannot be read, the bases form a cycle, or `drop` has a key that the base lacks.
    """
    layers = _read_layers(source)
    tree: dict[str, Any] = {}
    origins: dict[str, KeyOrigin] = {}
    for depth, (file, content, lines) in enumerate(reversed(layers)):
        for dotted in _keys_to_drop(content, file, has_base=depth > 0):
            drop_key(tree, dotted, file)
            origins = {key: origin for key, origin in origins.items() if not covers(dotted, key)}
        content = {key: value for key, value in content.items() if key not in ("base", "drop")}
        file_origins = {} if file is None else {key: KeyOrigin(file, line) for key, line in lines.items()}
        leaves = [key for key in file_origins if not isinstance(value_at(content, key), Mapping)]
        origins = _drop_keys(origins, leaves) | file_origins
        tree = _merge(tree, content)
    return WrittenJob(tree, tuple(file for file, _, _ in layers if file is not None), origins)


def load_job(
    source: str | Path | Mapping[str, Any], overrides: Sequence[str] | Mapping[str, Any] = ()
) -> JobConfig:
    """Returns the checked job of a file or a mapping, with its bases and overrides. Runs its plugin files.

    Args:
        source: The path of a job file, the name of a packaged job, or a mapping with a job's keys.
        overrides: Dotted keys and their values, or strings `key.path=value`.

    Raises:
        UserError: The job is wrong. The error has the first problem and the file and key that it is in.

    Example:
        >>> job = load_job("jobs/icd10cm_mlcl.yaml", {"train.seed": 1})
        >>> job.train.seed
        1
    """
    if not isinstance(overrides, Mapping):
        overrides = dict(parse_override(text) for text in overrides)
    source_job = read_job(source)
    job = source_job.with_overrides(overrides)
    try:
        return validate(JobConfig, job.with_plugins(job.tree), None)
    except UserError as error:
        _check_heads(source_job.tree, overrides, error)
        origin = job.origin_of(error.key)
        # An error in an override is not an error in a file.
        if origin is not None and origin.file is None:
            raise error.with_fields(file=None) from None
        raise error.with_fields(file=error.file or job.file_of(error.key)) from None


def parse_override(text: str) -> tuple[str, Any]:
    """Returns `("train.epochs", 2)` for `train.epochs=2`. Raises UserError unless it is `KEY=YAML`."""
    key, separator, value = text.partition("=")
    if not separator or not key.strip() or any(not part for part in key.strip().split(".")):
        raise UserError("not an override", found=text, allowed="key.path=value")
    try:
        return key.strip(), load_yaml(value)
    except yaml.YAMLError as error:
        raise UserError("value is not valid YAML", key=key, found=error) from None


def parse_setting(text: str) -> dict[str, Any]:
    """Returns the values by key of a setting `key=value,...` of `--try`, whose values may contain commas."""
    try:
        pairs = [parse_override(part) for part in re.split(r",\s*(?=[A-Za-z_][\w.*-]*=)", text)]
    except UserError as error:
        raise error.with_fields(key=f"--try {error.key}" if error.key else "--try") from None
    if len(dict(pairs)) < len(pairs):
        raise UserError("sets a key twice", key="--try", found=text)
    return dict(pairs)


def apply_overrides(tree: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a copy of `tree` with dotted keys set. Sections that are missing are created.

    A part `*` of a key, unless it is the first or the last part, stands for every key that the tree has
    there. Raises UserError for a key below a value that is not a section.
    """
    result = _merge({}, tree)
    for dotted, value in _expand_stars(tree, overrides).items():
        node = result
        *parents, name = dotted.split(".")
        for depth, part in enumerate(parents):
            child = node.get(part)
            if child is None:
                child = node[part] = {}
            if not isinstance(child, dict):
                raise UserError(
                    "has no keys below it", key=".".join(parents[: depth + 1]), found=f"override of {dotted}"
                )
            node = child
        node[name] = plain_data(value)
    return result


def drop_key(tree: dict[str, Any], dotted: str, file: str | Path | None) -> None:
    """Removes a dotted key from `tree`. Raises UserError, for the key `drop` of `file`, if it is missing."""
    parent, _, name = dotted.rpartition(".")
    node = value_at(tree, parent) if parent else tree
    if not isinstance(node, dict) or name not in node:
        raise UserError("the job has no such key to leave out", file=file, key="drop", found=dotted)
    del node[name]


def job_yaml(job: JobConfig) -> str:
    """Returns the resolved job as YAML."""
    return dump_yaml(dump_job(job))


def yaml_with_origins(job: JobConfig, written_job: WrittenJob) -> str:
    """Returns the resolved job as YAML, in which a comment gives the origin of each value that was set."""
    text = dump_yaml(dump_job(job), width=1 << 18)
    lines = text.splitlines()
    for key, node, value in key_nodes(yaml.compose(text, Loader=yaml.SafeLoader)):
        origin = written_job.origins.get(key)
        is_section = isinstance(value_at(written_job.tree, key), Mapping)
        if origin is not None and node is not value and (origin.file is None or not is_section):
            # The comment goes behind the last line of a string, and behind the key of a list or section.
            mark = value.end_mark if isinstance(value, yaml.ScalarNode) else node.end_mark
            lines[mark.line] += f"  # {origin}"
    return "\n".join([*lines, ""])


def _read_layers(source: str | Path | Mapping[str, Any]) -> list[_Layer]:
    """Returns (file or None, content, line of each key) of the job, its base, the base's base and so on."""
    layers: list[_Layer] = []
    if isinstance(source, Mapping):
        layers.append((None, source, {}))
    else:
        job_file = find_file("job", source)
        layers.append((job_file, *read_yaml_lines(job_file)))
    while (name := layers[-1][1].get("base")) is not None:
        file = layers[-1][0]
        if not isinstance(name, str):
            raise UserError("not the name of a file", file=file, key="base", found=name)
        base = (file.parent if file is not None else Path()) / name
        try:
            content, lines = read_yaml_lines(base)
        except UserError as error:
            if error.problem != "no such file":
                raise
            raise UserError(error.problem, file=file, key="base", found=base) from None
        files = [path for path, _, _ in layers if path is not None]
        if base.resolve() in [path.resolve() for path in files]:
            cycle = " > ".join(map(str, [*files, base]))
            raise UserError("the bases form a cycle", file=file, key="base", found=cycle)
        layers.append((base, content, lines))
    return layers


def _keys_to_drop(content: Mapping[str, Any], file: Path | None, *, has_base: bool) -> Sequence[str]:
    keys = content.get("drop", ())
    if not isinstance(keys, (list, tuple)) or not all(isinstance(key, str) for key in keys):
        raise UserError("not a list of dotted keys", file=file, key="drop", found=keys)
    if keys and not has_base:
        raise UserError("leaves out keys of a base, and there is none", file=file, key="drop", found=keys)
    return keys


def _merge(base: Any, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Merges two mappings; `changes` has priority. Copies all mappings, since YAML aliases may share them."""
    result = dict(base) if isinstance(base, Mapping) else {}
    for key, value in changes.items():
        result[key] = _merge(result.get(key), value) if isinstance(value, Mapping) else plain_data(value)
    return result


def plain_data(value: Any) -> Any:
    """Returns a copy with paths as texts, tuples and ranges as lists, and NumPy's values as Python's."""
    if isinstance(value, Mapping):
        return {key: plain_data(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, range)):
        return [plain_data(item) for item in value]
    if isinstance(value, PurePath):
        return str(value)
    return value.tolist() if hasattr(value, "tolist") else value


def _drop_keys(origins: Mapping[str, KeyOrigin], keys: Iterable[str]) -> dict[str, KeyOrigin]:
    """Returns the origins of all keys but `keys` and the keys below them."""
    key_set = set(keys)
    parts = {key: key.split(".") for key in origins}
    return {
        key: origin
        for key, origin in origins.items()
        if not any(".".join(parts[key][:depth]) in key_set for depth in range(1, len(parts[key]) + 1))
    }


def value_at(tree: Any, dotted: str) -> Any:
    """Returns the value at a dotted key of nested mappings; None if there is none."""
    for part in dotted.split("."):
        tree = tree.get(part) if isinstance(tree, Mapping) else None
    return tree


def _expand_stars(tree: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for pattern, value in overrides.items() for key in _matching_keys(tree, pattern)}


def check_stars(jobs: Sequence[Mapping[str, Any]], overrides: Mapping[str, Any]) -> None:
    """Raises UserError for a key with `*` that matches no key of any of the jobs."""
    for key, value in overrides.items():
        if not any(_matching_keys(job, key) for job in jobs):
            raise UserError("its * matches no key of the job", key=key, found=value)


def _matching_keys(tree: Mapping[str, Any], dotted: str) -> list[str]:
    """Returns the keys of `tree` that a dotted key with `*` matches; one without `*` matches itself.

    Raises UserError if no section stands where `*` is.
    """
    prefix, star, suffix = dotted.partition(".*.")
    if not star:
        return [dotted]
    node = value_at(tree, prefix)
    if not isinstance(node, Mapping):
        raise UserError("has no keys that * could stand for", key=prefix, found=f"override of {dotted}")
    return [key for name in node for key in _matching_keys(tree, f"{prefix}.{name}.{suffix}")]


def _check_heads(tree: Mapping[str, Any], overrides: Mapping[str, Any], error: UserError) -> None:
    """Raises UserError if `error` is in a head that an override names and `tree` lacks: it is misspelt."""
    heads = value_at(tree, "objective.heads")
    *section, name = (error.key or "").split(".")[:3]
    if not isinstance(heads, Mapping) or section != ["objective", "heads"] or name in heads:
        return
    for key in overrides:
        if key.startswith(f"objective.heads.{name}."):
            problem = f"no such head{did_you_mean(name, heads)}"
            raise UserError(
                f"the override names {problem}", key=key, found=name, allowed=sorted(heads)
            ) from None
