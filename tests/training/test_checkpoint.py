import errno
import pickle
import random
import resource
import zipfile
from pathlib import Path

import pytest
import torch
from security.hostile import Hostile

from mlcl.errors import UserError
from mlcl.grad_cache import rng_state, set_rng_state
from mlcl.training.checkpoint import (
    CHECKPOINT,
    PREVIOUS,
    VERSION,
    UnreadableCheckpointError,
    last_checkpoint,
    load_checkpoint,
    save_checkpoint,
    seed_all,
)

IDENTITY = {"job_hash": "j", "fingerprint": "f"}


def test_round_trip(tmp_path):
    path = tmp_path / "deep" / "checkpoint.pt"
    save_checkpoint(path, {**IDENTITY, "model": {"w": torch.arange(3.0)}})
    state = load_checkpoint(path, **IDENTITY)
    assert torch.equal(state["model"]["w"], torch.arange(3.0))
    assert [p.name for p in path.parent.iterdir()] == ["checkpoint.pt"]


def test_a_failing_write_leaves_the_old_checkpoint(tmp_path, monkeypatch):
    path = tmp_path / "checkpoint.pt"
    save_checkpoint(path, {**IDENTITY, "step": 1})

    def full_disk(state, file):
        file.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch, "save", full_disk)
    with pytest.raises(OSError, match="No space left"):
        save_checkpoint(path, {**IDENTITY, "step": 2})
    assert load_checkpoint(path, **IDENTITY)["step"] == 1
    assert [p.name for p in tmp_path.iterdir()] == ["checkpoint.pt"]


def test_a_write_that_the_system_refuses_is_its_error_and_not_one_of_the_zip_writer(tmp_path):
    path, limits = tmp_path / "checkpoint.pt", resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large") as error:
            save_checkpoint(path, {**IDENTITY, "w": torch.zeros(1 << 20)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (error.value.errno, error.value.filename) == (errno.EFBIG, str(path))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("key", ["job_hash", "fingerprint"])
def test_a_checkpoint_of_something_else_is_refused(tmp_path, key):
    save_checkpoint(tmp_path / "c.pt", IDENTITY)
    with pytest.raises(UserError, match="checkpoint of something else") as error:
        load_checkpoint(tmp_path / "c.pt", **{**IDENTITY, key: "other"})
    assert (error.value.key, error.value.allowed) == (key, "other")


def test_damaged_foreign_and_hostile_files_are_refused(tmp_path):
    path, hostile = tmp_path / "c.pt", Hostile(tmp_path / "ran")
    save_checkpoint(path, {**IDENTITY, "w": torch.zeros(1000)})
    data = path.read_bytes()
    torch.save({"version": VERSION, **IDENTITY, "x": hostile}, path)
    contents = (b"", data[: len(data) // 2], b"not a checkpoint", path.read_bytes(), pickle.dumps(hostile))
    for content in contents:
        path.write_bytes(content)
        with pytest.raises(UserError, match="not a readable checkpoint"):
            load_checkpoint(path, **IDENTITY)
    assert not (tmp_path / "ran").exists()
    torch.save({"version": 99, **IDENTITY}, path)
    with pytest.raises(UserError, match="another checkpoint format"):
        load_checkpoint(path, **IDENTITY)


def test_a_flipped_bit_is_never_loaded(tmp_path):
    path = tmp_path / "c.pt"
    save_checkpoint(path, {**IDENTITY, "model": {"w": torch.arange(300.0)}, "step": 7})
    checkpoint, n_refused = path.read_bytes(), 0
    for bit in random.Random(2).sample(range(8 * len(checkpoint)), 300):
        damaged = bytearray(checkpoint)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        try:
            state = load_checkpoint(path, **IDENTITY)
        except UserError:
            n_refused += 1
        else:  # the bit is in a byte that is never read
            assert (state["step"], state["model"]["w"].tolist()) == (7, list(range(300)))
    assert n_refused > 200


def last_step(path):
    """Returns the step and file name of the last whole checkpoint, and the message on damaged ones."""
    file, state, message = last_checkpoint(path, **IDENTITY)
    return (None, None, message) if file is None else (state["step"], file.name, message)


def test_the_one_before_stands_in_for_a_damaged_one(tmp_path):
    path = tmp_path / CHECKPOINT
    assert last_step(path) == (None, None, "")
    for step in (1, 2, 3):
        save_checkpoint(path, {**IDENTITY, "step": step})
    assert last_step(path) == (3, CHECKPOINT, "")
    path.write_bytes(path.read_bytes()[:100])
    step, file, message = last_step(path)
    assert (step, file) == (2, PREVIOUS)
    assert str(path) in message
    assert "going on from the checkpoint before" in message
    (tmp_path / PREVIOUS).write_bytes(b"")
    step, _, message = last_step(path)
    assert step is None
    assert message.endswith("this training begins anew")
    save_checkpoint(tmp_path / PREVIOUS, {**IDENTITY, "step": 2})  # as after a kill between two renames
    assert last_step(path) == (2, PREVIOUS, "")


def test_a_damaged_one_never_takes_the_place_of_the_one_before(tmp_path, monkeypatch):
    """Tests that a save keeps the checkpoint before a damaged one, even if killed between its renames."""
    path = tmp_path / CHECKPOINT
    for step in (1, 2):
        save_checkpoint(path, {**IDENTITY, "step": step})
    path.write_bytes(path.read_bytes()[:100])
    assert last_step(path)[:2] == (1, PREVIOUS)
    original = Path.replace

    def killed(self, target):
        if self.name.endswith(".partial"):
            raise KeyboardInterrupt
        return original(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            save_checkpoint(path, {**IDENTITY, "step": 3})
    assert last_step(path) == (1, PREVIOUS, "")


@pytest.mark.parametrize(
    "error",
    [OSError(errno.EMFILE, "Too many open files"), OSError(errno.EIO, "Input/output error"), MemoryError(),
     RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 4 bytes")],
)  # fmt: skip
@pytest.mark.parametrize("where", [(zipfile.ZipFile, "testzip"), (torch, "load")])
def test_what_the_machine_cannot_read_now_is_not_damaged(tmp_path, monkeypatch, error, where):
    path = tmp_path / CHECKPOINT
    for step in (1, 2):
        save_checkpoint(path, {**IDENTITY, "step": step})

    def failing(*_args, **_options):
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(*where, failing)
        with pytest.raises(UnreadableCheckpointError, match="cannot be read now"):
            last_checkpoint(path, **IDENTITY)
    assert last_step(path) == (2, CHECKPOINT, "")


def test_random_state_is_restored_and_ranks_differ():
    seed_all(3, rank=0)
    state = rng_state()
    expected = torch.rand(4)
    set_rng_state(state)
    assert torch.equal(torch.rand(4), expected)
    seed_all(3, rank=1)
    assert not torch.equal(torch.rand(4), expected)
