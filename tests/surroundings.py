"""Changes of the environment for all tests; imported before any library reads it."""

import os
from pathlib import Path

# No telemetry, no hub, no stray configuration of the person who tests.
for name in ("MLFLOW_TRACKING_URI", "MLFLOW_RUN_ID", "RAY_ADDRESS", "MLCL_HOME"):
    os.environ.pop(name, None)
os.environ["HF_HUB_OFFLINE"] = "1"
# The suite shares the machine with itself: Ray must not kill trials because other tests use memory.
os.environ["RAY_memory_monitor_refresh_ms"] = "0"  # noqa: SIM112 (Ray's own spelling)
# Threads that wait for one another on a busy machine cost more than they compute on tensors this small.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Without a GPU, Triton interprets kernels on the processor.
if not Path("/dev/nvidiactl").exists():
    os.environ["TRITON_INTERPRET"] = "1"
