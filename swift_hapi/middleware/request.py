"""One HAPI request from the first look at its headers to the answer."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

from swift.common.swob import wsgi_quote

from swift_hapi.middleware.client_watch import ClientGone, ClientWatch
from swift_hapi.middleware.config import FilterConfig
from swift_hapi.middleware.consent import require_consent
from swift_hapi.middleware.engine_client import EngineAnswer, EngineClient, unavailable
from swift_hapi.middleware.identity import USER, Identity
from swift_hapi.middleware.model_path import ModelPath
from swift_hapi.middleware.models import ModelResolver
from swift_hapi.middleware.responses import (
    Answer,
    from_document,
    from_error,
    relayed_headers,
    status_line,
)
from swift_hapi.middleware.source import Source, inner_env, refuse_odd_queries
from swift_hapi.protocol import headers as names
from swift_hapi.protocol.errors import (
    TYPE_PREFIX,
    AnonymousRefused,
    BadHeader,
    DeadlineExceeded,
    HapiError,
)

_FEATURES = "/v1/features"
_CONTROLS = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


class HapiRequest:
    """
    :param path: version, account, container and object of the request, as WSGI strings
    """

    def __init__(
        self,
        app,
        config: FilterConfig,
        engine: EngineClient,
        models: ModelResolver,
        env: dict,
        path: tuple[str, str, str, str],
    ):
        self._app = app
        self._config = config
        self._engine = engine
        self._models = models
        self._env = env
        self._version, self.account, self.container, _object = path
        self.object_path = wsgi_quote("/" + "/".join(path))
        self.trans_id: str = env.get("swift.trans_id") or "-"
        self.identity = Identity.from_env(env, self.account)
        self.features: names.FeatureRequest | None = None
        self.digest: str | None = None
        self._began = time.monotonic()
        self._deadline = self._began + config.deadline
        self._source: Source | None = None

    def answer(self) -> Answer:
        """Do what is asked; errors of ours become problem documents.

        The answer's body, when it has a ``close``, must be closed.
        """
        try:
            with ClientWatch(self._env) as watch:
                return self._answer(watch)
        except HapiError as err:
            return from_error(err, self.trans_id, self.object_path)
        except ClientGone:
            return Answer("499 Client Disconnect", [("Content-Length", "0")])
        finally:
            self._close_source()

    def _answer(self, watch: ClientWatch) -> Answer:
        path = self._parse()
        self._source = self._open_source()
        if self._source.status_int != 200:
            return self._swift_answer()
        if self.identity.kind != USER and not self._config.allow_anonymous:
            raise AnonymousRefused(
                "the object may be read without credentials, but features are computed only "
                "for users of an account: send a token"
            )
        require_consent(self._config.opt_in, self._app, self._env, self.account, self.container)
        self._require_length()
        self.digest = self._models.remembered(path, self.identity)
        if self.digest is not None:
            answer = self._ask(watch)
            if answer.status != 404:
                return self._relay(answer)
            # The engine has dropped the extractor since; nothing of the object has moved yet.
            answer.close()
            self._models.forget(path, self.identity)
        self.digest = self._resolve(path, watch)
        if self._source is None:
            self._source = self._open_source()
            if self._source.status_int != 200:
                return self._swift_answer()
            self._require_length()
        return self._relay(self._ask(watch))

    def _parse(self) -> ModelPath:
        refuse_odd_queries(self._env)
        self.features = names.FeatureRequest.from_headers(self._header)
        if _CONTROLS.search(self._header("If-None-Match") or ""):
            raise BadHeader("If-None-Match: has control characters, or goes over several lines")
        wanted = names.parse_deadline(self._header(names.DEADLINE), self._config.deadline)
        self._deadline = self._began + wanted
        return ModelPath.of_request(
            self.features.model,
            self._version,
            self.account,
            self._header(names.MODEL_CONTAINER),
            self._config.model_container,
        )

    def _header(self, name: str) -> str | None:
        return self._env.get("HTTP_" + name.upper().replace("-", "_"))

    @property
    def _is_head(self) -> bool:
        return self._env["REQUEST_METHOD"] == "HEAD"

    def _open_source(self) -> Source:
        return Source(self._app, inner_env(self._env))

    def _close_source(self) -> None:
        source, self._source = self._source, None
        if source is not None:
            source.close()

    def _require_length(self) -> None:
        self._source.require_length(
            self._config.max_object_bytes, "the object", "max_object_bytes"
        )

    def _swift_answer(self) -> Answer:
        """What Swift says to the plain request, as it is."""
        source = self._source
        return Answer(source.status, source.headers, source.take_body())

    def _resolve(self, path: ModelPath, watch: ClientWatch) -> str:
        # An extractor takes seconds to arrive. Meanwhile no object server shall wait for a
        # reader: the object is read anew afterwards.
        return self._models.resolve(
            self._env,
            path,
            self.identity,
            (self.account, self.container),
            watch,
            trans_id=self.trans_id,
            deadline=self._deadline,
            before_upload=self._close_source,
        )

    def _ask(self, watch: ClientWatch) -> EngineAnswer:
        headers = self._engine_headers()
        if self._is_head:
            return self._engine.head(_FEATURES, headers, watch, deadline=self._deadline)
        return self._engine.send(
            "POST",
            _FEATURES,
            headers,
            self._source.length,
            self._object_bytes(),
            watch,
            deadline=self._deadline,
        )

    def _object_bytes(self) -> Iterator[bytes]:
        yield from self._source.chunks()
        # The wait for compute comes now; it must not hold the backend.
        self._close_source()

    def _engine_headers(self) -> dict[str, str]:
        remaining = self._deadline - time.monotonic()
        if remaining <= 0:
            passed = self._deadline - self._began
            raise DeadlineExceeded(f"{passed:g} s have passed before compute")
        headers = self.features.with_model(self.digest).to_headers()
        headers[names.ACCOUNT] = self.identity.account
        headers[names.OBJECT] = self.object_path
        headers[names.DEADLINE] = f"{remaining:.3f}"
        headers[names.TRANS_ID] = self.trans_id
        if self._source.etag:
            headers[names.SOURCE_ETAG] = self._source.etag
        if_none_match = self._header("If-None-Match")
        if if_none_match is not None:
            headers["If-None-Match"] = if_none_match
        return headers

    def _relay(self, answer: EngineAnswer) -> Answer:
        try:
            return self._relayed(answer)
        except BaseException:
            answer.close()
            raise

    def _relayed(self, answer: EngineAnswer) -> Answer:
        headers = relayed_headers(answer.header)
        if self._is_head or answer.status == 304:
            answer.close()
            if answer.status not in (200, 304):
                headers = [("Content-Length", "0")]
            elif answer.status == 304:
                headers = [(k, v) for k, v in headers if k != "Content-Length"]
            return Answer(status_line(answer.status), headers)
        if answer.status == 200:
            media_type = (answer.header("Content-Type") or "").split(";")[0].strip()
            if media_type != names.FEATURES_TYPE or answer.length is None:
                raise unavailable("the engine's answer is no feature payload of a known length")
            return Answer(status_line(200), headers, FeatureBody(answer))
        document = answer.problem()
        answer.close()
        if document is None or not str(document.get("type", "")).startswith(TYPE_PREFIX):
            raise unavailable(f"the engine answers {answer.status} and does not say why")
        return from_document(
            document,
            answer.status,
            answer.header("Retry-After"),
            self.trans_id,
            self.object_path,
        )


class FeatureBody:
    """The engine's payload on its way to the client."""

    def __init__(self, answer: EngineAnswer):
        self._answer = answer
        self._chunks = answer.chunks()

    def __iter__(self) -> Iterator[bytes]:
        return self._chunks

    def close(self) -> None:
        self._answer.close()

