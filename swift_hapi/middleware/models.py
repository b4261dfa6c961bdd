"""From ``X-Hapi-Model`` to a digest that the engine holds and the requester may use.

A digest is no secret and no permission: whoever asks for an extractor that lies in Swift must be
able to read it there now, and what he can read there must be that extractor. The engine tells
the md5 of the file it holds under a digest; equal to the ETag of the plain object that the
requester reads, the bytes are the same and nothing moves. Otherwise the object's bytes go to the
engine, which takes them only if they have the digest. What it refuses is not brought again for a
while, unless the object changes.

That a token may read a digest's object is remembered for a while. A name's object is looked at by
each request: it may have been replaced.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager

from swift.common.wsgi import make_subrequest

from swift_hapi.middleware.auth_cache import ExpiringCache
from swift_hapi.middleware.client_watch import ClientWatch
from swift_hapi.middleware.config import FilterConfig
from swift_hapi.middleware.engine_client import EngineClient
from swift_hapi.middleware.engine_models import EngineModels, KnownModel
from swift_hapi.middleware.green import Semaphore
from swift_hapi.middleware.identity import USER, Identity
from swift_hapi.middleware.model_path import ModelPath
from swift_hapi.middleware.source import SWIFT_SOURCE, Source
from swift_hapi.protocol import headers as names
from swift_hapi.protocol.digest import model_hex
from swift_hapi.protocol.errors import (
    HapiError,
    ModelForbidden,
    ModelInvalid,
    ModelMismatch,
    ModelNotFound,
    ModelUnavailable,
)

#: Seconds for which the digest of an object under a name is kept, beside the object's ETag.
NAME_LIFETIME = 86400.0
#: Seconds for which it is kept that the engine refuses an object's bytes, beside their ETag.
REFUSED_LIFETIME = 300.0
_LARGE_OBJECTS = {
    "X-Static-Large-Object": "a static large object",
    "X-Object-Manifest": "a dynamic large object",
}


class ModelResolver:
    """Finds extractors for requests; remembers for a while who may use which.

    :param app: what lies right of the filter
    """

    def __init__(self, app, engine: EngineClient, config: FilterConfig):
        self._app = app
        self._engine = engine
        self._max_bytes = config.max_model_bytes
        self._allowed = ExpiringCache(config.auth_cache_size, config.auth_cache_time)
        self._digests = ExpiringCache(config.auth_cache_size, NAME_LIFETIME)
        self._refused = ExpiringCache(config.auth_cache_size, REFUSED_LIFETIME)
        self._uploads: dict[str, tuple[Semaphore, int]] = {}

    def remembered(self, path: ModelPath, identity: Identity) -> str | None:
        """The digest, where :meth:`resolve` has found it out a moment ago.

        Not for names, which may be given to other bytes at any time.
        """
        if path.hex is None:
            return None
        found = self._allowed.get(path.reference) if path.may_be_operators else None
        key = _key(path, identity)
        return found or (self._allowed.get(key) if key else None)

    def forget(self, path: ModelPath, identity: Identity) -> None:
        self._allowed.forget(path.reference)
        self._allowed.forget(_key(path, identity))

    def resolve(
        self,
        env: dict,
        path: ModelPath,
        identity: Identity,
        object_container: tuple[str, str],
        watch: ClientWatch,
        *,
        trans_id: str,
        deadline: float,
        before_upload: Callable[[], None],
    ) -> str:
        """The digest, ``sha256:<hex>``, of an extractor that the engine now holds.

        :param env: the requester's environment, whose rights the model is read with
        :param object_container: account and container of the object
        :param deadline: on the clock of :func:`time.monotonic`
        :param before_upload: called before an extractor travels, which takes its time
        :raises ModelForbidden: the requester may not read it
        :raises ModelNotFound: neither the engine nor the container has it
        :raises ModelInvalid, ModelMismatch, TooLarge: it is refused
        :raises ModelUnavailable, EngineUnavailable, EngineBusy, DeadlineExceeded: try again
        """
        engine = EngineModels(self._engine, trans_id, identity.account, watch, deadline)
        known = engine.about(path.hex or path.reference) if path.may_be_operators else None
        if known and known.operators:
            if path.hex:
                self._allowed.put(path.reference, known.digest)
            return known.digest
        if identity.kind != USER and (path.account, path.container) != object_container:
            # An account's key signs for every container of the account, but whoever made the
            # signature meant this one.
            raise ModelForbidden(
                f"{names.MODEL}: without a user, only the operator's models and those in the "
                f"object's own container can be used"
            )
        etag = self._check(env, path)
        digest = self._held(engine, path, etag, known)
        if digest is None:
            before_upload()
            with self._one_upload(path.quoted) as waited:
                if waited:  # meanwhile another request may have brought it
                    digest = self._held(engine, path, etag)
                if digest is None:
                    self._raise_if_refused(path, etag)
                digest = digest or self._upload(engine, env, path)
        key = _key(path, identity)
        if key and path.hex:
            self._allowed.put(key, digest)
        return digest

    def _raise_if_refused(self, path: ModelPath, etag: str) -> None:
        """:raises ModelMismatch, ModelInvalid: the engine has refused these bytes lately"""
        error = self._refused.get((path.quoted, etag))
        if error is not None:
            raise _again(error)

    def _held(
        self, engine: EngineModels, path: ModelPath, etag: str, known: KnownModel | None = None
    ) -> str | None:
        """The digest, if the engine holds the very bytes of the object with this ETag."""
        digest = path.reference if path.hex else self._digests.get((path.quoted, etag))
        if digest and known is None:
            known = engine.about(model_hex(digest))
        return known.digest if known and known.md5 == etag else None

    def _check(self, env: dict, path: ModelPath) -> str:
        """The ETag of the model's object, if the requester may read it now."""
        # For a plain object a HEAD is as strict as a GET; large objects, whose segments it
        # does not look at, are refused.
        source = self._open("HEAD", env, path)
        source.close()
        return source.etag or ""

    def _upload(self, engine: EngineModels, env: dict, path: ModelPath) -> str:
        source = self._open("GET", env, path)
        try:
            digest = engine.put(path.hex, source.length, source.chunks())
        except (ModelInvalid, ModelMismatch) as error:
            # Not the error itself: it holds on to all that it was raised among.
            self._refused.put((path.quoted, source.etag), _again(error))
            raise
        finally:
            source.close()
        if path.hex is None and source.etag:
            self._digests.put((path.quoted, source.etag), digest)
        return digest

    def _open(self, method: str, env: dict, path: ModelPath) -> Source:
        request = make_subrequest(
            env,
            method=method,
            path=path.quoted,
            agent="%(orig)s HAPI",
            swift_source=SWIFT_SOURCE,
        )
        # A subrequest inherits the query of the original, which is about another object.
        request.environ["QUERY_STRING"] = ""
        source = Source(self._app, request.environ)
        try:
            _refuse_unless_plain(source, path)
            source.require_length(
                self._max_bytes, f"the model {path.quoted}", "max_model_bytes"
            )
        except BaseException:
            source.close()
            raise
        return source

    @contextmanager
    def _one_upload(self, key: str):
        """Requests for one extractor bring it one after the other, so that one brings it.

        Yields whether another request was before this one.
        """
        semaphore, users = self._uploads.get(key) or (Semaphore(1), 0)
        self._uploads[key] = (semaphore, users + 1)
        try:
            with semaphore:
                yield users > 0
        finally:
            semaphore, users = self._uploads.pop(key)
            if users > 1:
                self._uploads[key] = (semaphore, users - 1)


def _again(error: HapiError) -> HapiError:
    return type(error)(error.detail, **error.members)


def _key(path: ModelPath, identity: Identity) -> tuple[str, str, str] | None:
    if identity.kind != USER or identity.fingerprint is None:
        return None
    return identity.fingerprint, path.quoted, path.reference


def _refuse_unless_plain(source: Source, path: ModelPath) -> None:
    """:raises HapiError: unless ``source`` is a plain object that Swift lets the requester read"""
    where = f"{names.MODEL}: {path.reference} at {path.quoted}"
    if source.status_int in (401, 403):
        raise ModelForbidden(f"{where}: you may not read it")
    if source.status_int == 404:
        raise ModelNotFound(f"{where}: the node does not have it, and there is no such object")
    if source.status_int >= 500:
        raise ModelUnavailable(f"{where}: Swift answers {source.status}", retry_after=2)
    if source.status_int != 200:
        raise ModelInvalid(f"{where}: Swift answers {source.status}")
    for header, kind in _LARGE_OBJECTS.items():
        if source.header(header):
            # The ETag of a large object is not the md5 of its bytes.
            raise ModelInvalid(f"{where}: it is {kind}, but must be a plain object")
