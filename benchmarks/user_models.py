"""Models as a user would write them, for ``--model benchmarks/user_models.py:NAME``."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn


class Squeeze(nn.Module):
    """Channel weights from the whole picture."""

    def __init__(self, channels: int):
        super().__init__()
        self.fc = nn.Sequential(
            nn.Linear(channels, channels // 4),
            nn.ReLU(inplace=True),
            nn.Linear(channels // 4, channels),
        )

    def forward(self, x):
        n, channels = x.shape[:2]
        scale = torch.sigmoid(self.fc(x.mean((2, 3)))).view(n, channels, 1, 1)
        return x * scale


class Block(nn.Module):
    def __init__(self, inputs: int, outputs: int):
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(outputs)
        self.squeeze = Squeeze(outputs)
        self.skip = nn.Conv2d(inputs, outputs, 1)

    def forward(self, x):
        return F.relu(self.squeeze(self.norm(self.conv(x))) + self.skip(x), inplace=True)


class Net(nn.Module):
    """A small network with branches, shapes in use, in-place operations and dropout."""

    hapi_transform = "resize=72, crop=64, mean=(0.5), std=(0.25)"

    def __init__(self, num_classes: int):
        super().__init__()
        self.blocks = nn.ModuleList([Block(3, 16), Block(16, 32), Block(32, 64)])
        self.drop = nn.Dropout(0.2)
        self.head = nn.Linear(64, num_classes)

    def forward(self, x):
        for block in self.blocks:
            x = F.max_pool2d(block(x), 2)
        return self.head(self.drop(torch.flatten(F.adaptive_avg_pool2d(x, 1), 1)))


def net(num_classes: int = 10) -> nn.Module:
    return Net(num_classes)


class Text(nn.Module):
    """A text encoder: token ids [n, 64] in, classes out."""

    hapi_input_shape = (64,)
    hapi_input_dtype = "int64"

    def __init__(self, num_classes: int, words: int = 5000, width: int = 128, depth: int = 4):
        super().__init__()
        self.words = nn.Embedding(words, width, padding_idx=0)
        self.places = nn.Parameter(torch.zeros(1, *self.hapi_input_shape, width))
        nn.init.trunc_normal_(self.places, std=0.02)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 4, 4 * width, activation="gelu", batch_first=True)
            for _ in range(depth)
        )
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, num_classes)

    def forward(self, ids):
        x = self.words(ids) + self.places
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x).mean(1))


def text(num_classes: int = 4) -> nn.Module:
    return Text(num_classes)


class Segmentation(nn.Module):
    """Backbone and head of a torchvision segmentation model, a score for each pixel."""

    hapi_transform = "resize=72, crop=64, mean=(0.485 0.456 0.406), std=(0.229 0.224 0.225)"

    def __init__(self):
        super().__init__()
        from torchvision.models.segmentation import lraspp_mobilenet_v3_large

        whole = lraspp_mobilenet_v3_large(weights=None, weights_backbone=None)
        self.backbone, self.classifier = whole.backbone, whole.classifier

    def forward(self, x):
        return self.classifier(self.backbone(x))


def segmentation() -> nn.Module:
    return Segmentation()


def video() -> nn.Module:
    """torchvision's 3-d resnet; samples are arrays [3, 8, 64, 64]."""
    from torchvision.models.video import r3d_18

    model = r3d_18(weights=None)
    model.hapi_input_shape = (3, 8, 64, 64)
    return model
