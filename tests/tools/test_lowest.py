"""Tests of tools/lowest.py, which lists the lowest versions that `make test-lowest` installs."""

import importlib.util

import pytest


@pytest.fixture
def tool(root):
    spec = importlib.util.spec_from_file_location("lowest", root / "tools" / "lowest.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_floor_becomes_a_version_and_our_own_extras_none(tool):
    requirements = ["ray[default,tune]>=2.54,<3", "numpy>=2.0.1", "mlcl[train]", "numpy>=2.10"]
    assert tool.lowest(requirements) == ["numpy==2.0.1", "ray==2.54"]


@pytest.mark.parametrize("line", ["torch", "torch<3", "torch==2.4"])
def test_a_requirement_without_a_floor_is_refused(tool, line):
    with pytest.raises(ValueError, match="gives no lowest version"):
        tool.lowest([line])


def test_every_package_of_the_project_has_a_floor(tool, capsys):
    tool.main()
    assert {"torch", "pandas", "ray", "mlflow"} <= {
        line.partition("==")[0] for line in capsys.readouterr().out.split()
    }
