"""The name under which a home keeps the address of a store."""

import pytest

from mlcl.tracking.uri import stored_uri


@pytest.mark.parametrize(
    ("uri", "kept"),
    [
        ("sqlite:///{home}/mlflow.db", "sqlite:///HOME/mlflow.db"),
        ("sqlite:////other/mlflow.db", "sqlite:////other/mlflow.db"),
        ("https://me:pw@host", "https://me:***@host"),
    ],
)
def test_a_store_in_the_home_is_the_same_wherever_the_home_is(tmp_path, uri, kept):
    assert stored_uri(uri.format(home=tmp_path), tmp_path) == kept.format(home=tmp_path)
