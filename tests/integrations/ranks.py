"""Helpers of the adapters' tests: splits of eight rows over two processes, and their environment."""

import os
import re
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import torch

SPLITS = [(4, 4), (3, 5), (8, 0)]
ROWS = 8


def rows_of(rank, split):
    """Returns the rows of a rank, as a slice."""
    start = sum(split[:rank])
    return slice(start, start + split[rank])


@contextmanager
def launched(rank, world=2):
    """Sets the variables of torchrun, which Accelerate and Lightning read besides the process group."""
    names = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world, "LOCAL_WORLD_SIZE": world, "NODE_RANK": 0}
    values = {name: str(value) for name, value in names.items()}
    with mock.patch.dict(os.environ, {**values, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}):
        yield


def gradients_of(module):
    return {name: p.grad.clone() for name, p in module.named_parameters() if p.grad is not None}


def close(found, expected):
    assert set(found) == set(expected)
    for name, gradient in expected.items():
        torch.testing.assert_close(
            found[name], gradient, rtol=1e-6, atol=1e-9, msg=lambda t, n=name: f"{n}: {t}"
        )


def documented(name):
    """Returns the code that docs/losses/using.md shows for an adapter."""
    page = Path(__file__).parents[2] / "docs" / "losses" / "using.md"
    blocks = re.findall(r"^```py\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    (code,) = [block for block in blocks if f"mlcl.integrations.{name} import" in block]
    return code
