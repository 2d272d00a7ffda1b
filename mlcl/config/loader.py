"""Job files: read with the files that they build on, changed by `key.path=value`, and checked.

A job file with `base: OTHER.yaml`, a path relative to the file, has all keys of that file and says only what
differs: mappings are merged, lists and single values (null among them) replace those of the base. Before that
the dotted keys in `drop` are left out of the base. A base may have a base.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from mlcl.config.job import JobConfig, covers, dump_job
from mlcl.config.packaged import find_file
from mlcl.config.plugin_files import read_plugins
from mlcl.config.safe_yaml import key_nodes, load_yaml, read_yaml_lines
from mlcl.config.section import validate
from mlcl.errors import UserError, did_you_mean

_Layer = tuple[Path | None, Mapping[str, Any], dict[str, int]]


class KeyOrigin(NamedTuple):
    """The origin of a value: a line of a file, or the command line if `file` is None."""

    file: Path | None
    line: int = 0

    def __str__(self) -> str:
        return "command line" if self.file is None else f"{self.file}:{self.line}"


@dataclass(frozen=True)
class WrittenJob:
    """A job as it is written: with its bases merged in, without defaults, unchecked.

    Attributes:
        tree: its keys and values, without `base` and `drop`.
        files: the job file, its base, the base's base and so on; empty for a job that is no file.
        origins: where each dotted key was written; of a section, where its last change begins.
    """

    tree: dict[str, Any]
    files: tuple[Path, ...] = ()
    origins: Mapping[str, KeyOrigin] = field(default_factory=dict)

    def with_overrides(self, overrides: Mapping[str, Any]) -> WrittenJob:
        """The job with dotted keys set, see `apply_overrides`."""
        tree = apply_overrides(self.tree, overrides)
        given = dict.fromkeys(_without_stars(self.tree, overrides), KeyOrigin(None))
        return replace(self, tree=tree, origins=_without(self.origins, given) | given)

    def origin_of(self, key: str | None) -> KeyOrigin | None:
        """The origin of a dotted key, or of the section around it where an override wrote that whole."""
        parts = (key or "").split(".")
        outer = (".".join(parts[:depth]) for depth in range(len(parts), 0, -1))
        nearest = next((each for each in outer if each in self.origins), None)
        found = self.origins.get(nearest or "")
        return found if nearest == key or (found and found.file is None) else None

    def file_of(self, key: str | None = None) -> Path | None:
        """The file that writes a dotted key; the job file for a key that none writes."""
        origin = self.origin_of(key)
        if origin is not None and origin.file is not None:
            return origin.file
        return self.files[0] if self.files else None

    def with_plugins(self, tree: Mapping[str, Any]) -> dict[str, Any]:
        """`tree`, a changed copy of this job's, with its plugin files read; they are not run.

        Raises:
            UserError: for a file that is no Python file below the folder of the file that names it.
        """
        inherited = tree.get("plugins") == self.tree.get("plugins")
        return read_plugins(tree, self.file_of("plugins" if inherited else None))


def read_job(source: str | Path | Mapping[str, Any]) -> WrittenJob:
    """A job file, or a mapping with a job's keys, with its bases; paths in a mapping are relative to here.

    Raises:
        UserError: for a file that cannot be read, for bases that form a circle, and for a `drop` that does
            not fit.
    """
    layers = _layers(source)
    tree: dict[str, Any] = {}
    origins: dict[str, KeyOrigin] = {}
    for depth, (file, own, lines) in enumerate(reversed(layers)):
        for dotted in _keys_to_drop(own, file, has_base=depth > 0):
            drop_key(tree, dotted, file)
            origins = {key: origin for key, origin in origins.items() if not covers(dotted, key)}
        own = {key: value for key, value in own.items() if key not in ("base", "drop")}
        found = {} if file is None else {key: KeyOrigin(file, line) for key, line in lines.items()}
        leaves = [key for key in found if not isinstance(value_at(own, key), Mapping)]
        origins = _without(origins, leaves) | found
        tree = _merge(tree, own)
    return WrittenJob(tree, tuple(file for file, _, _ in layers if file is not None), origins)


def load_job(
    source: str | Path | Mapping[str, Any], overrides: Sequence[str] | Mapping[str, Any] = ()
) -> JobConfig:
    """The checked job of a file or a mapping, with its bases and with overrides. Its plugin files are run.

    Args:
        source: a job file, or a mapping with a job's keys.
        overrides: dotted keys and their values, or texts `key.path=value`.

    Raises:
        UserError: for the first problem, with the file that has it, the key, what was found and what is
            allowed.

    Example:
        >>> job = load_job("jobs/icd10cm_mlcl.yaml", {"train.seed": 1})
        >>> job.train.seed
        1
    """
    if not isinstance(overrides, Mapping):
        overrides = dict(parse_override(text) for text in overrides)
    read = read_job(source)
    written = read.with_overrides(overrides)
    try:
        return validate(JobConfig, written.with_plugins(written.tree), None)
    except UserError as error:
        _check_heads(read.tree, overrides, error)
        origin = written.origin_of(error.key)
        # No file has a part in what an override got wrong.
        if origin is not None and origin.file is None:
            raise error.but(file=None) from None
        raise error.but(file=error.file or written.file_of(error.key)) from None


def parse_override(text: str) -> tuple[str, Any]:
    """`train.epochs=2` as ("train.epochs", 2); the value is read as YAML."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip() or any(not part for part in key.strip().split(".")):
        raise UserError("not an override", found=text, allowed="key.path=value")
    try:
        return key.strip(), load_yaml(value)
    except yaml.YAMLError as error:
        raise UserError("value is not valid YAML", key=key, found=error) from None


