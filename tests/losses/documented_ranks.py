"""The function that each process of the documented example runs; processes import it by its name."""

import os

import torch
import torch.distributed as dist

from mlcl.losses import build_loss


def work(rank, world, port, code):
    """Runs the example as torchrun does; returns the loss of this process, and that of one with all rows."""
    dist.barrier()  # the other process may still be connecting
    dist.destroy_process_group()
    torch.manual_seed(rank)
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(world)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    names = {"__name__": "__main__"}
    exec(code, names)
    x, labels = torch.randn(8, 32), torch.randint(4, (8,))
    share = names["model"](x, labels).item()
    all_x, all_labels = ([torch.empty_like(part) for _ in range(world)] for part in (x, labels))
    dist.all_gather(all_x, x)
    dist.all_gather(all_labels, labels)
    model = names["model"].module
    loss = build_loss("supcon", temperature=model.loss.temperature.value().item(), normalize=True)
    value = loss(model.encoder(torch.cat(all_x)), torch.cat(all_labels)).item()
    return {"share": share, "whole": value}
