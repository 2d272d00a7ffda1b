"""YAML as a person writes it: plain values alone, no key twice, and no more than a file of settings has."""

from __future__ import annotations

import re
from typing import Any

import yaml
from yaml.constructor import ConstructorError

MOST_CHARACTERS = 1 << 18
MOST_VALUES = 50_000
"""Aliases count as often as what they stand for: a few lines of them can be gigabytes."""
MOST_DIGITS = 400
"""More than the largest float has; a number of thousands takes minutes to read."""
UNWRITABLE = re.compile("[\0\x1b\x9b\ud800-\udfff]")
"""No path has them, and terminals take them for commands: NUL, the escapes, halves of a character."""


def load_yaml(text: str) -> Any:
    """The one document in `text`. Raises yaml.YAMLError, and nothing else, for what cannot be read."""
    if len(text) > MOST_CHARACTERS:
        raise yaml.YAMLError(f"{len(text):,} characters, more than {MOST_CHARACTERS:,}")
    try:
        return yaml.load(text, Loader=_Loader)
    except RecursionError:
        raise yaml.YAMLError("nested too deeply") from None
    except yaml.MarkedYAMLError as error:
        # Without the library's excerpt of the text: it may be of a secret.
        mark = error.problem_mark or error.context_mark
        place = f" (line {mark.line + 1}, column {mark.column + 1})" if mark else ""
        raise yaml.YAMLError(f"{error.problem or error.context}{place}") from None
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        # From the library's own reading of a tagged value, such as `!!bool x` or the date 2026-99-99.
        raise yaml.YAMLError(f"a value that cannot be read ({error})") from None


class _Loader(yaml.SafeLoader):
    """Safe YAML in which a repeated key is an error instead of silently the last one."""

    def get_single_node(self) -> yaml.Node | None:
        node: yaml.Node | None = super().get_single_node()
        if node is not None and _count(node, {}) > MOST_VALUES:
            raise ConstructorError(None, None, f"more than {MOST_VALUES:,} values", node.start_mark)
        return node

    def unique_mapping(self, node: yaml.MappingNode) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
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
    """The values of a node and of those below it. What holds itself is refused later."""
    if id(node) not in known:
        known[id(node)] = 1
        below = [part for pair in node.value for part in pair] if isinstance(node, yaml.MappingNode) else []
        if isinstance(node, yaml.SequenceNode):
            below = node.value
        known[id(node)] = 1 + sum(_count(part, known) for part in below)
    return known[id(node)]


_TAG = "tag:yaml.org,2002:"
_Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _Loader.unique_mapping)
_Loader.add_constructor(f"{_TAG}str", _Loader.writable_text)
_Loader.add_constructor(f"{_TAG}int", _Loader.short_int)
_Loader.add_constructor(f"{_TAG}float", _Loader.short_float)
# YAML 1.1 takes 1e-4, which has no dot, for text.
_Loader.add_implicit_resolver(f"{_TAG}float", re.compile(r"^[-+]?\d+[eE][-+]?\d+$"), list("-+0123456789"))
