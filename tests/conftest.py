import os
from pathlib import Path

import pytest
from builders import text_dataset

# Before any library reads them: no telemetry, no hub, no stray configuration of the person who tests.
for name in ("MLFLOW_TRACKING_URI", "MLFLOW_RUN_ID", "RAY_ADDRESS", "MLCL_HOME"):
    os.environ.pop(name, None)
os.environ["HF_HUB_OFFLINE"] = "1"
# The suite shares the machine with itself: Ray must not kill trials because other tests use memory.
os.environ["RAY_memory_monitor_refresh_ms"] = "0"  # noqa: SIM112 (Ray's own spelling)


@pytest.fixture(scope="session")
def root() -> Path:
    """The clone."""
    return Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def tiny(tmp_path_factory) -> Path:
    """A small prepared data set of texts, see builders.text_dataset."""
    return text_dataset(tmp_path_factory.mktemp("data") / "tiny")
