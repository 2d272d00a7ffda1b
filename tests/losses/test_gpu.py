"""The tiled engine on a GPU, equal to the CPU's."""

import pytest
import torch
from losses.oracles import CASES

from mlcl.losses import LOSSES, build_loss
from mlcl.testing.loss_batches import case_id
from mlcl.testing.losses import assert_equal

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.usefixtures("small_tiles"),
]


@pytest.mark.parametrize("case", CASES, ids=case_id)
@pytest.mark.parametrize("tau", [0.001, 0.3])
def test_a_gpu_gives_what_a_cpu_gives(case, tau, rows):
    name, options = case
    answers = []
    for device in ("cpu", "cuda"):
        z = rows.z.to(device).requires_grad_()
        labels = rows.labels(name)
        loss = build_loss(name, temperature=tau, engine="tiled", **options).to(device)
        value = loss(z, None if labels is None else labels.to(device), rows.sample_ids().to(device))
        value.backward()
        answers.append((value.detach().cpu(), z.grad.cpu()))
    cpu, gpu = answers
    assert_equal(gpu, cpu, 1e-10)


@pytest.mark.parametrize("case", [c for c in CASES if LOSSES[c[0]].on_host], ids=case_id)
def test_labels_in_the_hosts_memory_give_the_same_without_waiting(case, rows):
    name, options = case
    if name == "knn":
        pytest.skip("distances are read in their tiles")
    labels, samples = rows.labels(name), rows.sample_ids()
    loss = build_loss(name, engine="tiled", normalize=True, **options)
    expected = loss(rows.z, labels, samples)
    z = rows.z.cuda().requires_grad_()
    loss.cuda()(z, labels, samples)  # the first step asks for the free memory
    torch.cuda.set_sync_debug_mode("error")
    try:
        value = loss(z, labels, samples)
        value.backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert value.item() == pytest.approx(expected.item(), rel=1e-10)
