"""Tests that the encoder passes the tests of every encoder."""

import pytest

from mlcl.testing.encoders import EncoderTestCase


class TestBagOfWords(EncoderTestCase):
    """Tests a small encoder, because each test trains one."""

    @pytest.fixture
    def section(self):
        """Returns the encoder's section of a job."""
        return {"name": "bag_of_words", "width": 4, "vocabulary": 50, "max_length": 8}