def apply_overrides(tree: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of `tree` with dotted keys set; missing mappings on the way are made.

    A part `*` within a key stands for each key that the tree has there, which may be none.
    """
    result = _merge({}, tree)
    for dotted, value in _without_stars(tree, overrides).items():
        node = result
        *parents, last = dotted.split(".")
        for depth, part in enumerate(parents):
            child = node.get(part)
            if child is None:
                child = node[part] = {}
            if not isinstance(child, dict):
                raise UserError(
                    "has no keys below it", key=".".join(parents[: depth + 1]), found=f"override of {dotted}"
                )
            node = child
        node[last] = value
    return result


def drop_key(tree: dict[str, Any], dotted: str, file: str | Path | None) -> None:
    """Removes a dotted key from `tree`. Raises UserError at the key `drop` of `file` for a missing one."""
    above, _, last = dotted.rpartition(".")
    node = value_at(tree, above) if above else tree
    if not isinstance(node, dict) or last not in node:
        raise UserError("the job has no such key to leave out", file=file, key="drop", found=dotted)
    del node[last]


def yaml_with_origins(job: JobConfig, written: WrittenJob) -> str:
    """The resolved job as YAML, with a comment on each line whose value is not a default: its origin."""
    text = yaml.safe_dump(dump_job(job), sort_keys=False, width=1 << 18)
    lines = text.splitlines()
    for key, node, value in key_nodes(yaml.compose(text, Loader=yaml.SafeLoader)):
        origin = written.origins.get(key)
        is_section = isinstance(value_at(written.tree, key), Mapping)
        if origin is not None and node is not value and (origin.file is None or not is_section):
            # A comment fits after the last line of a text, and after the key of a list or a section.
            mark = value.end_mark if isinstance(value, yaml.ScalarNode) else node.end_mark
            lines[mark.line] += f"  # {origin}"
    return "\n".join([*lines, ""])


def _layers(source: str | Path | Mapping[str, Any]) -> list[_Layer]:
    """The job and its bases: of each the file, the content, and the line of each key."""
    layers: list[_Layer] = []
    if isinstance(source, Mapping):
        layers.append((None, source, {}))
    else:
        own_file = find_file("job", source)
        layers.append((own_file, *read_yaml_lines(own_file)))
    while (name := layers[-1][1].get("base")) is not None:
        file = layers[-1][0]
        if not isinstance(name, str):
            raise UserError("not the name of a file", file=file, key="base", found=name)
        base = (file.parent if file is not None else Path()) / name
        try:
            own, lines = read_yaml_lines(base)
        except UserError as error:
            if error.problem != "no such file":
                raise
            raise UserError(error.problem, file=file, key="base", found=base) from None
        files = [each for each, _, _ in layers if each is not None]
        if base.resolve() in [each.resolve() for each in files]:
            circle = " > ".join(map(str, [*files, base]))
            raise UserError("the bases form a circle", file=file, key="base", found=circle)
        layers.append((base, own, lines))
    return layers


def _keys_to_drop(own: Mapping[str, Any], file: Path | None, *, has_base: bool) -> Sequence[str]:
    keys = own.get("drop", ())
    if not isinstance(keys, (list, tuple)) or not all(isinstance(key, str) for key in keys):
        raise UserError("not a list of dotted keys", file=file, key="drop", found=keys)
    if keys and not has_base:
        raise UserError("leaves out keys of a base, and there is none", file=file, key="drop", found=keys)
    return keys


def _merge(base: Any, own: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of both; `own` wins. All mappings are copies: aliases of YAML may have shared them."""
    result = dict(base) if isinstance(base, Mapping) else {}
    for key, value in own.items():
        result[key] = _merge(result.get(key), value) if isinstance(value, Mapping) else value
    return result


def _without(origins: Mapping[str, KeyOrigin], keys: Iterable[str]) -> dict[str, KeyOrigin]:
    """The origins that are left where these keys get another value."""
    replaced = set(keys)
    parts = {key: key.split(".") for key in origins}
    return {
        key: origin
        for key, origin in origins.items()
        if not any(".".join(parts[key][:depth]) in replaced for depth in range(1, len(parts[key]) + 1))
    }


def value_at(tree: Any, dotted: str) -> Any:
    """The value at a dotted key of nested mappings; None where there is none."""
    for part in dotted.split("."):
        tree = tree.get(part) if isinstance(tree, Mapping) else None
    return tree


def _without_stars(tree: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for pattern, value in overrides.items() for key in _without_star(tree, pattern)}


def _without_star(tree: Mapping[str, Any], dotted: str) -> list[str]:
    before, star, after = dotted.partition(".*.")
    if not star:
        return [dotted]
    node = value_at(tree, before)
    if not isinstance(node, Mapping):
        raise UserError("has no keys that * could stand for", key=before, found=f"override of {dotted}")
    return [key for name in node for key in _without_star(tree, f"{before}.{name}.{after}")]


def _check_heads(tree: Mapping[str, Any], overrides: Mapping[str, Any], error: UserError) -> None:
    """Raises UserError where the job is wrong in a head that only an override has: its name is misspelt."""
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
