from pathlib import Path

import pytest
import surroundings  # noqa: F401 (first: it sets what libraries read when they are imported)
import tiers
from builders import text_dataset


def pytest_ignore_collect(collection_path, config):
    """Where quick tests alone are wanted, others are not even imported."""
    if config.option.markexpr == "quick" and collection_path.is_relative_to(tiers.TESTS):
        return tiers.is_full(collection_path.relative_to(tiers.TESTS).as_posix()) or None
    return None


def pytest_collection_modifyitems(items):
    tiers.mark(items)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    if item.get_closest_marker("quick") is None:
        return (yield)
    with tiers.guarded(item.name):
        return (yield)


@pytest.fixture(scope="session")
def root() -> Path:
    """The clone."""
    return Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def tiny(tmp_path_factory) -> Path:
    """A small prepared data set of texts, see builders.text_dataset."""
    return text_dataset(tmp_path_factory.mktemp("data") / "tiny")
