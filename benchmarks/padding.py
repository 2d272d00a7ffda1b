"""Measures a training step on texts without their padding, beside transformers' own padded batch.

    python benchmarks/padding.py [DATA] [--tokens 64]

The network has the sizes of MiniLM and random weights. DATA is the folder of a prepared data set of texts, by
default the bundled ICD-10-CM. A text is assumed to have 1.4 tokens per word and two special tokens. The step
runs on one thread in float32 with AdamW.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import BertConfig, BertModel

from mlcl.data import Dataset, prepare
from mlcl.models.pretrained import token_states
from mlcl.models.unpadded import prepare_unpadded

BATCH, STEPS, REPEATS, PER_WORD = 32, 8, 3, 1.4
MINILM = {
    "hidden_size": 384,
    "num_hidden_layers": 6,
    "num_attention_heads": 12,
    "intermediate_size": 1536,
}


def batches(data: Path, tokens: int) -> list[Tensor]:
    """Returns the masks (B, T) of random batches of the training texts."""
    torch.manual_seed(0)
    texts = Dataset.open(data).split("train").texts()
    indices = torch.randperm(len(texts))[: BATCH * STEPS].tolist()
    lengths = torch.tensor([min(tokens, 2 + round(PER_WORD * len(texts[i].split()))) for i in indices])
    return [torch.arange(int(batch.max())) < batch[:, None] for batch in torch.split(lengths, BATCH)]


def seconds(network: nn.Module, masks: list[Tensor]) -> float:
    """Returns the seconds of a step with dropout, the least of several repeats."""
    optimizer, times = torch.optim.AdamW(network.parameters(), lr=1e-5, fused=True), []
    for _ in range(REPEATS):
        start = time.perf_counter()
        for mask in masks:
            optimizer.zero_grad()
            h_BTD = token_states(network, mask.long() * 7, mask)
            (h_BTD * mask[..., None]).square().mean().backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        times.append((time.perf_counter() - start) / len(masks))
    return min(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", nargs="?", type=Path)
    parser.add_argument("--tokens", type=int, default=64, help="tokens of a text that are read, at most")
    parser.add_argument("--home", type=Path, default=Path("outputs"))
    args = parser.parse_args()
    torch.set_num_threads(1)
    masks = batches(args.data or prepare("icd10cm", args.home / "data"), args.tokens)
    peer, ours = (BertModel(BertConfig(**MINILM), add_pooling_layer=False) for _ in range(2))
    prepare_unpadded(ours)
    share = sum(int(mask.sum()) for mask in masks) / sum(mask.numel() for mask in masks)
    padded_seconds, unpadded_seconds = seconds(peer, masks), seconds(ours, masks)
    print(f"{share:.0%} of the places of {len(masks)} batches of {BATCH} texts are tokens")
    print(
        f"padded {padded_seconds:.3f} s a step, without padding {unpadded_seconds:.3f} s: "
        f"ratio {padded_seconds / unpadded_seconds:.2f}"
    )


if __name__ == "__main__":
    main()
