"""The environment of the service's processes, without the secrets of the caller."""

from __future__ import annotations

import os

INHERITED = {
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR",
    "PYTHONPATH", "VIRTUAL_ENV", "CONDA_PREFIX", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH",
    "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "NO_PROXY", "no_proxy",
    "HF_HOME", "HF_HUB_OFFLINE", "TORCH_HOME", "XDG_CACHE_HOME",
}  # fmt: skip
PREFIXES = ("LC_", "OMP_", "MKL_", "CUDA_", "NVIDIA_", "NCCL_", "GLOO_")


def inherited_environment(*prefixes: str) -> dict[str, str]:
    """The variables of this process in `INHERITED`, and those with one of the prefixes."""
    wanted = (*PREFIXES, *prefixes)
    return {name: value for name, value in os.environ.items() if name in INHERITED or name.startswith(wanted)}
