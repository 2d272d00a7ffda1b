"""Computes token states without computing padding: the texts of a batch become one row of their tokens.

Attention alone depends on which tokens are of one text: queries, keys and values are copied into the padded
batch for it. All other layers of a text encoder compute each token by itself. Nearly half of a padded batch
of tweets is padding.

Shapes: B texts, T tokens of the longest text, N tokens in all, H attention heads, C channels of a head.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn

ATTENTION = "mlcl_unpadded"
"""The name of `_attention` among the attention implementations of transformers."""
FAMILIES = ("bert", "distilbert", "electra", "roberta", "xlm-roberta")
"""The families of encoders, as transformers names them, that can be computed without padding."""
LARGEST_SHARE = 0.9
"""The largest share of tokens, the rest being padding, at which a batch is computed without padding."""


def prepare_unpadded(network: nn.Module) -> None:
    """Lets `unpadded_states` compute a network if it is one of `FAMILIES` (transformers 5 or later)."""
    import transformers

    config: Any = network.config
    is_encoder = config.model_type in FAMILIES and not getattr(config, "is_decoder", False)
    is_recent = int(transformers.__version__.split(".")[0]) >= 5
    if is_encoder and is_recent and config._attn_implementation == "sdpa":
        from transformers import AttentionInterface, AttentionMaskInterface
        from transformers.masking_utils import sdpa_mask

        AttentionInterface.register(ATTENTION, _attention)
        AttentionMaskInterface.register(ATTENTION, sdpa_mask)
        cast(Any, network).set_attn_implementation(ATTENTION)


def unpadded_states(network: nn.Module, input_ids: Tensor, attention_mask: Tensor) -> Tensor | None:
    """Returns the states (B, T, D) of ids (B, T) int64 under a mask (B, T) bool, or None.

    The states of padding are 0. Returns None for a network that `prepare_unpadded` leaves unchanged, for a
    batch with little padding, if a text begins with padding, within torch.compile, and on a GPU, where the
    host would wait for the number of tokens.
    """
    config: Any = getattr(network, "config", None)
    if getattr(config, "_attn_implementation", "") != ATTENTION or input_ids.device.type != "cpu":
        return None
    if torch.compiler.is_compiling() or not attention_mask[:, 0].all():
        return None
    if int(attention_mask.sum()) > LARGEST_SHARE * attention_mask.numel():
        return None
    if "roberta" in config.model_type:  # positions start at pad_token_id + 1, and padding tokens have none
        is_token_BT = (input_ids != config.pad_token_id).long()
        position_N = (is_token_BT.cumsum(1) * is_token_BT + config.pad_token_id)[attention_mask]
    else:
        position_N = torch.arange(input_ids.shape[1]).expand_as(input_ids)[attention_mask]
    h_1ND: Tensor = network(
        input_ids=input_ids[attention_mask][None], position_ids=position_N[None], text_mask=attention_mask
    ).last_hidden_state
    h_BTD = h_1ND.new_zeros(*input_ids.shape, h_1ND.shape[-1])
    return h_BTD.masked_scatter(attention_mask[..., None], h_1ND)


def _attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    text_mask: Tensor | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """Computes scaled dot-product attention.

    With `text_mask` (B, T), query, key and value are (1, H, N, C), and tokens attend to their own text alone.
    """
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    attention: Any = sdpa_attention_forward
    if text_mask is None:
        return attention(module, query, key, value, attention_mask, **options)[0], None
    (texts, tokens), places_N = text_mask.shape, text_mask.flatten().nonzero()[:, 0]
    padded = (_pad_texts(x_1HNC, places_N, texts, tokens) for x_1HNC in (query, key, value))
    mask_B1TT = text_mask[:, None, None, :].expand(texts, 1, tokens, tokens)
    out_BTHC = attention(module, *padded, mask_B1TT, **options)[0]
    return out_BTHC.flatten(0, 1)[places_N][None], None


def _pad_texts(x_1HNC: Tensor, places_N: Tensor, texts: int, tokens: int) -> Tensor:
    x_NHC = x_1HNC[0].transpose(0, 1)
    padded = x_NHC.new_zeros(texts * tokens, *x_NHC.shape[1:]).index_copy(0, places_N, x_NHC)
    return padded.view(texts, tokens, *x_NHC.shape[1:]).transpose(1, 2)
