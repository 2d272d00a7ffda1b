import pytest
import torch


@pytest.fixture(scope="module")
def one_thread():
    """More threads make tiny networks slower, and their sums differ by the number of threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A tiny pretrained model of each kind, in a folder."""
    from tiny_models import KINDS, tiny_model  # skips where transformers is not installed

    return {kind: tiny_model(tmp_path_factory.mktemp(kind), kind) for kind in KINDS}
