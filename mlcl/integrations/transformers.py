"""Adapter of the Hugging Face Trainer: embeddings as a model's output, a loss of them, and a data collator.

Shapes: B rows, T tokens, D embedding.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch.distributed as dist
from torch import Tensor, nn
from transformers import DataCollatorWithPadding, TrainingArguments

from mlcl.integrations.checks import check_loss
from mlcl.integrations.empty_batches import encode_rows
from mlcl.integrations.label_numbers import LabelNumbers, Labels
from mlcl.losses import ContrastiveLoss
from mlcl.losses.batch import world


class Embedder(nn.Module):
    """A model whose output has the mean of the hidden states of a row's tokens (B, D) as `embeddings`.

    Args:
        encoder: A model with `last_hidden_state` in its output, such as one from AutoModel.
        loss: A loss of `mlcl.losses.build_loss`. The model then returns it as `loss`, and trains its
            parameters, to which the Trainer's `weight_decay` applies, too; the Trainer gets no
            `compute_loss_func`. With gradient accumulation each batch has the same weight, regardless of its
            number of rows.
    """

    accepts_loss_kwargs = False  # the Trainer divides `loss` by the number of accumulated batches

    def __init__(self, encoder: nn.Module, loss: ContrastiveLoss | None = None) -> None:
        super().__init__()
        if loss is not None:
            check_loss(loss, ("mean", "mean_valid", "sum"))
        self.encoder, self.loss = encoder, loss

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        labels: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        pixel_values: Tensor | None = None,
        **inputs: Any,
    ) -> dict[str, Tensor]:
        """Returns `embeddings`, and `loss` if the model has one and labels are given.

        The Trainer drops the columns of a data set that are not among these names.
        """
        arguments = {
            "input_ids": input_ids,
            "attention_mask": attention_mask,
            "token_type_ids": token_type_ids,
        }
        arguments |= {"position_ids": position_ids, "pixel_values": pixel_values, **inputs}
        z_BD = encode_rows(
            self._embed, {name: value for name, value in arguments.items() if value is not None}
        )
        if self.loss is None or labels is None:
            return {"embeddings": z_BD}
        return {"loss": self.loss(z_BD, labels), "embeddings": z_BD}

    def gradient_checkpointing_enable(self, **options: Any) -> None:
        """Turns gradient checkpointing of the encoder on, for `gradient_checkpointing` of the Trainer."""
        self.encoder.gradient_checkpointing_enable(**options)  # type: ignore[operator]

    def _embed(self, inputs: dict[str, Any]) -> Tensor:
        hidden_BTD: Tensor = self.encoder(**inputs).last_hidden_state
        mask_BT = hidden_BTD.new_ones(hidden_BTD.shape[:2])
        if "attention_mask" in inputs:
            mask_BT = inputs["attention_mask"].to(mask_BT)
        return (hidden_BTD * mask_BT.unsqueeze(2)).sum(1) / mask_BT.sum(1, keepdim=True).clamp(min=1)


class TrainerLoss:
    """A `compute_loss_func` of the Trainer: a loss of mlcl on the embeddings in the model's output.

    The Trainer passes the number of labels of all accumulated batches and processes, and multiplies the loss
    by the number of processes. The result here is weighted so that, with `gather=True`, the gradient is that
    of one process on the rows of all processes. Accumulated batches are weighted by their numbers of rows.

    Args:
        loss: A loss of `mlcl.losses.build_loss` with reduction `mean` or `mean_valid`, and without parameters
            of its own, which the Trainer would not train: `Embedder` trains them.
        arguments: The training arguments of the Trainer.
        embeddings: The key of the embeddings (B, D) in the output: `pooler_output` for many models.

    Raises:
        ValueError: For other losses, several GPUs in one process, and an output without the key.

    Example:
        >>> import torch
        >>> from mlcl.losses import build_loss
        >>> compute = TrainerLoss(build_loss("supcon"), TrainingArguments("out"))
        >>> compute({"embeddings": torch.eye(4)}, torch.tensor([0, 1, 0, 1])).item() > 0
        True
    """

    def __init__(
        self, loss: ContrastiveLoss, arguments: TrainingArguments, embeddings: str = "embeddings"
    ) -> None:
        check_loss(loss, ("mean", "mean_valid"))
        if names := ", ".join(name for name, _ in loss.named_parameters()):
            raise ValueError(
                f"parameters of the loss; found: {names}; allowed: none, or Embedder(..., loss=...)"
            )
        if arguments.n_gpu > 1:
            raise ValueError(
                f"GPUs of one process; found: {arguments.n_gpu}; allowed: 1 (torchrun starts several)"
            )
        self.loss, self.arguments, self.embeddings = loss, arguments, embeddings

    def __call__(self, outputs: Any, labels: Tensor, num_items_in_batch: Tensor | None = None) -> Tensor:
        """Returns the loss of a batch's outputs and labels, weighted by its share of the labels."""
        if not isinstance(outputs, Mapping) or self.embeddings not in outputs:
            detail = ", ".join(outputs) if isinstance(outputs, Mapping) else type(outputs).__name__
            raise ValueError(f"output of the model; found: {detail}; allowed: {self.embeddings}")
        value: Tensor = self.loss(outputs[self.embeddings], labels)
        if num_items_in_batch is None:
            return value
        processes = world(self.loss.group) if self.loss.gather else 1
        # The numbers of labels in this batch, and in all accumulated batches.
        n_labels, items = value.new_tensor(labels.numel()), num_items_in_batch.to(value)
        if processes > 1:
            dist.all_reduce(n_labels, group=self.loss.group)
        if self.arguments.average_tokens_across_devices:  # the Trainer multiplies by the world size
            items = items * processes
        elif processes > 1:
            dist.all_reduce(items, group=self.loss.group)
        return value * (n_labels / items.clamp(min=1))


class LabelCollator:
    """A data collator for rows whose `labels` are label lists, paths or names, see `LabelNumbers`.

    Args:
        pad: A tokenizer, which pads the other columns, or a data collator for them.
        classes: All labels, for label lists or single labels.
        levels: The classes of each level, for paths.

    Raises:
        ValueError: `LabelNumbers` refuses the labels or the arguments, or rows have no labels.

    Example:
        >>> from transformers import default_data_collator
        >>> collator = LabelCollator(default_data_collator, classes=["music", "sport"])
        >>> collator([{"input_ids": [5], "labels": ["sport"]}])["labels"].tolist()
        [[False, True]]
    """

    def __init__(
        self,
        pad: Callable[[list[dict[str, Any]]], Any],
        classes: Labels | None = None,
        levels: Sequence[Labels] | None = None,
    ) -> None:
        self._collator = DataCollatorWithPadding(pad) if hasattr(pad, "pad") else pad
        self._numbers = LabelNumbers(classes, levels)

    def __call__(self, features: list[dict[str, Any]]) -> dict[str, Any]:
        """Returns the padded columns of a batch, and its labels as a tensor."""
        if bad_row := next((row for row in features if "labels" not in row), None):
            raise ValueError(f"columns of a row; found: {', '.join(bad_row)}; allowed: labels among them")
        inputs = [{name: value for name, value in row.items() if name != "labels"} for row in features]
        return {**self._collator(inputs), "labels": self._numbers([row["labels"] for row in features])}
