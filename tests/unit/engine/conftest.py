"""A real engine in a process of its own, real extractor files, real images."""

from __future__ import annotations

import io
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
import torchvision
from PIL import Image

from swift_hapi.engine.workers import Workers
from swift_hapi.graph.extractor import Extractor, save_extractor
from swift_hapi.graph.split import make_extractor
from tests.unit.engine.client import Answer, ask

SIDE = 64
TRANSFORM = f"resize={SIDE + 8}, crop={SIDE}, mean=(0.485 0.456 0.406), std=(0.229 0.224 0.225)"
BATCH = 4  #: micro-batch of the shared engine
START_TIMEOUT = 120


@pytest.fixture(scope="session", autouse=True)
def _few_threads():
    torch.set_num_threads(1)


@pytest.fixture
def workers():
    made = Workers(cpus=1, decoders=2)
    yield made
    made.shutdown()


def resnet18(seed: int) -> Extractor:
    """resnet18 up to its pooling, random weights, for 64 x 64 images."""
    torch.manual_seed(seed)
    model = torchvision.models.resnet18(weights=None).eval()
    return make_extractor(model, "avgpool", (3, SIDE, SIDE))


@dataclass(frozen=True)
class ModelOnDisk:
    extractor: Extractor
    path: Path
    digest: str

    @property
    def hex(self) -> str:
        return self.digest.removeprefix("sha256:")


@pytest.fixture(scope="session")
def models(tmp_path_factory) -> tuple[ModelOnDisk, ModelOnDisk]:
    """Two extractors: the first will be the operator's, the second is nobody's yet."""
    directory = tmp_path_factory.mktemp("models")
    made = []
    for seed in (1, 2):
        extractor = resnet18(seed)
        path = directory / f"net{seed}.safetensors"
        made.append(ModelOnDisk(extractor, path, save_extractor(extractor, path)))
    return tuple(made)


def jpeg(seed: int, width: int = 90, height: int = 80) -> bytes:
    """A smooth coloured picture."""
    rng = np.random.default_rng(seed)
    small = rng.integers(0, 256, (6, 6, 3), dtype=np.uint8)
    stream = io.BytesIO()
    Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC).save(
        stream, "JPEG", quality=90
    )
    return stream.getvalue()


def npy(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def tar(members: list[tuple[str, bytes]]) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return stream.getvalue()


def shard(count: int, broken: tuple[int, ...] = ()) -> bytes:
    """Labelled JPEGs in WebDataset layout; those of ``broken`` do not decode."""
    members = []
    for i in range(count):
        picture = b"\xff\xd8\xff\xe0 not a picture" if i in broken else jpeg(i)
        members += [(f"{i:04d}.jpg", picture), (f"{i:04d}.cls", str(i % 3).encode())]
    return tar(members)


class EngineProcess:
    """A running ``hapi-engine``."""

    def __init__(self, directory: Path, **options):
        self.directory = directory
        # Socket paths must be short, pytest's directories are not.
        self._short = tempfile.TemporaryDirectory(prefix="hapi-")
        self.socket = Path(self._short.name) / "engine.sock"
        self.log = directory / "engine.log"
        self.config = directory / "engine.conf"
        values = {
            "socket": self.socket,
            "model_dir": directory / "models",
            "cache_dir": directory / "cache",
            "engine_cpus": 1,
            "decode_threads": 1,
            "measure_memory": "false",
            **options,
        }
        lines = ["[engine]", *(f"{name} = {value}" for name, value in values.items())]
        self.config.write_text("\n".join(lines) + "\n")
        (directory / "models").mkdir(exist_ok=True)
        self.process: subprocess.Popen | None = None

    def start(self) -> EngineProcess:
        argv = [sys.executable, "-m", "swift_hapi.engine.main", "--config", str(self.config)]
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(argv, stdout=log, stderr=log)
        self.wait_until(self._answers, START_TIMEOUT)
        return self

    def _answers(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        try:
            return ask(self.socket, "GET", "/readyz").status == 200
        except OSError:
            return False

    def wait_until(self, condition: Callable[[], object], timeout: float = 60) -> None:
        """Poll ``condition``; fails with the engine's log."""
        until = time.monotonic() + timeout
        while not condition():
            if time.monotonic() > until:
                pytest.fail(f"condition not met in {timeout} s\n{self.log.read_text()}")
            time.sleep(0.02)

    def status(self) -> dict:
        return ask(self.socket, "GET", "/v1/status").json()

    def idle(self) -> bool:
        """Nobody holds a place or memory (but weights)."""
        status = self.status()
        held = [status["queue"][key] for key in ("waiting", "in_flight", "waiting_for_output")]
        held += [status["memory"][f"{key}_bytes"] for key in ("input", "output", "reserved")]
        return not any(held) and not status["lanes"]

    def stop(self, sig: int = signal.SIGTERM) -> int:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(sig)
            self.process.wait(60)
        self._short.cleanup()
        return self.process.returncode


@pytest.fixture(scope="session")
def engine(tmp_path_factory, models):
    """One engine for all tests that leave it as it was; ``net1`` is the operator's."""
    directory = tmp_path_factory.mktemp("engine")
    process = EngineProcess(directory, batch_max=BATCH, max_samples=40, max_output_bytes="4 MiB")
    (directory / "models" / "net1.safetensors").write_bytes(models[0].path.read_bytes())
    try:
        yield process.start()
    finally:
        process.stop()


def feature_headers(digest: str, split: str = "avgpool", **more: str) -> dict[str, str]:
    """Headers as the filter sends them; ``More_Words`` become ``More-Words``, None removes."""
    headers = {
        "X-Hapi-Model": digest,
        "X-Hapi-Split": split,
        "X-Hapi-Transform": TRANSFORM,
        "X-Hapi-Account": "AUTH_test",
        "X-Hapi-Object": "/v1/AUTH_test/pictures/some/shard-0.tar",
        "X-Hapi-Source-Etag": "d41d8cd98f00b204e9800998ecf8427e",
        "X-Trans-Id": "tx123-test",
    }
    headers |= {name.replace("_", "-"): value for name, value in more.items()}
    return {name: value for name, value in headers.items() if value is not None}


def post(engine: EngineProcess, body: bytes, headers: dict[str, str]) -> Answer:
    return ask(engine.socket, "POST", "/v1/features", body, headers)
