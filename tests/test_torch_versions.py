"""Tests the setting of precisions, which differs between versions of PyTorch."""

import pytest
import torch

from mlcl import torch_versions


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_precision_is_set_and_the_earlier_one_returned(device):
    device = torch.device(device)
    before = torch_versions.exchange_precision(device, "ieee")
    try:
        assert torch_versions.exchange_precision(device, "tf32") in ("ieee", "highest")
        assert torch_versions.exchange_precision(device, before) in ("tf32", "high")
        assert torch_versions.exchange_precision(device, before) == before
    finally:
        torch_versions.exchange_precision(device, before)


def test_before_2_9_one_precision_holds_for_the_whole_process(monkeypatch):
    monkeypatch.setattr(torch_versions.torch, "backends", type("Older", (), {"mkldnn": object()}))
    calls = []
    monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: "highest")
    monkeypatch.setattr(torch, "set_float32_matmul_precision", calls.append)
    assert torch_versions.exchange_precision(torch.device("cpu"), "bf16") == "highest"
    assert torch_versions.exchange_precision(torch.device("cpu"), "highest") == "highest"
    assert calls == ["medium", "highest"]
    monkeypatch.delattr(torch.cpu, "get_capabilities", raising=False)
    assert torch_versions.cpu_capabilities() == {}
