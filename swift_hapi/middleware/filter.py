"""
``hapi`` computes features of images inside a GET, beside the data.

A GET on an object that carries ``X-Hapi-Model`` is answered with the output of the head of a
neural network for the images in that object; every other request passes through untouched. The
computation happens in another process, ``hapi-engine``, behind a unix socket; this filter checks
that the requester may read the object and the model, brings both to the engine, and relays its
answer::

    curl -H "X-Auth-Token: $TOKEN" \\
         -H "X-Hapi-Model: sha256:8b1a..." -H "X-Hapi-Split: avgpool" \\
         -H "X-Hapi-Transform: resize=256, crop=224, mean=(0.485 0.456 0.406), \\
    std=(0.229 0.224 0.225)" \\
         -o features.safetensors $STORAGE_URL/photos/shard-0001.tar

A HEAD with the same headers tells whether all of them are acceptable, without computing.

The requester's own GET goes to Swift first. What Swift denies is answered as Swift answers it,
and neither the engine nor the model is asked before Swift has said 200. A model is named by the
sha256 of its file. It is one that the operator has put beside the engine, open to all, or the
object ``<hex>.safetensors`` in the account of the request, read with the requester's rights.

-----
Usage
-----
In the proxy's pipeline ``hapi`` stands right of auth and ratelimit, and left of copy, slo, dlo,
versioned_writes, symlink, keymaster and encryption. All of these have to be listed, as Swift
puts those that are missing to the left of ``hapi``::

    [pipeline:main]
    pipeline = catch_errors gatekeeper healthcheck proxy-logging cache listing_formats
     container_sync bulk tempurl ratelimit tempauth hapi copy container-quotas account-quotas
     slo dlo versioned_writes symlink proxy-logging proxy-server

    [filter:hapi]
    use = egg:swift-hapi#hapi
    engine = unix:/run/swift-hapi/engine.sock

-------
Options
-------
``engine``
    Where the engine listens, ``unix:`` and an absolute path. No default.
``model_container``
    The container, in the account of the request's path, where models are looked for unless the
    request names another with ``X-Hapi-Model-Container``. Default ``hapi-models``.
``allow_anonymous``
    Whether to compute for requests that carry no user: public containers, TempURLs. Their work
    is charged to ``anonymous:<account>``. They can use the operator's models and those in the
    object's own container. Default ``false``.
``opt_in``
    Whose objects may be computed on: ``off``, everybody's; ``account``, those of accounts whose
    metadata has ``X-Account-Meta-Hapi: on``; ``container``, those of containers that have
    ``X-Container-Meta-Hapi: on``. Others are answered 403. Default ``off``.
``auth_cache_time``
    Seconds (at most 60) for which it is remembered that a token may read a model that is named
    by its digest; 0 asks each time. A model that is named otherwise is looked at by each request,
    which takes some milliseconds: its name may have been given to other bytes. Default ``60.0``.
``auth_cache_size``
    How many such permissions a proxy worker remembers. Default ``1024``.
``connect_timeout``
    Seconds to connect to the engine. Default ``1.0``.
``admission_timeout``
    Seconds within which the engine is to say whether it takes a request; as in the engine's
    configuration. The filter gives it 30 more, to load a model, before it answers 503. Default
    ``2.0``.
``deadline``
    Seconds for a whole request, models and the object's transfer included; a client may ask for
    less with ``X-Hapi-Deadline``. The filter gives the engine 5 more before it answers 504.
    Default ``300.0``.
``max_object_bytes``
    Bytes of the largest object to compute on; ``KiB``, ``MiB`` or ``GiB`` may follow the number,
    here and below. Default ``268435456``.
``max_model_bytes``
    Bytes of the largest model file. Default ``2147483648``.
``max_samples``, ``max_pixels``, ``max_output_bytes``
    Published in ``/info`` and enforced by the engine: keep them as in its configuration.
    Defaults ``4096``, ``64000000``, ``268435456``.
``strict_pipeline``
    Whether a wrong place in the pipeline keeps the proxy from starting, or is only logged as an
    error. Default ``true``.

Besides, the usual ``log_*`` and ``statsd`` options of Swift. Statsd counts
``hapi.<method>.<status>`` with timings, and ``hapi.bytes``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version

from swift.common.registry import register_swift_info
from swift.common.utils import close_if_possible, get_logger, split_path

from swift_hapi.middleware.config import FilterConfig, unknown_options
from swift_hapi.middleware.engine_client import EngineClient
from swift_hapi.middleware.models import ModelResolver
from swift_hapi.middleware.pipeline_check import check_pipeline, describe
from swift_hapi.middleware.request import HapiRequest
from swift_hapi.protocol import headers as names

#: What the engine's decoders read.
FORMATS = ("jpeg", "png", "tar", "npy")


class HapiMiddleware:
    """See the module's documentation."""

    def __init__(self, app, config: FilterConfig, logger):
        self.app = app
        self.config = config
        self.logger = logger
        self._engine = EngineClient(
            config.engine, config.connect_timeout, config.admission_timeout
        )
        self._models = ModelResolver(app, self._engine, config)
        self._loaded_pipeline = None

    @property
    def _pipeline(self) -> list[object] | None:
        """All apps of the pipeline, leftmost first.

        ``swift.common.wsgi.loadapp`` sets this on every filter once the last one is made; it is
        the only moment at start-up when a filter can see what lies to its left.
        """
        return self._loaded_pipeline

    @_pipeline.setter
    def _pipeline(self, pipeline: list[object]) -> None:
        self._loaded_pipeline = pipeline
        wrong = check_pipeline(pipeline, self)
        if not wrong:
            return
        sentence = f"hapi: {'; '.join(wrong)}. The pipeline is: {describe(pipeline)}"
        self.logger.error(sentence)
        if self.config.strict_pipeline:
            raise ValueError(sentence)

    def __call__(self, env, start_response):
        if "HTTP_X_HAPI_MODEL" not in env:
            return self.app(env, start_response)
        path = _hapi_path(env)
        if path is None:
            return self.app(env, start_response)
        started = time.time()
        request = HapiRequest(self.app, self.config, self._engine, self._models, env, path)
        answer = request.answer()

        def done(sent: int) -> None:
            self._log(request, env["REQUEST_METHOD"], answer, sent, started)

        start_response(answer.status, answer.headers)
        if env["REQUEST_METHOD"] == "HEAD":
            close_if_possible(answer.body)
            done(0)
            return []
        return _Counted(answer.body, done)

    def _log(self, request: HapiRequest, method: str, answer, sent: int, started: float) -> None:
        features = request.features
        self.logger.info(
            "%(method)s %(object)s for %(account)s: %(status)s%(problem)s, model %(model)s, "
            "cut %(cut)s, %(sent)d bytes, %(ms).1f ms",
            {
                "method": method,
                "object": request.object_path,
                "account": request.identity.account,
                "status": answer.status_int,
                "problem": f" {answer.problem}" if answer.problem else "",
                "model": (request.digest or "-")[: len("sha256:") + 12],
                "cut": features.split if features else "-",
                "sent": sent,
                "ms": 1000 * (time.time() - started),
            },
        )
        metric = f"hapi.{method}.{answer.status_int}"
        self.logger.increment(metric)
        self.logger.timing_since(f"{metric}.timing", started)
        self.logger.update_stats("hapi.bytes", sent)


