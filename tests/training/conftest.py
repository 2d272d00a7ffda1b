import pytest
from builders import text_dataset


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    return text_dataset(tmp_path_factory.mktemp("data") / "tiny")
