import torch

from mlcl.models.encoders.cnn_text import CnnText


def make(**options):
    torch.manual_seed(0)
    return CnnText(30, width=4, embedding_dim=6, **options).eval()


def batch(lengths, total):
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(1, 30, (len(lengths), total), generator=generator)
    mask = torch.arange(total) < torch.tensor(lengths).unsqueeze(1)
    return ids, mask


def test_equals_the_plain_sum_over_windows():
    encoder = make(kernel_sizes=(3,))
    ids, mask = batch([5], 5)
    x_TE = encoder.embedding(ids[0])
    weight_FEk, bias_F = encoder.convolutions[0].weight, encoder.convolutions[0].bias
    windows = [(weight_FEk * x_TE[t : t + 3].T).sum((1, 2)) + bias_F for t in range(3)]
    torch.testing.assert_close(encoder(ids, mask)[0], torch.stack(windows).amax(0).relu())
