"""Whether the owner of the data wants it to be computed on, where the operator asks for that."""

from __future__ import annotations

from swift.common.utils import config_true_value
from swift.proxy.controllers.base import get_account_info, get_container_info

from swift_hapi.middleware.source import SWIFT_SOURCE
from swift_hapi.protocol.errors import NotEnabled

_KEY = "hapi"


def require_consent(opt_in: str, app, env: dict, account: str, container: str) -> None:
    """Look at the metadata of account or container, as Swift has cached it.

    :param opt_in: ``off``, ``account`` or ``container``
    :param account: of the object, as a WSGI string; so is ``container``
    :raises NotEnabled: it does not say ``on``
    """
    if opt_in == "off":
        return
    if opt_in == "account":
        info = get_account_info(env, app, swift_source=SWIFT_SOURCE)
        what, header = f"account {account}", "X-Account-Meta-Hapi"
    else:
        info = get_container_info(env, app, swift_source=SWIFT_SOURCE)
        what, header = f"container {container}", "X-Container-Meta-Hapi"
    if not config_true_value((info.get("meta") or {}).get(_KEY, "")):
        raise NotEnabled(f"{what} is not open to feature requests: its {header} is not on")
