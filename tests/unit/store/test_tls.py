"""https is verified, with the CAs that one says."""

from __future__ import annotations

import datetime
import ipaddress
import ssl

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from hapi_compute.store.auth import Credentials
from hapi_compute.store.client import SwiftClient
from hapi_compute.store.errors import StoreError
from hapi_compute.store.keystone import KeystoneLogin
from hapi_compute.store.retry import RetryPolicy
from tests.unit.store.memory import MemorySwift


def certificate(directory, address: str):
    """(certificate, key): files of a server at ``address`` that vouches for itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "swift")])
    now = datetime.datetime.now(datetime.timezone.utc)
    names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))])
    made = (
        x509.CertificateBuilder()
        .subject_name(name).issuer_name(name).public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(names, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )  # fmt: skip
    paths = directory / f"{address}.crt", directory / f"{address}.key"
    paths[0].write_bytes(made.public_bytes(serialization.Encoding.PEM))
    paths[1].write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return paths


@pytest.fixture
def serve(tmp_path):
    """``serve(address)``: a store that claims to be at ``address``, and its certificate."""
    servers = []

    def start(address: str):
        crt, key = certificate(tmp_path, address)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(crt, key)
        servers.append(MemorySwift(tls=context))
        servers[-1].put("c", "o", b"body")
        return servers[-1], str(crt)

    yield start
    for server in servers:
        server.close()


def client_of(server, cacert=None) -> SwiftClient:
    login = Credentials(f"{server.url}/auth", "test:tester", "testing", cacert=cacert)
    return SwiftClient(login, policy=RetryPolicy(attempts=5, base=0))


def test_a_server_that_nobody_vouches_for(serve):
    server, _ = serve("127.0.0.1")
    client = client_of(server)
    with pytest.raises(StoreError, match="self.signed certificate.*--cacert") as caught:
        client.get("c", "o")
    assert not caught.value.retryable and not server.seen


def test_a_ca_of_ones_own(serve):
    server, cacert = serve("127.0.0.1")
    client = client_of(server, cacert)
    assert client.get("c", "o").body == b"body"
    assert [each.name for each in client.list("c")] == ["o"]


def test_the_certificate_of_another_server(serve):
    server, cacert = serve("127.0.0.2")
    with pytest.raises(StoreError, match="IP address mismatch"):
        client_of(server, cacert).get("c", "o")


def test_objects_are_verified_as_the_login_is(serve):
    """The account's server may be another one than that of the tokens."""
    auth, cacert = serve("127.0.0.1")
    store, _ = serve("127.0.0.2")
    login = Credentials(
        f"{auth.url}/auth", "test:tester", "testing", f"{store.url}/v1/AUTH_test", cacert
    )
    with pytest.raises(StoreError, match="certificate"):
        SwiftClient(login, policy=RetryPolicy(attempts=1)).get("c", "o")
    assert auth.tokens and not store.seen


def test_keystone(serve, monkeypatch):
    server, cacert = serve("127.0.0.1")
    for name, value in {
        "AUTH_URL": f"{server.url}/identity/v3", "USERNAME": "u", "PASSWORD": "testing",
        "PROJECT_NAME": "p", "USER_DOMAIN_NAME": "D", "PROJECT_DOMAIN_NAME": "D",
        "REGION_NAME": "one",
    }.items():  # fmt: skip
        monkeypatch.setenv(f"OS_{name}", value)
    with pytest.raises(StoreError, match="certificate"):
        SwiftClient(KeystoneLogin(), policy=RetryPolicy(attempts=1)).get("c", "o")
    monkeypatch.setenv("OS_CACERT", cacert)
    assert SwiftClient(KeystoneLogin()).get("c", "o").body == b"body"
    monkeypatch.delenv("OS_CACERT")
    assert SwiftClient(KeystoneLogin(cacert=cacert)).get("c", "o").body == b"body"
