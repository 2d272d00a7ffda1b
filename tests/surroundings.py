"""Environment variables for all tests, set before any library reads them."""

import os
from pathlib import Path

# Tests use no telemetry, no hub and no configuration of the user.
for name in ("MLFLOW_TRACKING_URI", "MLFLOW_RUN_ID", "RAY_ADDRESS", "MLCL_HOME"):
    os.environ.pop(name, None)
os.environ["HF_HUB_OFFLINE"] = "1"
# Other tests use memory at the same time, and Ray must not kill trials for that.
os.environ["RAY_memory_monitor_refresh_ms"] = "0"  # noqa: SIM112 (Ray's own spelling)
# Threads that wait for one another on a busy machine cost more than they compute on tensors this small.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Without a GPU, Triton interprets kernels on the CPU.
if not Path("/dev/nvidiactl").exists():
    os.environ["TRITON_INTERPRET"] = "1"
