"""Tests the modules of mlcl/: their names, their imports and their length.

ruff checks docstrings, and import-linter checks layers.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
LONGEST_FILE = 350
LONGEST_FUNCTION = 60
NOT_NAMES = {
    "alone", "book", "borrowed", "charted", "desk", "fetched", "halt", "handover", "house", "judge",
    "learnt", "left", "look", "named", "pulls", "raised", "reach", "retell", "searched", "seen", "slots",
    "teller", "tested", "told", "torn", "untyped", "watch", "watching", "wish",
}  # fmt: skip
"""Words that no module name may have: metaphors, verbs and participles, which do not describe the file."""
NOT_VARIABLES = {"its", "each", "told", "wanted", "said", "held", "both", "these"}
SHARED_NAMES = {"Options", "Simplex", "LabelCollator"}
"""The names that several classes share because they mean the same: those of sources, spaces and adapters."""
NO_SUBJECT = re.compile("(The same|That of|Those|What|Which|How|Why|This) ")
"""Matches beginnings of a docstring that leave out its subject."""


def module_name(file: Path) -> str:
    parts = file.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def trees() -> dict[str, ast.Module]:
    return {module_name(file): ast.parse(file.read_text()) for file in sorted((ROOT / "mlcl").rglob("*.py"))}


def imports(tree: ast.Module, modules: set[str]) -> set[str]:
    """Returns the imported modules, including those imported inside functions and for types alone.

    The root package does not count, because every import of one of its modules imports it.
    """
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            full_names = {f"{node.module}.{alias.name}" for alias in node.names}
            names |= full_names & modules or {node.module}
    return names & modules - {"mlcl"}


def circles(graph: dict[str, set[str]]) -> set[frozenset[str]]:
    """Returns the strongly connected components of several nodes, and nodes with an edge to themselves.

    The algorithm is that of Tarjan (1972).
    """
    index, low, stack, components = {}, {}, [], set()

    def visit(node):
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in graph[node]:
            if other not in index:
                visit(other)
            if other in stack:
                low[node] = min(low[node], low[other])
        if low[node] == index[node]:
            position = stack.index(node)
            component = frozenset(stack[position:])
            del stack[position:]
            if len(component) > 1 or node in graph[node]:
                components.add(component)

    for node in graph:
        if node not in index:
            visit(node)
    return components


@pytest.mark.parametrize(
    ("graph", "expected"),
    [
        ({"a": {"b"}, "b": {"c"}, "c": set()}, []),
        ({"a": {"b"}, "b": {"a"}, "c": {"a"}}, ["ab"]),
        ({"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": {"e"}, "e": {"d"}, "f": {"f"}}, ["abc", "de", "f"]),
        ({"a": {"b", "c"}, "b": {"d"}, "c": {"d"}, "d": set()}, []),
        ({"a": {"b", "c"}, "b": {"a"}, "c": {"b"}}, ["abc"]),
    ],
)
def test_circles_are_found(graph, expected):
    assert circles(graph) == {frozenset(nodes) for nodes in expected}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("import mlcl.a.b", {"mlcl.a.b"}),
        ("from mlcl.a import b, c", {"mlcl.a.b"}),
        ("from mlcl.a import c", {"mlcl.a"}),
        ("def f():\n    from mlcl.a.b import c", {"mlcl.a.b"}),
        ("from mlcl import __version__\nimport torch", set()),
    ],
)
def test_imports_are_found(line, expected):
    assert imports(ast.parse(line), {"mlcl", "mlcl.a", "mlcl.a.b"}) == expected


def test_no_modules_import_each_other_in_a_circle():
    assert len(trees()) > 200
    graph = {name: imports(tree, set(trees())) for name, tree in trees().items()}
    assert sum(map(len, graph.values())) > len(graph)
    assert circles(graph) == set()


def test_modules_are_named_by_what_they_are():
    assert {name for name in trees() if NOT_NAMES & set(re.split(r"[._]", name))} == set()


def test_a_variable_is_named_by_what_it_holds():
    names = {
        f"{module}: {node.id if isinstance(node, ast.Name) else node.arg}"
        for module, tree in trees().items()
        for node in ast.walk(tree)
        if (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in NOT_VARIABLES)
        or (isinstance(node, ast.arg) and node.arg in NOT_VARIABLES)
    }
    assert names == set()


def test_no_file_is_long():
    lines = {file: len(file.read_text().splitlines()) for file in (ROOT / "mlcl").rglob("*.py")}
    assert {file: count for file, count in lines.items() if count > LONGEST_FILE} == {}


def test_no_function_is_long():
    lengths = {
        f"{module}.{node.name}": node.end_lineno - node.lineno + 1
        for module, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert len(lengths) > 1000
    assert {name: lines for name, lines in lengths.items() if lines > LONGEST_FUNCTION} == {}


def test_no_two_classes_share_a_name():
    names = Counter(
        node.name.lstrip("_")
        for tree in trees().values()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    )
    assert {name for name, count in names.items() if count > 1} == SHARED_NAMES


def test_a_docstring_begins_with_its_subject():
    texts = [
        node.value.value
        for tree in trees().values()
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    ]
    assert len(texts) > 1000
    assert [text for text in texts if isinstance(text, str) and NO_SUBJECT.match(text)] == []
