"""Tests that no command runs the code in a hostile checkpoint that replaces that of a stopped run."""

import os
import pickle
import signal

import pytest
import torch
from e2e.conftest import Cli
from patience import until
from security.hostile import Hostile

from mlcl.training.checkpoint import PREVIOUS, VERSION

WAYS = {
    "a pickle": lambda hostile, file: file.write_bytes(pickle.dumps(hostile)),
    "among tensors": lambda hostile, file: torch.save({"version": VERSION, "model": hostile}, file),
    "optimiser": lambda hostile, file: replace(file, "optimizer", hostile),
    "random state": lambda hostile, file: replace(file, "rng", hostile),
}


def replace(file, part, hostile):
    """Replaces one part of the checkpoint by the hostile object and leaves the other parts as they are."""
    state = torch.load(file, weights_only=True)
    assert part in state
    torch.save({**state, part: hostile}, file)


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_a_hostile_checkpoint_is_put_aside_and_not_run(tmp_path, tiny, way):
    mlcl = Cli(tmp_path, tiny)
    command = ("run", mlcl.job, "train.epochs=150")
    process = mlcl.start(*command)
    file = until(lambda: next(iter(mlcl.home.glob("runs/*/checkpoint.pt")), None))
    os.killpg(process.pid, signal.SIGINT)
    assert process.answer().status == 130
    file.with_name(PREVIOUS).unlink(missing_ok=True)
    WAYS[way](Hostile(tmp_path / "ran"), file)
    answer = mlcl(*command)
    assert answer.status == 0, answer.err
    text = " ".join(answer.err.split())
    assert "checkpoint.pt is damaged" in text
    assert "this training begins anew" in text
    mlcl("doctor", "--fix")
    assert not (tmp_path / "ran").exists()
