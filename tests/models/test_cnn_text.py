import torch

from mlcl.models.encoders.cnn_text import CnnText


def test_equals_the_plain_sum_over_windows():
    torch.manual_seed(0)
    encoder = CnnText(30, width=4, embedding_dim=6, kernel_sizes=(3,)).eval()
    ids = torch.randint(1, 30, (1, 5))
    x_TE = encoder.embedding(ids[0])
    weight_FEk, bias_F = encoder.convolutions[0].weight, encoder.convolutions[0].bias
    windows = [(weight_FEk * x_TE[t : t + 3].T).sum((1, 2)) + bias_F for t in range(3)]
    found = encoder(ids, torch.ones(1, 5, dtype=torch.bool))[0]
    torch.testing.assert_close(found, torch.stack(windows).amax(0).relu())
