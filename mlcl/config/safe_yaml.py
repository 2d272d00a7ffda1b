"""YAML files of a person: plain values, no repeated key, a bounded size, and the line of each key."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from yaml.constructor import ConstructorError

from mlcl.errors import UserError

MOST_CHARACTERS = 1 << 18
MOST_VALUES = 50_000
"""Largest number of values. Each alias counts all values of its anchor: a few lines can be gigabytes."""
MOST_DIGITS = 400
"""More digits than the largest float has; a number with thousands of digits takes minutes to read."""
UNWRITABLE = re.compile("[\0\x1b\x9b\ud800-\udfff]")
"""Characters that no path has and that a terminal takes for commands: NUL, escapes, lone surrogates."""


def read_yaml(path: str | Path) -> dict[str, Any]:
    """The mapping in a YAML file.

    Raises:
        UserError: if the file is missing, empty, malformed, or no mapping.
    """
    return read_yaml_lines(path)[0]


def read_yaml_lines(path: str | Path) -> tuple[dict[str, Any], dict[str, int]]:
    """The mapping in a YAML file, and the line of each dotted key.

    An item of a list has its index as the last part of its key.

    Raises:
        UserError: if the file is missing, empty, malformed, or no mapping.
    """
    path = Path(path)
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(MOST_CHARACTERS + 1)
    except FileNotFoundError:
        raise UserError("no such file", file=path) from None
    except (OSError, ValueError) as error:
        raise UserError("cannot be read", file=path, found=error) from None
    try:
        tree, root = _load(text)
    except yaml.YAMLError as error:
        raise UserError("not valid YAML", file=path, found=error) from None
    if not isinstance(tree, dict):
        raise UserError(
            "must be a mapping of keys", file=path, found="nothing" if tree is None else type(tree).__name__
        )
    return tree, {key: node.start_mark.line + 1 for key, node, _ in key_nodes(root)}


def load_yaml(text: str) -> Any:
    """The one document in `text`.

    Raises:
        yaml.YAMLError: if the text cannot be read. No other exception leaves this function.
    """
    return _load(text)[0]


def key_nodes(node: yaml.Node | None, prefix: str = "") -> Iterator[tuple[str, yaml.Node, yaml.Node]]:
    """Each dotted key below a node, with the nodes of the key and of its value."""
    if isinstance(node, yaml.MappingNode):
        pairs = [(str(key.value), key, value) for key, value in node.value]
    elif isinstance(node, yaml.SequenceNode):
        pairs = [(str(index), item, item) for index, item in enumerate(node.value)]
    else:
        return
    for name, key, value in pairs:
        yield f"{prefix}{name}", key, value
        yield from key_nodes(value, f"{prefix}{name}.")


def _load(text: str) -> tuple[Any, yaml.Node | None]:
    """The one document in `text` and its root node."""
    if len(text) > MOST_CHARACTERS:
        raise yaml.YAMLError(f"{len(text):,} characters, more than {MOST_CHARACTERS:,}")
    try:
        loader = _Loader(text)
        return loader.get_single_data(), loader.root
    except RecursionError:
        raise yaml.YAMLError("nested too deeply") from None
    except yaml.MarkedYAMLError as error:
        # Without the library's excerpt of the text, which may hold a secret.
        mark = error.problem_mark or error.context_mark
        where = f" (line {mark.line + 1}, column {mark.column + 1})" if mark else ""
        raise yaml.YAMLError(f"{error.problem or error.context}{where}") from None
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        # From the library's own reading of a tagged value, such as `!!bool x` or the date 2026-99-99.
        raise yaml.YAMLError(f"a value that cannot be read ({error})") from None


_TAG = "tag:yaml.org,2002:"
MERGE = f"{_TAG}merge"


class _Loader(yaml.SafeLoader):
    """Safe YAML in which a repeated key is an error; by default the last one would win silently."""

    root: yaml.Node | None = None

    def get_single_node(self) -> yaml.Node | None:
        self.root = super().get_single_node()
        if self.root is not None and _count(self.root, {}) > MOST_VALUES:
            raise ConstructorError(None, None, f"more than {MOST_VALUES:,} values", self.root.start_mark)
        return self.root

    def unique_mapping(self, node: yaml.MappingNode) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            if key_node.tag == MERGE:  # `<<: *anchor`, whose keys a mapping may overwrite
                continue
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, (str, int, float, bool, type(None))):
                raise ConstructorError(None, None, "a key must be plain text", key_node.start_mark)
            if key in seen:
                raise ConstructorError(None, None, f"key {key} stands twice", key_node.start_mark)
            seen.add(key)
        return self.construct_mapping(node, deep=True)

    def writable_text(self, node: yaml.ScalarNode) -> str:
        text = str(self.construct_scalar(node))
        if UNWRITABLE.search(text):
            raise ConstructorError(None, None, "a character that cannot be shown", node.start_mark)
        return text

    def short_int(self, node: yaml.ScalarNode) -> int:
        self._check_short(node)
        return int(self.construct_yaml_int(node))

    def short_float(self, node: yaml.ScalarNode) -> float:
        self._check_short(node)
        return float(self.construct_yaml_float(node))

    def _check_short(self, node: yaml.ScalarNode) -> None:
        if len(node.value) > MOST_DIGITS:
            raise ConstructorError(None, None, f"a number of more than {MOST_DIGITS} digits", node.start_mark)


def _count(node: yaml.Node, known: dict[int, int]) -> int:
    """The number of values in a node. A node that contains itself is refused when it is constructed."""
    if id(node) not in known:
        known[id(node)] = 1
        below = [part for pair in node.value for part in pair] if isinstance(node, yaml.MappingNode) else []
        if isinstance(node, yaml.SequenceNode):
            below = node.value
        known[id(node)] = 1 + sum(_count(part, known) for part in below)
    return known[id(node)]


_Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _Loader.unique_mapping)
_Loader.add_constructor(f"{_TAG}str", _Loader.writable_text)
_Loader.add_constructor(f"{_TAG}int", _Loader.short_int)
_Loader.add_constructor(f"{_TAG}float", _Loader.short_float)
# YAML 1.1 takes 1e-4, which has no dot, for text.
_Loader.add_implicit_resolver(f"{_TAG}float", re.compile(r"^[-+]?\d+[eE][-+]?\d+$"), list("-+0123456789"))
