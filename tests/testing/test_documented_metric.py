"""Tests that the metric of docs/plugins.md equals a loop over rows."""

import re
from types import ModuleType

import pytest

from mlcl.evaluation import METRICS
from mlcl.testing.metrics import MetricTestCase

NAME = "documented_metric"


@pytest.fixture(scope="module", autouse=True)
def _documented(root):
    code = (root / "docs" / "plugins.md").read_text()
    (block,) = [
        snippet for snippet in re.findall(r"```py\n(.*?)```", code, re.DOTALL) if "Metric(" in snippet
    ]
    module = ModuleType(NAME)
    exec(block, module.__dict__)
    METRICS.add(module, NAME)
    yield
    METRICS.remove(NAME)


@pytest.mark.parametrize(("name", "task"), [("one_error", "multi_label")])
class TestOneError(MetricTestCase):
    def loop(self, name, probabilities, targets, threshold):
        first = [p.index(max(p)) for p in probabilities]
        return sum(label not in labels for label, labels in zip(first, targets, strict=True)) / len(first)

    def pytest_generate_tests(self, metafunc):
        """Does nothing, because the name of the metric is given above and the metric is registered later."""
