"""Tests that an error about a missing module names the extra that installs it."""

import re
import sys
from importlib.metadata import packages_distributions

import pytest
from project import PROJECT

import mlcl
from mlcl import extras


@pytest.mark.parametrize(
    ("module", "extra"),
    [("ray.tune", "sweep"), ("yaml", "train"), ("flask_wtf", "service"), ("peft", "lora")],
)
def test_the_line_names_package_and_extra(module, extra, monkeypatch):
    monkeypatch.setattr(extras, "find_spec", lambda name: None)
    error = ModuleNotFoundError(f"No module named {module!r}", name=module)
    package = module.partition(".")[0]
    assert extras.missing_extra(error) == f"needs the package {package}: pip install 'mlcl[{extra}]'"


def test_a_module_of_no_extra_has_no_line():
    assert extras.missing_extra(ModuleNotFoundError("No module named 'x'", name="x")) == ""
    assert extras.missing_extra(ImportError("cannot import", name="ray")) == ""
    error = ModuleNotFoundError("No module named 'numpy.nothing'", name="numpy.nothing")
    assert extras.missing_extra(error) == ""


def test_a_function_says_what_it_needs(monkeypatch):
    monkeypatch.setitem(extras.EXTRAS, "sweep", ("no_such_module",))
    monkeypatch.delitem(vars(mlcl), "compare", raising=False)  # an earlier access may have set the attribute
    with pytest.raises(ImportError, match=r"^mlcl.compare needs the package no_such_module: pip install"):
        _ = mlcl.compare
    assert callable(mlcl.load_model)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 knows the modules of few packages")
@pytest.mark.parametrize("extra", extras.EXTRAS)
def test_modules_are_those_of_the_declared_packages(extra):
    requirements = PROJECT["optional-dependencies"][extra]
    names = {re.match(r"[\w.-]+", requirement)[0].lower().replace("_", "-") for requirement in requirements}
    included_extra = extras.INCLUDED.get(extra)
    assert (f"mlcl[{included_extra}]" in requirements) == (included_extra is not None)
    distributions = packages_distributions()
    providers = {"pydantic_core": "pydantic", "markupsafe": "jinja2", "flask_wtf": "mlflow"}
    for module in extras.EXTRAS[extra]:
        module_packages = {name.lower().replace("_", "-") for name in distributions.get(module, ())}
        assert module_packages & names or providers.get(module) in names, module
