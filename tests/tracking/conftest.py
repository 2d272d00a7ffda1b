import pytest
from tracking.logs import Logs


@pytest.fixture
def logs(tmp_path):
    return Logs(tmp_path / "home")


@pytest.fixture(scope="session")
def shared(tmp_path_factory):
    """Logs of many tests in one store, each in an experiment of its own: making a store takes seconds."""
    folder = tmp_path_factory.mktemp("shared")

    def make(experiment):
        return Logs(folder / experiment, f"sqlite:///{folder}/mlflow.db", experiment)

    return make
