"""Keystone v3, as OpenStack's own tools are told of it: ``OS_*`` or a cloud of ``clouds.yaml``.

keystoneauth1 does the talking and openstacksdk reads the configuration, so every way to log in
that they know works (password, application credential, token, ...): the extra ``keystone``.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timezone

from hapi_compute.store.auth import Authenticator, Grant, tls_reason, usable
from hapi_compute.store.errors import AuthFailed, StoreError, Transient, Unreachable
from hapi_compute.store.retry import Retrier

_TIMEOUT = 30
_SERVICE = "object-store"


@dataclass(frozen=True)
class KeystoneLogin:
    """Who we are, by reference: the secrets stay where they are and are read when needed.

    :param cloud: of ``clouds.yaml``; None: what ``OS_*`` say
    :param storage_url: account to work in, when it is not the project's own
    :param cacert: file of the CAs to trust; None: what the configuration says
    """

    cloud: str | None = None
    storage_url: str | None = None
    cacert: str | None = None

    def __post_init__(self):
        url = self.storage_url
        if url and not url.startswith(("http://", "https://")):
            raise ValueError(f"storage_url {url!r}: want http://... or https://...")

    @property
    def verify(self) -> bool | str:
        """How https servers are verified, as ``requests`` takes it."""
        return self.region().get_requests_verify_args()[0] if self.cacert is None else self.cacert

    def region(self):
        """openstacksdk's ``CloudRegion``.

        :raises ValueError: the extra is not installed, or the configuration will not do
        """
        try:
            from keystoneauth1.exceptions import ClientException
            from openstack.config import OpenStackConfig
            from openstack.exceptions import SDKException
        except ImportError:
            raise ValueError(
                "Keystone needs keystoneauth1 and openstacksdk: pip install 'swift-hapi[keystone]'"
            ) from None
        try:
            region = OpenStackConfig().get_one(cloud=self.cloud)
            region.get_auth()
        except (SDKException, ClientException) as error:
            raise ValueError(f"{self._who()}: {' '.join(str(error).split())}") from None
        return region

    def _who(self) -> str:
        return f"cloud {self.cloud!r}" if self.cloud else "OS_*"

    def authenticator(self, retrier: Retrier) -> KeystoneAuth:
        """What gets tokens for this login.

        :raises ValueError: see :meth:`region`
        """
        return KeystoneAuth(self, retrier)


class KeystoneAuth(Authenticator):
    """Asks Keystone for a token, and its catalogue for the account."""

    def __init__(
        self,
        login: KeystoneLogin,
        retrier: Retrier,
        *,
        clock: Callable[[], float] = time.monotonic,
    ):
        super().__init__(retrier, clock=clock)
        self._region = login.region()
        self._plugin = self._region.get_auth()
        self._session = self._region.get_session()
        self._session.timeout = _TIMEOUT
        if login.cacert is not None:
            self._session.verify = login.cacert
        self._who = f"Keystone at {self._plugin.auth_url}"

    def _ask(self) -> Grant:
        from keystoneauth1 import exceptions

        try:
            # Its own idea of "about to expire" is two minutes, more than some tokens live.
            self._plugin.invalidate()
            access = self._plugin.get_access(self._session)
            url = self._region.get_endpoint(_SERVICE) or access.service_catalog.url_for(
                service_type=_SERVICE,
                interface=self._region.get_interface(_SERVICE) or "public",
                region_name=self._region.get_region_name(_SERVICE),
            )
        except (exceptions.Unauthorized, exceptions.Forbidden) as error:
            raise AuthFailed(f"{self._who}: {error.http_status}, refused") from None
        except exceptions.SSLError as error:
            raise StoreError(f"{self._who}: {tls_reason(error)}") from None
        except exceptions.ConnectionError as error:
            raise Unreachable(f"{self._who}: {type(error).__name__}") from None
        except exceptions.HttpServerError as error:
            status = error.http_status
            raise Transient(f"{self._who}: {status}", status=status) from None
        except exceptions.EndpointNotFound:
            region = self._region.get_region_name(_SERVICE)
            where = f" in region {region!r}" if region else ""
            raise StoreError(
                f"{self._who}: the catalogue has no {_SERVICE} endpoint{where}"
            ) from None
        except exceptions.ClientException as error:
            raise StoreError(f"{self._who}: {' '.join(str(error).split())}") from None
        left = (access.expires - datetime.now(timezone.utc)).total_seconds()
        return Grant(url.rstrip("/"), access.auth_token, self._clock() + usable(max(left, 0.0)))
