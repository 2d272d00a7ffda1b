"""A user's module, which several tests pass as `encoder`."""

from torch import nn


class Bag(nn.Module):
    """Embeds a text as the sum of the vectors of its tokens."""

    def __init__(self, vocabulary_size):
        super().__init__()
        self.table = nn.Embedding(vocabulary_size, 4)

    def forward(self, input_ids, attention_mask):
        return (self.table(input_ids) * attention_mask[..., None]).sum(1)
