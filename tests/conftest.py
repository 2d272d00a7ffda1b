import os
import shutil
import signal
import sys
from pathlib import Path

import mlflow_tables
import pytest
import surroundings  # noqa: F401 (first: it sets what libraries read when they are imported)
import tiers
from builders import text_dataset

from mlcl.plugins import REGISTRIES, registry

# A script's background process ignores SIGINT, one under nohup SIGHUP, and so would those that it starts.
for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, handler)


SHM = Path("/dev/shm")


def pytest_configure(config):
    """Puts temporary folders into memory where it has room, but not of slow tests, which install packages."""
    fits = SHM.is_dir() and os.access(SHM, os.W_OK) and shutil.disk_usage(SHM).free > 4 * 2**30
    if fits and config.option.markexpr in ("not slow", "quick"):
        # A third of the time on a slow disk is waiting for its syncs.
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(SHM))


def pytest_ignore_collect(collection_path, config):
    """Where quick tests alone are wanted, others are not even imported."""
    if config.option.markexpr == "quick" and collection_path.is_relative_to(tiers.TESTS):
        return tiers.is_full(collection_path.relative_to(tiers.TESTS).as_posix()) or None
    return None


def pytest_collection_modifyitems(items):
    tiers.mark(items)


def pytest_runtest_setup(item):
    mlflow_tables.copy_tables(not item.nodeid.startswith("tests/tracking/"))
    if item.get_closest_marker("gpu") is not None:
        import torch

        if not torch.cuda.is_available():
            pytest.skip("needs a CUDA device")


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


@pytest.fixture
def forgotten_plugin_files():
    """After the test, plugin files that it ran are neither registered nor imported."""
    yield
    for plural in REGISTRIES:
        kind = registry(plural)
        for origin in {origin for origin in kind.origins().values() if "sha256:" in origin}:
            kind.remove(origin)
    for name in [name for name in sys.modules if name.startswith("mlcl_plugin_")]:
        del sys.modules[name]


@pytest.fixture(scope="session")
def tiny(tmp_path_factory) -> Path:
    """A small prepared data set of texts, see builders.text_dataset."""
    return text_dataset(tmp_path_factory.mktemp("data") / "tiny")


@pytest.fixture(scope="module")
def one_thread():
    """More threads make tiny networks slower, and their sums differ by the number of threads."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def models(tmp_path_factory):
    """A tiny pretrained model of each kind, in a folder."""
    from tiny_models import KINDS, tiny_model  # skips where transformers is not installed

    return {kind: tiny_model(tmp_path_factory.mktemp(kind), kind) for kind in KINDS}
