"""Reads YAML files of limited size that have plain values and no repeated keys, and the lines of the keys.

PyYAML follows YAML 1.1. Here, as in YAML 1.2, `on`, `off`, `yes` and `no` are text, which a key with a truth
value accepts too. Numbers in octal or base 60 and dates are refused, since few people mean them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from copy import deepcopy
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml
from yaml.constructor import ConstructorError

from mlcl.errors import UserError

MOST_CHARACTERS = 1 << 21
"""The largest length of a text; a job has the texts of its plugin files, of at most 2^20 characters each."""
MOST_VALUES = 50_000
"""The largest number of values. An alias counts as all values of its anchor: nested aliases multiply."""
MOST_NESTED = 100
"""The largest depth of nested collections. PyYAML's time grows with the square of the depth."""
MOST_DIGITS = 400
"""The largest number of digits of a number. Reading thousands of digits can take minutes."""
OCTAL = re.compile(r"[-+]?0[0-7_]+$")
UNWRITABLE = re.compile("[\0\x1b\x9b\ud800-\udfff]")
"""Characters that are refused: NUL, lone surrogates, and those that start a terminal's control sequences."""


def read_yaml(path: str | Path) -> dict[str, Any]:
    """Returns the mapping in a YAML file. Raises UserError for a missing or malformed file."""
    return read_yaml_lines(path)[0]


def read_yaml_lines(path: str | Path) -> tuple[dict[str, Any], dict[str, int]]:
    """Returns the mapping in a YAML file, and the line of each key; an item of a list has `KEY.INDEX`."""
    path = Path(path)
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(MOST_CHARACTERS + 1)
    except FileNotFoundError:
        raise UserError("no such file", file=path) from None
    except (OSError, ValueError) as error:
        raise UserError("cannot be read", file=path, found=error) from None
    try:
        tree, lines = deepcopy(_tree_and_lines(text))
    except yaml.YAMLError as error:
        raise UserError("not valid YAML", file=path, found=error) from None
    if not isinstance(tree, dict):
        raise UserError(
            "must be a mapping of keys", file=path, found="nothing" if tree is None else type(tree).__name__
        )
    return tree, lines


@lru_cache(maxsize=128)  # all cells of a table read the same few files
def _tree_and_lines(text: str) -> tuple[Any, dict[str, int]]:
    """Returns the value of a YAML text, and the line of each dotted key. The caller must copy them."""
    tree, root = _load(text)
    return tree, {key: node.start_mark.line + 1 for key, node, _ in key_nodes(root)}


def load_yaml(text: str) -> Any:
    """Returns the value of a YAML text that has one document. Raises yaml.YAMLError, and nothing else."""
    return _load(text)[0]


def dump_yaml(tree: Any, **options: Any) -> str:
    """Returns plain data as YAML that `load_yaml` reads back, with keys in their order.

    `options` are those of `yaml.dump`, such as `width`. Raises YAMLError for a value that YAML lacks.
    """
    text: str = yaml.dump(tree, Dumper=_Dumper, sort_keys=False, **options)
    return text


def key_nodes(node: yaml.Node | None, prefix: str = "") -> Iterator[tuple[str, yaml.Node, yaml.Node]]:
    """Yields each dotted key below a node, with the nodes of the key and of its value."""
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
    """Returns the value and the root node of a YAML text that has one document."""
    if len(text) > MOST_CHARACTERS:
        raise yaml.YAMLError(f"{len(text):,} characters, more than {MOST_CHARACTERS:,}")
    try:
        loader = _Loader(text)
        return loader.get_single_data(), loader.root
    except RecursionError:
        raise yaml.YAMLError("nested too deeply") from None
    except yaml.MarkedYAMLError as error:
        # The excerpt of the text in PyYAML's message is left out, since it may contain a secret.
        mark = error.problem_mark or error.context_mark
        position = f" (line {mark.line + 1}, column {mark.column + 1})" if mark else ""
        raise yaml.YAMLError(f"{error.problem or error.context}{position}") from None
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        # PyYAML raises these for some values, such as `!!bool x` or `!!int x`.
        raise yaml.YAMLError(f"a value that cannot be read ({error})") from None


_TAG = "tag:yaml.org,2002:"
_EXPONENT = re.compile(r"^[-+]?\d+[eE][-+]?\d+$")
"""Matches numbers such as 1e-4, which are text in YAML 1.1."""
MERGE = f"{_TAG}merge"


class _Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc] # in C: ten times as fast
    """PyYAML's safe dumper, which also quotes texts that `_Loader` reads as numbers."""


