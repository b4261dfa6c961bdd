"""The engine's model store, as one request sees it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from swift_hapi.middleware.client_watch import ClientWatch
from swift_hapi.middleware.engine_client import EngineAnswer, EngineClient, unavailable
from swift_hapi.protocol import headers as names
from swift_hapi.protocol.digest import model_hex
from swift_hapi.protocol.errors import HapiError, from_problem

OPERATOR = "operator"


@dataclass(frozen=True)
class KnownModel:
    """``digest`` is ``sha256:<hex>``, ``md5`` that of the file's bytes; ``operators`` tells that
    the operator provides it, so that it is open to all."""

    digest: str
    md5: str
    operators: bool


class EngineModels:
    """
    :param account: charged for what happens
    :param deadline: on the clock of :func:`time.monotonic`
    """

    def __init__(
        self,
        engine: EngineClient,
        trans_id: str,
        account: str,
        watch: ClientWatch,
        deadline: float,
    ):
        self._engine = engine
        self._headers = {names.TRANS_ID: trans_id, names.ACCOUNT: account}
        self._watch = watch
        self._deadline = deadline

    def about(self, reference: str) -> KnownModel | None:
        """What the engine holds under 64 hex digits or an operator's name; None when nothing.

        :raises EngineUnavailable, DeadlineExceeded: it does not say
        """
        answer = self._engine.head(
            f"/v1/models/{reference}", self._headers, self._watch, deadline=self._deadline
        )
        answer.close()
        if answer.status == 404:
            return None
        if answer.status != 200:
            raise unavailable(f"the engine answers {answer.status} when asked for a model")
        return KnownModel(
            digest=_digest_of(answer),
            md5=answer.header(names.MODEL_MD5) or "?",
            operators=answer.header(names.MODEL_SCOPE) == OPERATOR,
        )

    def put(self, hex_digest: str | None, length: int, chunks: Iterable[bytes]) -> str:
        """Give the engine an extractor file; the digest under which it now holds it.

        :param hex_digest: the digest that the bytes must have; None to learn it
        :param length: in bytes
        :raises ModelMismatch: the bytes have another digest
        :raises ModelInvalid, TooLarge: the engine refuses the file
        :raises EngineUnavailable, EngineBusy, DeadlineExceeded, SourceTruncated: try again
        """
        answer = self._engine.send(
            "PUT" if hex_digest else "POST",
            f"/v1/models/{hex_digest}" if hex_digest else "/v1/models",
            self._headers,
            length,
            chunks,
            self._watch,
            deadline=self._deadline,
        )
        try:
            if answer.status not in (200, 201):
                raise _error_of(answer)
            digest = _digest_of(answer)
        finally:
            answer.close()
        if hex_digest and model_hex(digest) != hex_digest:
            raise unavailable("the engine took a model under another digest")
        return digest


def _digest_of(answer: EngineAnswer) -> str:
    digest = answer.header(names.MODEL) or ""
    if model_hex(digest) is None:
        raise unavailable(f"the engine names no digest but {digest[:80]!r}")
    return digest


def _error_of(answer: EngineAnswer) -> HapiError:
    retry_after = answer.header("Retry-After")
    error = from_problem(
        answer.problem(),
        answer.status,
        retry_after=int(retry_after) if retry_after and retry_after.isdigit() else None,
    )
    return error or unavailable(f"the engine answers {answer.status} to a model")
