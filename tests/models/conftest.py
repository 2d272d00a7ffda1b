import pytest
import torch


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Tensors this small cost more to share out than to compute, above all on a loaded machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
