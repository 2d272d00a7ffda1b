import ast
import json
from pathlib import Path

import mlcl
from mlcl.service.jobs.client import Metadata
from mlcl.tracking import State
from mlcl.tracking.names import VERSION_TAG, Tag, count_tag, space_file

ROOT = Path(mlcl.__file__).parent
OWN = {ROOT / "tracking" / "names.py", ROOT / "service" / "jobs" / "client.py"}
GROUPS = {f"mlcl.{kind}" for kind in ("losses", "encoders", "sources", "metrics", "baselines")}
SOURCE = '''
"""mlcl.seed"""
tags["mlcl.seed"], f"mlcl.version.{name}", "mlflow.parentRunId"
import_module(f"mlcl.data.sources.{name}"), entry_points(group="mlcl.losses")
'''
"""The source of a module with three tags, a docstring, a module's name and an entry-point group."""


def is_module(name: str) -> bool:
    """Returns whether the name is that of a module, or begins with a module of `mlcl`."""
    paths = [ROOT.parent.joinpath(*name.split(".")[:count]) for count in range(2, name.count(".") + 2)]
    return any(path.is_dir() or path.with_suffix(".py").is_file() for path in paths)


def spelled(source: str) -> list[str]:
    """Returns the strings of a module, without docstrings, that are tags or beginnings of tags."""
    tree = ast.parse(source)
    docstrings = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    texts = [n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and n not in docstrings]
    tags = (text for text in texts if isinstance(text, str) and text.startswith("mlcl.") and " " not in text)
    prefixes = {text for text in tags if text not in GROUPS and not is_module(text)}
    return [text for text in texts if text in set(Tag) | prefixes]


def test_tags_are_spelled_in_one_module():
    assert sorted(spelled(SOURCE)) == ["mlcl.seed", "mlcl.version.", "mlflow.parentRunId"]
    files = [file for file in sorted(ROOT.rglob("*.py")) if file not in OWN]
    assert {str(file): tags for file in files if (tags := spelled(file.read_text()))} == {}


def test_names_are_plain_text_and_do_not_change():
    assert json.dumps({Tag.SEED: Tag.STATE}) == '{"mlcl.seed": "mlcl.state"}'
    assert f"tags.`{Tag.PARENT}`" == "tags.`mlflow.parentRunId`"
    assert len({*Tag, *map(count_tag, State)}) == len(Tag) + len(State)
    assert (count_tag(State.PRUNED), f"{VERSION_TAG}torch") == ("mlcl.sweep.pruned", "mlcl.version.torch")
    assert [space_file(number) for number in (0, 2)] == ["space.yaml", "space-2.yaml"]
    assert list(Metadata) == ["mlcl.id", "mlcl.attempt", "mlcl.command", "mlcl.user"]
