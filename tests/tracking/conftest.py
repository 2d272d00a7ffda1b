import pytest
from tracking.logs import Logs


@pytest.fixture
def logs(tmp_path):
    return Logs(tmp_path / "home")


@pytest.fixture(scope="session")
def shared(tmp_path_factory):
    """Returns a function that makes logs in one shared store, each in its own experiment, to save time."""
    folder = tmp_path_factory.mktemp("shared")

    def make(experiment):
        return Logs(folder / experiment, f"sqlite:///{folder}/mlflow.db", experiment)

    return make
