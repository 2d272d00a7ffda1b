"""How a store is named in a home."""

import pytest

from mlcl.tracking.uri import is_stored_uri, stored_uri

KEPT = ("sqlite:///HOME/mlflow.db", "sqlite:///{home}/mlflow.db", "sqlite:////gone/mlflow.db")


@pytest.mark.parametrize("kept", KEPT)
def test_a_store_in_the_home_is_the_same_wherever_the_home_is(tmp_path, kept):
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    assert stored_uri(uri, tmp_path) == "sqlite:///HOME/mlflow.db"
    assert is_stored_uri(kept.format(home=tmp_path), uri, tmp_path)


def test_another_store_is_another_one(tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    (other / "mlflow.db").touch()
    uri = f"sqlite:///{tmp_path}/home/mlflow.db"
    for kept in (f"sqlite:///{other}/mlflow.db", "sqlite:////gone/runs.db", "https://host", None):
        assert not is_stored_uri(kept, uri, tmp_path / "home")
    assert stored_uri("https://me:pw@host", tmp_path) == "https://me:***@host"
    assert not is_stored_uri("sqlite:////gone/mlflow.db", "https://host", tmp_path)
