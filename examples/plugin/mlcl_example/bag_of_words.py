"""A bag-of-words encoder: the mean of a text's word vectors. Shapes: B texts, T words, D embedding."""

from typing import Literal

from pydantic import Field
from torch import Tensor, nn

from mlcl.config.encoder_section import EncoderConfig
from mlcl.models import Encoder


class BagOfWordsConfig(EncoderConfig):
    """The mean of word vectors that are trained."""

    name: Literal["bag_of_words"]
    width: int = Field(64, ge=1, description="size of a word vector")
    vocabulary: int = Field(10_000, ge=2, description="most frequent training words that are kept")
    max_length: int = Field(64, ge=1, description="words of a text that are read")


class BagOfWords(nn.Module):
    """z_i = the mean of the vectors of text i's words; 0 for a text without words."""

    def __init__(self, vocabulary_size: int, width: int) -> None:
        super().__init__()
        self.dim = width
        self.embedding = nn.Embedding(vocabulary_size, width)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Embeds `input_ids` (B, T) int64 with `attention_mask` (B, T) bool, True for words, as (B, D)."""
        words_BTD = self.embedding(input_ids) * attention_mask.unsqueeze(-1)
        z_BD: Tensor = words_BTD.sum(1) / attention_mask.sum(1, keepdim=True).clamp(min=1)
        return z_BD


BAG_OF_WORDS = Encoder(
    name="bag_of_words",
    title="the mean of word vectors",
    section=BagOfWordsConfig,
    modality="text",
    build=BagOfWords,
    tokenizer="words",
)
