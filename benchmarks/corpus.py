"""Good extractor files, small ones, to start from when files are to be wrong."""

from __future__ import annotations

import torch
from torch import nn

from swift_hapi.graph.extractor import extractor_bytes
from swift_hapi.graph.split import make_extractor


def corpus() -> list[bytes]:
    """Small good files of every kind of network."""
    torch.manual_seed(0)
    made = []
    for model, shape, dtype in (
        (_Convolutions(), (3, 12, 12), torch.float32),
        (_Tokens(), (3, 8, 8), torch.float32),
        (_Words(), (5,), torch.int64),
        (_Windows(), (4, 4, 4), torch.float32),
        (nn.Sequential(nn.Linear(6, 5), nn.GELU(), nn.LayerNorm(5)), (6,), torch.float32),
    ):
        extractor = make_extractor(model.eval(), None, shape, dtype)
        made.append(extractor_bytes(extractor))
    return made


class _Convolutions(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.relu = nn.ReLU(inplace=True)
        self.pool = nn.MaxPool2d(2)
        self.scale = nn.Parameter(torch.ones(4, 1, 1))
        self.fc = nn.Linear(8, 3)

    def forward(self, x):
        x = self.pool(self.relu(self.norm(self.conv(x))) * self.scale)
        x = torch.cat([x, torch.sigmoid(x)], 1)
        return self.fc(torch.flatten(x.mean((2, 3), keepdim=True), 1))


class _Tokens(nn.Module):
    def __init__(self):
        super().__init__()
        self.patch = nn.Conv2d(3, 8, 4, 4)
        self.token = nn.Parameter(torch.zeros(1, 1, 8))
        self.places = nn.Parameter(torch.zeros(1, 5, 8))
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x):
        n = x.shape[0]
        x = self.patch(x).reshape(n, 8, -1).permute(0, 2, 1)
        x = torch.cat([self.token.expand(n, -1, -1), x], 1) + self.places
        return self.attention(x, x, x, need_weights=False)[0][:, 0]


class _Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(20, 8)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)

    def forward(self, ids):
        return self.layer(self.words(ids)).mean(1)


class _Windows(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.register_buffer("order", torch.tensor([1, 0, 3, 2]))

    def forward(self, x):
        n, c, h, w = x.shape
        x = x[:, :, self.order].permute(0, 2, 3, 1)
        x = x.reshape(n, h // 2, 2, w // 2, 2, c).permute(0, 1, 3, 2, 4, 5)
        x = self.fc(x.reshape(-1, 4, c)).view(n, h // 2, w // 2, 2, 2, c)
        x = torch.roll(x.permute(0, 1, 3, 2, 4, 5).reshape(n, h, w, c), (1, 1), (1, 2))
        return torch.softmax(x, -1)
