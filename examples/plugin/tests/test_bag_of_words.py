"""The encoder passes what every encoder passes."""

import pytest

from mlcl.testing.encoders import EncoderTestCase


class TestBagOfWords(EncoderTestCase):
    """Small, as each test trains it."""

    @pytest.fixture
    def section(self):
        """The encoder's section of a job."""
        return {"name": "bag_of_words", "width": 4, "vocabulary": 50, "max_length": 8}
