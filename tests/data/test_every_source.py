"""Tests that every built-in source has a test case of the suite for sources."""

import re
from pathlib import Path

from mlcl.data import SOURCES


def test_every_source_has_a_test_case():
    texts = [file.read_text() for file in Path(__file__).parent.glob("test_*.py")]
    tested_names = [
        name for text in texts for name in re.findall(r'\(\w*TestCase\):\n    name = "(\w+)"', text)
    ]
    assert sorted(tested_names) == sorted(SOURCES)
