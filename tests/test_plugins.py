"""Tests the registry: built-in plugins, plugins of installed packages, and errors in them."""

import importlib
import sys
from types import ModuleType

import pytest

from mlcl.losses import LossSpec
from mlcl.plugins import BUILT_IN, PluginError, Registry, UnknownPluginError

LOSS = "LossSpec(name={name!r}, labels='class', summary='s', source='s', dense=lambda c, a, d: c)"
CODE = f"""
from mlcl.losses import LossSpec
from mlcl.losses.rules.any import ANY

ONE = {LOSS.format(name="one")}
TWO = {LOSS.format(name="two")}
MINE = {LOSS.format(name="supcon")}
"""


class Packages:
    """Installed packages, each with a module `<name>_plugin` and entry points."""

    def __init__(self, folder):
        self.folder = folder

    def install(self, name, points, code=CODE):
        (self.folder / f"{name}_plugin.py").write_text(code)
        info = self.folder / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        lines = [f"{point} = {target}" for point, target in points.items()]
        (info / "entry_points.txt").write_text("\n".join(["[mlcl.losses]", *lines, ""]))
        importlib.invalidate_caches()

    def registry(self):
        return Registry("loss", "mlcl.losses", "mlcl.losses.rules", LossSpec)


@pytest.fixture
def packages(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    yield Packages(tmp_path)
    for name in [name for name in sys.modules if name.endswith("_plugin")]:
        del sys.modules[name]


def test_plugins_of_packages_are_found_after_the_built_in_ones(packages):
    packages.install("near", {"one": "near_plugin:ONE", "two": "near_plugin"})
    losses = packages.registry()
    assert "near_plugin" not in sys.modules
    assert list(losses)[-2:] == ["one", "two"]
    assert (losses.origins()["supcon"], losses.origins()["one"]) == (BUILT_IN, "near 1.0")
    assert "near_plugin" not in sys.modules
    assert losses["one"].name == "one"
    assert losses.origins()["any"] == BUILT_IN


def test_an_unknown_name_lists_the_nearest_and_where_the_others_come_from(packages):
    packages.install("near", {"one": "near_plugin:ONE"})
    with pytest.raises(UnknownPluginError, match=r"^unknown loss 'onee'$") as excinfo:
        packages.registry()["onee"]
    assert excinfo.value.hint == "; did you mean one?"
    assert {"one (near 1.0)", "supcon"} <= set(excinfo.value.allowed)
    assert packages.registry().get("onee") is None


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("near_plugin:NONE", "loss one of near 1.0: AttributeError"),
        ("far_plugin", "loss one of near 1.0: ModuleNotFoundError: No module named 'far_plugin'"),
        ("near_plugin:LossSpec", "loss one of near 1.0: found a type, allowed: a LossSpec"),
        ("near_plugin:TWO", "loss one of near 1.0: it declares two"),
        ("near_plugin:MINE", "loss supcon of near 1.0: the name is taken by built in"),
    ],
)
def test_a_broken_package_is_named_and_hides_no_other(packages, target, message):
    packages.install("near", {"one": target})
    losses = packages.registry()
    with pytest.raises(PluginError, match=message):
        losses["one"]
    assert "one" in losses
    assert losses["supcon"].name == "supcon"


def test_one_name_of_two_packages_is_no_plugin(packages):
    packages.install("near", {"one": "near_plugin:ONE"})
    packages.install("far", {"one": "far_plugin:ONE"})
    with pytest.raises(PluginError, match=r"loss one is declared by far 1.0 and near 1.0"):
        packages.registry()["one"]


@pytest.mark.parametrize("name", ["supcon", "himulcone"])  # the second one is in the module `himulcon`
def test_a_built_in_plugin_is_not_replaced(packages, name):
    packages.install("near", {name: "near_plugin:MINE"}, CODE.replace("supcon", name))
    losses = packages.registry()
    assert losses[name].summary != "s"
    assert losses.origins()[name] == BUILT_IN
    assert "near_plugin" not in sys.modules


def test_a_module_is_added_whole_or_not_at_all(packages):
    losses, module = packages.registry(), ModuleType("mine")
    exec(CODE, module.__dict__)
    with pytest.raises(PluginError, match="loss supcon of me: the name is taken by built in"):
        losses.add(module, "me")
    assert "one" not in losses
    del module.MINE
    assert losses.add(module, "me") == losses.add(module, "me") == ["one", "two"]
    losses.remove("me")
    assert "one" not in losses
