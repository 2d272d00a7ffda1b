from pathlib import Path

import pytest
import surroundings  # noqa: F401 (first: it sets what libraries read when they are imported)
from builders import text_dataset


@pytest.fixture(scope="session")
def root() -> Path:
    """The clone."""
    return Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def tiny(tmp_path_factory) -> Path:
    """A small prepared data set of texts, see builders.text_dataset."""
    return text_dataset(tmp_path_factory.mktemp("data") / "tiny")
