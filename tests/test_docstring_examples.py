"""Tests that the examples in docstrings of the public packages run as they are printed."""

import doctest
import importlib
import pkgutil
from typing import Literal

import pytest
import torch

from mlcl.labels import LabelRows

PACKAGES = ("mlcl.losses", "mlcl.models", "mlcl.evaluation", "mlcl.samplers")


def modules():
    for package in map(importlib.import_module, PACKAGES):
        for module_info in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
            yield importlib.import_module(module_info.name), package
    yield importlib.import_module("mlcl.grad_cache"), importlib.import_module("mlcl.losses")


def examples():
    """Yields each docstring with an example, which can use the names of its module and of the package."""
    for module, package in modules():
        names = {"torch": torch, "LabelRows": LabelRows, "Literal": Literal, **vars(package), **vars(module)}
        for test in doctest.DocTestFinder().find(module, globs=names):
            if test.examples:
                yield test


EXAMPLES = {test.name: test for test in examples()}


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_gives_what_it_prints(name):
    torch.manual_seed(0)
    runner = doctest.DocTestRunner()
    lines = []
    runner.run(EXAMPLES[name], out=lines.append)
    assert runner.summarize(verbose=False).failed == 0, "".join(lines)


@pytest.mark.parametrize(
    "name",
    [
        "losses.factory.build_loss",
        "losses.spec.LossSpec",
        "evaluation.scores.evaluate",
        "models.heads.Projection",
    ],
)
def test_what_users_call_first_has_an_example(name):
    assert f"mlcl.{name}" in EXAMPLES