_Dumper.add_implicit_resolver(f"{_TAG}float", _EXPONENT, list("-+0123456789"))


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader, which also refuses repeated keys, deep nesting, many values and long numbers."""

    root: yaml.Node | None = None
    nested = 0
    composed = 0

    def get_single_node(self) -> yaml.Node | None:
        self.root = super().get_single_node()
        if self.root is not None and _count_values(self.root, {}) > MOST_VALUES:
            raise ConstructorError(None, None, f"more than {MOST_VALUES:,} values", self.root.start_mark)
        return self.root

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        self.composed += 1  # before aliases are resolved, so that a long list ends early
        if parent and self.composed > MOST_VALUES:
            raise ConstructorError(None, None, f"more than {MOST_VALUES:,} values", parent.start_mark)
        if parent and self.nested > MOST_NESTED:
            raise ConstructorError(None, None, "nested too deeply", parent.start_mark)
        self.nested += 1
        node: yaml.Node | None = super().compose_node(parent, index)
        self.nested -= 1
        return node

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        """Composes a mapping, and checks its keys before those of its merge keys are added."""
        node: yaml.MappingNode = super().compose_mapping_node(anchor)
        keys: set[Any] = set()
        for key_node, _ in node.value:
            if key_node.tag == MERGE:  # a mapping may overwrite the keys of `<<: *anchor`
                continue
            if not isinstance(key_node, yaml.ScalarNode):
                raise ConstructorError(None, None, "a key must be plain text", key_node.start_mark)
            key = self.construct_object(key_node, deep=True)
            if key in keys:
                raise ConstructorError(None, None, f"key {key} stands twice", key_node.start_mark)
            keys.add(key)
        return node

    def whole_mapping(self, node: yaml.MappingNode) -> dict[Any, Any]:
        return self.construct_mapping(node, deep=True)

    def writable_text(self, node: yaml.ScalarNode) -> str:
        text = str(self.construct_scalar(node))
        if UNWRITABLE.search(text):
            raise ConstructorError(None, None, "a character that cannot be shown", node.start_mark)
        return text

    def decimal_int(self, node: yaml.ScalarNode) -> int:
        self._check_number(node)
        return int(self.construct_yaml_int(node))

    def decimal_float(self, node: yaml.ScalarNode) -> float:
        self._check_number(node)
        return float(self.construct_yaml_float(node))

    def _check_number(self, node: yaml.ScalarNode) -> None:
        if len(node.value) > MOST_DIGITS:
            raise ConstructorError(None, None, f"a number of more than {MOST_DIGITS} digits", node.start_mark)
        if OCTAL.match(node.value):
            problem = "a number with a leading 0 would be octal: leave the 0 out, or quote a text"
            raise ConstructorError(None, None, problem, node.start_mark)
        if ":" in node.value:
            problem = "digits with a colon would be of base 60: write a decimal number, or quote a text"
            raise ConstructorError(None, None, problem, node.start_mark)

    def no_date(self, node: yaml.ScalarNode) -> None:
        raise ConstructorError(None, None, "no key has a date: quote a text", node.start_mark)


def _count_values(node: yaml.Node, counts: dict[int, int]) -> int:
    """Counts the values in a node. A node that contains itself counts once: PyYAML refuses it later."""
    if id(node) not in counts:
        counts[id(node)] = 1
        parts = [part for pair in node.value for part in pair] if isinstance(node, yaml.MappingNode) else []
        if isinstance(node, yaml.SequenceNode):
            parts = node.value
        counts[id(node)] = 1 + sum(_count_values(part, counts) for part in parts)
    return counts[id(node)]


_Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _Loader.whole_mapping)
_Loader.add_constructor(f"{_TAG}str", _Loader.writable_text)
_Loader.add_constructor(f"{_TAG}int", _Loader.decimal_int)
_Loader.add_constructor(f"{_TAG}float", _Loader.decimal_float)
_Loader.add_constructor(f"{_TAG}timestamp", _Loader.no_date)
# PyYAML would read 1e-4 as a string, since it has no dot.
_Loader.add_implicit_resolver(f"{_TAG}float", _EXPONENT, list("-+0123456789"))
# The first call above has copied the table of SafeLoader's resolvers, which PyYAML's other loaders share.
for _start, _resolvers in _Loader.yaml_implicit_resolvers.items():
    _kept_resolvers = [resolver for resolver in _resolvers if resolver[0] != f"{_TAG}bool"]
    _Loader.yaml_implicit_resolvers[_start] = _kept_resolvers
_Loader.add_implicit_resolver(f"{_TAG}bool", re.compile("^(true|True|TRUE|false|False|FALSE)$"), list("tTfF"))