class _Counted:
    """A body that reports, once, how many bytes went out."""

    def __init__(self, body, done: Callable[[int], None]):
        self._body = body
        self._done: Callable[[int], None] | None = done
        self._sent = 0

    def __iter__(self) -> Iterator[bytes]:
        for chunk in self._body:
            self._sent += len(chunk)
            yield chunk

    def close(self) -> None:
        close_if_possible(self._body)
        done, self._done = self._done, None
        if done is not None:
            done(self._sent)


def _hapi_path(env: dict) -> tuple[str, str, str, str] | None:
    """Version, account, container, object; None when the request is not for us."""
    # swift.source is set on requests that other middleware makes: they want the object.
    if env["REQUEST_METHOD"] not in ("GET", "HEAD") or env.get("swift.source"):
        return None
    try:
        return tuple(split_path(env["PATH_INFO"], 4, 4, True))
    except ValueError:
        return None


def _version() -> str:
    try:
        return version("swift-hapi")
    except PackageNotFoundError:
        return "unknown"


def filter_factory(global_conf, **local_conf):
    """Paste's factory.

    :raises ValueError: naming the option at fault
    """
    conf = global_conf.copy()
    conf.update(local_conf)
    config = FilterConfig.from_conf(conf)
    logger = get_logger(conf, log_route="hapi")
    for sentence in unknown_options(local_conf):
        logger.warning("hapi: %s", sentence)
    register_swift_info(
        "swift_hapi",
        version=_version(),
        limits=config.limits(),
        model_container=config.model_container,
        allow_anonymous=config.allow_anonymous,
        opt_in=config.opt_in,
        dtypes=list(names.DTYPES),
        encodings=list(names.ENCODINGS),
        formats=list(FORMATS),
    )

    def hapi_filter(app):
        return HapiMiddleware(app, config, logger)

    return hapi_filter
