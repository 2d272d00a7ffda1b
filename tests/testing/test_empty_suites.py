"""Tests that a suite without anything to test fails with an error, where pytest would skip its tests."""

from types import SimpleNamespace

import pytest
from pydantic import BaseModel

from mlcl.data import Source
from mlcl.evaluation.metric import METRICS, EmbeddingMetric
from mlcl.testing.encoders import EncoderTestCase
from mlcl.testing.losses import LossTestCase
from mlcl.testing.metrics import MetricTestCase
from mlcl.testing.sources import SourceTestCase


@pytest.mark.parametrize(
    ("suite", "key", "fixture"),
    [
        (LossTestCase, "names", "case"),
        (MetricTestCase, "names", "task"),
        (EncoderTestCase, "sections", "written"),
    ],
)
@pytest.mark.parametrize("given", [(), "dice"])
def test_a_suite_without_a_list_of_what_to_test_is_an_error(suite, key, fixture, given):
    suite_class = type("TestMine", (suite,), {"name": "dice", key: given})
    with pytest.raises(pytest.Collector.CollectError, match=rf"TestMine\.{key}; found: .*; allowed: a list"):
        suite_class().pytest_generate_tests(SimpleNamespace(fixturenames=[fixture]))


def test_a_suite_of_metrics_of_embeddings_alone_is_an_error():
    names = [name for name, metric in METRICS.items() if isinstance(metric, EmbeddingMetric)]
    suite_class = type("TestMine", (MetricTestCase,), {"names": names[:1]})
    with pytest.raises(pytest.Collector.CollectError, match=f"of predictions; found: {names[0]}"):
        suite_class().pytest_generate_tests(SimpleNamespace(fixturenames=["task"]))


def test_a_source_with_files_needs_a_state(tmp_path):
    class TestMine(SourceTestCase):
        name = "mine"
        files = {"texts.txt": "one\n"}

    source = Source("mine", "texts", "CC0", version="1", options=BaseModel, read=lambda *_: None)
    with pytest.raises(AssertionError, match="mine reads files, so it needs a state"):
        TestMine().test_its_state_changes_with_each_file(source, tmp_path, {})
