"""The environment of the service's processes: what they need of the caller's, and no secret of it."""

from __future__ import annotations

import os

PASSED = {
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR",
    "PYTHONPATH", "VIRTUAL_ENV", "CONDA_PREFIX", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH",
    "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "NO_PROXY", "no_proxy",
    "HF_HOME", "HF_HUB_OFFLINE", "TORCH_HOME", "XDG_CACHE_HOME",
}  # fmt: skip
PREFIXES = ("LC_", "OMP_", "MKL_", "CUDA_", "NVIDIA_", "NCCL_", "GLOO_")


def inherited(*prefixes: str) -> dict[str, str]:
    """The variables that say where things are on this machine, and those with one of the prefixes."""
    wanted = (*PREFIXES, *prefixes)
    return {name: value for name, value in os.environ.items() if name in PASSED or name.startswith(wanted)}
