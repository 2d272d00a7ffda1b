import pytest
import torch


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Tensors this small cost more to share out than to compute, above all on a loaded machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A tiny pretrained model of each kind, in a folder."""
    from tiny_models import KINDS, tiny_model  # skips where transformers is not installed

    return {kind: tiny_model(tmp_path_factory.mktemp(kind), kind) for kind in KINDS}
