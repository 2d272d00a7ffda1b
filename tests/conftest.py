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

# The background process of a script ignores SIGINT, and one under nohup SIGHUP; its children would, too.
for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, handler)


SHM = Path("/dev/shm")


def pytest_configure(config):
    """Puts temporary folders into memory if it has room, except for slow tests, which install packages."""
    fits = SHM.is_dir() and os.access(SHM, os.W_OK) and shutil.disk_usage(SHM).free > 4 * 2**30
    if fits and config.option.markexpr in ("not slow", "quick"):
        # A third of the time on a slow disk is spent waiting for syncs.
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(SHM))


def pytest_ignore_collect(collection_path, config):
    """Skips the import of other test files if only quick tests are selected."""
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
    """Returns the folder of the repository."""
    return Path(__file__).resolve().parent.parent


@pytest.fixture
def forgotten_plugin_files():
    """Unregisters and unloads, after the test, the plugin files that it ran."""
    yield
    for plural in REGISTRIES:
        kind = registry(plural)
        for origin in {origin for origin in kind.origins().values() if "sha256:" in origin}:
            kind.remove(origin)
    for name in [name for name in sys.modules if name.startswith("mlcl_plugin_")]:
        del sys.modules[name]


@pytest.fixture(scope="session")
def tiny(tmp_path_factory) -> Path:
    """Returns a small prepared data set of texts, see builders.text_dataset."""
    return text_dataset(tmp_path_factory.mktemp("data") / "tiny")


@pytest.fixture(scope="module")
def one_thread():
    """Limits PyTorch to one thread: more make tiny networks slower, and sums depend on their number."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def models(tmp_path_factory):
    """Returns a tiny pretrained model of each kind, each in a folder."""
    from tiny_models import KINDS, tiny_model  # skips the test if transformers is not installed

    return {kind: tiny_model(tmp_path_factory.mktemp(kind), kind) for kind in KINDS}
