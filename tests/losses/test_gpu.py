"""The tiled engine on a GPU, equal to the CPU's."""

import pytest
import torch
from losses.oracles import CASES

from mlcl.losses import build_loss
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
