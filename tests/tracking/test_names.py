import ast
import json
from pathlib import Path

import pytest

import mlcl
from mlcl.service.jobs.client import Metadata
from mlcl.tracking import State
from mlcl.tracking.names import VERSION_TAG, Tag, count_tag, space_file

ROOT = Path(mlcl.__file__).parent
OWN = {ROOT / "tracking" / "names.py", ROOT / "service" / "jobs" / "client.py"}
GROUPS = {f"mlcl.{kind}" for kind in ("losses", "encoders", "sources", "metrics", "baselines")}


def is_module(name: str) -> bool:
    """Whether the name is that of a module, or begins with a module of `mlcl`."""
    paths = [ROOT.parent.joinpath(*name.split(".")[:count]) for count in range(2, name.count(".") + 2)]
    return any(path.is_dir() or path.with_suffix(".py").is_file() for path in paths)


def is_tag(text: str) -> bool:
    """A tag, or the beginning of one: not a module, an entry-point group or a sentence."""
    if text in set(Tag):
        return True
    return text.startswith("mlcl.") and " " not in text and text not in GROUPS and not is_module(text)


def literals(source: str) -> list[str]:
    """All strings of a module, also the parts of f-strings, but for docstrings."""
    tree = ast.parse(source)
    documented = {
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    return [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in documented
    ]


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ('tags["mlcl.seed"]', ["mlcl.seed"]),
        ('f"mlcl.version.{name}"', ["mlcl.version."]),
        ('x = "mlflow.parentRunId"', ["mlflow.parentRunId"]),
        ('import_module(f"mlcl.data.sources.{name}")', []),
        ('entry_points(group="mlcl.losses")', []),
        ('"""mlcl.seed"""', []),
    ],
)
def test_a_tag_is_told_from_other_strings(source, found):
    assert [text for text in literals(source) if is_tag(text)] == found


def test_tags_are_spelled_in_one_module():
    spelled = {
        str(file.relative_to(ROOT)): found
        for file in sorted(ROOT.rglob("*.py"))
        if file not in OWN and (found := [text for text in literals(file.read_text()) if is_tag(text)])
    }
    assert spelled == {}


def test_tags_are_plain_text_to_json_and_to_format():
    assert json.dumps({Tag.SEED: Tag.STATE}) == '{"mlcl.seed": "mlcl.state"}'
    assert f"tags.`{Tag.PARENT}`" == "tags.`mlflow.parentRunId`"
    assert len({*Tag, *map(count_tag, State)}) == len(Tag) + len(State)


def test_names_do_not_change():
    assert count_tag(State.PRUNED) == "mlcl.sweep.pruned"
    assert f"{VERSION_TAG}torch" == "mlcl.version.torch"
    assert [space_file(number) for number in (0, 2)] == ["space.yaml", "space-2.yaml"]
    assert list(Metadata) == ["mlcl.id", "mlcl.attempt", "mlcl.command", "mlcl.user"]
