"""Writes the files with which `SentenceTransformer(folder)` opens an exported model.

Shapes: D embedding, K the projection's size.
"""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import nn

from mlcl.config import JobConfig
from mlcl.errors import UserError
from mlcl.models import Projection
from mlcl.models.encoders.transformer import TextTransformer
from mlcl.training.job_data import JobData
from mlcl.training.objective import ContrastiveModel, Head

WEIGHTS = "model.safetensors"
MODULES = "modules.json"
POOLING = {
    "cls": "pooling_mode_cls_token",
    "mean": "pooling_mode_mean_tokens",
    "last": "pooling_mode_lasttoken",
}
_SECTION = """## sentence-transformers

```python
from sentence_transformers import SentenceTransformer

SentenceTransformer("FOLDER").encode(["a text"])  # or the name of its repository
```

It gives {what}."""


def check_sentence_transformers(job: JobConfig, head: str) -> None:
    """Raises UserError for another encoder, half precision, or a head that does not read the embedding."""
    name, reason = job.encoder.name, ""
    if name != "transformer":
        reason = "is for the encoder transformer"
    elif job.train.precision != "float32" or getattr(job.encoder, "weights", "") == "bf16":
        reason = "would not be exact: the job computes in half precision"
    if reason:
        raise UserError(f"sentence-transformers {reason}", key="--also", found=f"encoder {name}")
    embedding = {
        head: section for head, section in job.objective.heads.items() if section.projection.kind != "logits"
    }
    heads = [head for head, section in embedding.items() if section.weight > 0]
    if head and head not in heads:
        raise UserError("no such head in the job", key="--also", found=head, allowed=heads or "none")


def write_sentence_transformers(
    model: ContrastiveModel, job_data: JobData, folder: Path, head: str = ""
) -> str:
    """Writes the encoder `transformer` with its pooling, and returns a section of the README.

    The written model returns the embedding (D) that the neighbours are found by. With `head` it returns this
    head's z (K): dense layers project the embedding, and z is scaled to unit length if the head's loss does
    so. Adapters are merged into the weights.
    """
    encoder, heads = model.encoder, dict(model.objective.named_heads())
    assert isinstance(encoder, TextTransformer)
    length = int(getattr(job_data.job.encoder, "max_length", 0))
    _write_network(encoder.network, folder)
    _write_tokenizer(job_data, length, folder)
    # The pooler is not read, and has no weights in the file.
    model_args = {"model_args": {"add_pooling_layer": False}} if hasattr(encoder.network, "pooler") else {}
    config = {"max_seq_length": length, "do_lower_case": False} | model_args
    _write_json(folder / "sentence_bert_config.json", config)
    loss, similarity = (heads[head].loss if head else None), "euclidean"
    if loss is not None and loss.spec.similarity == "dot":
        similarity = "cosine" if loss.normalize else "dot"
    _write_json(folder / "config_sentence_transformers.json", {"similarity_fn_name": similarity})
    modules = [("Transformer", ""), ("Pooling", "1_Pooling")]
    pooling = dict.fromkeys(POOLING.values(), False) | {POOLING[encoder.pooling]: True}
    _write_json(folder / "1_Pooling" / "config.json", {"word_embedding_dimension": encoder.dim, **pooling})
    for layer in _linear_layers(heads[head]) if head else []:
        kind = "Normalize" if layer is None else "Dense"
        modules.append((kind, f"{len(modules)}_{kind}"))
        if layer is None:  # git keeps no empty folder
            _write_json(folder / modules[-1][1] / "config.json", {})
        else:
            _write_dense(*layer, folder / modules[-1][1])
    entries = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (kind, path) in enumerate(modules)
    ]
    _write_json(folder / MODULES, entries)
    description = (
        f"the projected embedding of the head `{head}`" if head else "the embedding of the neighbours"
    )
    return _SECTION.format(what=description)


def _linear_layers(head: Head) -> list[tuple[nn.Linear, str] | None]:
    """Returns a head's linear layers, each with its activation's name; None is scaling to unit length."""
    layers: list[tuple[nn.Linear, str] | None] = []
    projection = head.projection
    if isinstance(projection, Projection):
        if projection.normalize_input:
            layers.append(None)
        modules = list(projection.network.modules())
        for index, module in enumerate(modules):
            if isinstance(module, nn.Linear):
                relu = any(isinstance(next_module, nn.ReLU) for next_module in modules[index + 1 : index + 2])
                kind = "activation.ReLU" if relu else "linear.Identity"
                layers.append((module, f"torch.nn.modules.{kind}"))
    return [*layers, None] if head.loss.normalize else layers


def _write_network(network: nn.Module, folder: Path) -> None:
    """Writes the weights of a Hugging Face network, with adapters merged."""
    if any("lora_" in name for name, _ in network.named_parameters()):
        from peft.tuners.tuners_utils import BaseTunerLayer

        network = deepcopy(network)
        for module in network.modules():
            if isinstance(module, BaseTunerLayer):
                module.merge()
    weights = {
        name.replace(".base_layer", ""): tensor.detach().clone().contiguous()
        for name, tensor in network.state_dict().items()
        if "lora_" not in name
    }
    save_file(weights, folder / WEIGHTS, {"format": "pt"})


def _write_tokenizer(job_data: JobData, length: int, folder: Path) -> None:
    tokenizer = job_data.tokenizer
    assert tokenizer is not None
    assert tokenizer.padding is not None
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": length,
        "pad_token": tokenizer.padding["pad_token"],
        "padding_side": "right",
        "truncation_side": "right",
        "clean_up_tokenization_spaces": False,
        "model_input_names": ["input_ids", "attention_mask"],
    }
    _write_json(folder / "tokenizer_config.json", config)


def _write_dense(layer: nn.Linear, activation: str, folder: Path) -> None:
    sizes = {"in_features": layer.in_features, "out_features": layer.out_features, "bias": True}
    _write_json(folder / "config.json", {**sizes, "activation_function": activation})
    weights = {f"linear.{name}": tensor.contiguous() for name, tensor in layer.state_dict().items()}
    save_file(weights, folder / WEIGHTS)


def _write_json(file: Path, content: Any) -> None:
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
