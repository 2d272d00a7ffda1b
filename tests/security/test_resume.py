"""A checkpoint that runs code in place of a stopped run's: no command that meets it runs it."""

import pickle

import pytest
import torch
from e2e.conftest import Cli

from mlcl.service.runs.run_store import RunFolder
from mlcl.tracking import State


class Hostile:
    """Makes a file when it is unpickled."""

    def __init__(self, file):
        self.file = str(file)

    def __reduce__(self):
        return (open, (self.file, "w"))


WAYS = {
    "a pickle": lambda hostile, file: file.write_bytes(pickle.dumps(hostile)),
    "among tensors": lambda hostile, file: torch.save({"version": 1, "model": hostile}, file),
    "optimiser": lambda hostile, file: replace(file, "optimizer", hostile),
    "random state": lambda hostile, file: replace(file, "rng", hostile),
}


def replace(file, part, hostile):
    """The checkpoint, whole but for one of its parts."""
    state = torch.load(file, weights_only=True)
    assert part in state
    torch.save({**state, part: hostile}, file)


@pytest.mark.slow
def test_hostile_checkpoints_are_refused_and_not_run(tmp_path, tiny):
    mlcl = Cli(tmp_path, tiny)
    assert mlcl("run", mlcl.job).status == 0
    (folder,) = mlcl.home.glob("runs/*")
    (folder / "result.json").unlink()
    file = folder / "checkpoint.pt"
    whole = file.read_bytes()
    for way, write in WAYS.items():
        RunFolder(folder).set_state(State.STOPPED)
        file.write_bytes(whole)
        write(Hostile(tmp_path / "ran"), file)
        again = mlcl("run", mlcl.job)
        assert (again.status, "not a readable checkpoint" in again.err) == (2, True), (way, again.err)
        assert "--fresh" in again.err
    mlcl("doctor", "--fix")
    assert not (tmp_path / "ran").exists()
    assert mlcl("run", mlcl.job, "--fresh").status == 0
