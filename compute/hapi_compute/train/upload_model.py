"""Brings the extractor file to where the storage tier looks for it."""

from __future__ import annotations

import tempfile
from pathlib import Path
from urllib.parse import quote

from hapi_compute.store.client import SwiftClient
from swift_hapi.graph.extractor import Extractor, save_extractor
from swift_hapi.protocol.digest import model_hex
from swift_hapi.protocol.headers import DEFAULT_MODEL_CONTAINER


def ensure_uploaded(extractor: Extractor, store: SwiftClient) -> tuple[str | None, bool]:
    """Put ``<hex>.safetensors`` into container ``hapi-models`` of the user's own account.

    :param store: client of the account the data lies in
    :returns: value for ``X-Hapi-Model-Container`` (None where the default is right), and whether
        anything had to be sent
    """
    own = store.own_account()
    container = DEFAULT_MODEL_CONTAINER
    elsewhere = own.storage_url != store.storage_url
    model_container = f"{own.account}/{quote(container, safe='')}" if elsewhere else None
    name = f"{model_hex(extractor.digest)}.safetensors"
    if own.head(container, name) is not None:
        return model_container, False
    with tempfile.TemporaryDirectory(prefix="hapi-") as directory:
        path = Path(directory, name)
        save_extractor(extractor, path)
        own.put_container(container)
        own.put(container, name, path.read_bytes(), content_type="application/octet-stream")
    return model_container, True
