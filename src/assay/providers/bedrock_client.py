"""Calls of Bedrock's Converse API with boto3: one attempt each, blocking.

boto3 finds credentials, signs and parses. Its retries are off, and its answers are read here, so
that their size has a limit. boto3 is imported when a client is built: it is optional, and opens a
socket when it is imported.
"""

import os
from base64 import b64encode
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from typing import Any
from urllib.parse import quote

from pydantic_core import from_json, to_json

from assay.errors import ConfigError, MissingExtra
from assay.formats import make_storable
from assay.types import Endpoint

from .adapter import check_headers
from .address import resolve_address
from .attempt_errors import AttemptError, ErrorKind, build_timeout_error
from .clock import Timing
from .http import (
    MAX_RESPONSE_BYTES,
    RequestTemplate,
    build_connection_error,
    build_status_error,
    make_excerpt,
)
from .keys import build_credential_headers, build_key_hint
from .pool import RawResponse
from .proxies import Proxy, find_proxy
from .reply_redaction import build_endpoint_redactor

_CONNECT_TIMEOUT_S = 30.0
_CHUNK_BYTES = 64 * 1024
_CREDENTIALS_HINT = (
    "set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or "
    "AWS_BEARER_TOKEN_BEDROCK to a key of Bedrock"
)


class BedrockClient:
    """A boto3 client of one model. Its calls may run in any thread."""

    def __init__(
        self, endpoint: Endpoint, *, timeout_s: float, connections: int, timing: Timing
    ) -> None:
        try:
            import boto3  # noqa: F401  # only whether it is installed
            import botocore.session
            from botocore.exceptions import BotoCoreError
            from botocore.httpsession import URLLib3Session
        except ModuleNotFoundError as error:
            raise MissingExtra.build(
                "bedrock", by="the provider 'bedrock'", package="boto3"
            ) from error
        self._endpoint = endpoint
        self._where = f"{endpoint.provider}:{endpoint.model}"
        self._now = timing.now
        check_headers(endpoint)
        self._headers = {**build_credential_headers(endpoint), **endpoint.headers}
        signed = "authorization" not in {name.lower() for name in self._headers}
        try:
            core = botocore.session.get_session()
            loader = _create_loader(core.get_config_variable("data_path"))
            core.register_component("data_loader", loader)
            self._credentials = core.get_credentials() if signed else None
            self._client = _build_boto_client(core, endpoint, signed=signed, where=self._where)
        except (BotoCoreError, ValueError) as error:
            raise ConfigError(
                f"the settings of AWS are invalid: {error}", where=self._where
            ) from None
        if signed and self._credentials is None:
            raise ConfigError(
                "the credentials of AWS are missing", where=self._where, hint=_CREDENTIALS_HINT
            )
        url = self._client.meta.endpoint_url
        proxy = find_proxy(url)
        self._secrets: tuple[str, ...] = ()
        self._template = RequestTemplate(
            url=url,
            headers={},
            timeout_s=timeout_s,
            redactor=build_endpoint_redactor(endpoint, self._headers, proxy),
            where=self._where,
            denied_hint=_CREDENTIALS_HINT if signed else build_key_hint(endpoint),
            missing_hint="check the model id, and that this region offers it",
            proxy=proxy,
        )
        self._http = URLLib3Session(
            verify=core.get_config_variable("ca_bundle") or True,
            proxies=_build_boto_proxies(proxy),
            timeout=(min(_CONNECT_TIMEOUT_S, timeout_s), timeout_s),
            max_pool_connections=connections,
        )
        self._client.meta.events.register("before-send.bedrock-runtime.Converse", self._send)

    def find_problem(self, request: Mapping[str, Any]) -> str | None:
        """Return why boto3 would reject a request; None if it would send it."""
        from botocore.validate import ParamValidator

        shape = self._client.meta.service_model.operation_model("Converse").input_shape
        report = ParamValidator().validate(dict(request), shape)
        return report.generate_report() if report.has_errors() else None

    def converse(self, request: Mapping[str, Any]) -> Any:
        """Make one attempt; blobs of the answer are base64. Raises `AttemptError`."""
        try:
            self._collect_secrets()
            answer = _encode_blobs(self._client.converse(**request))
            # With the limits of the parser for other servers: on depth and half characters.
            return from_json(to_json(make_storable(answer)))
        except AttemptError:
            raise
        except Exception as error:
            fault = self._build_error(error)
        # Raised outside the handler: as context, the original could show secrets.
        raise fault

    def close(self) -> None:
        """Close the connections."""
        self._http.close()
        self._client.close()

    def _collect_secrets(self) -> None:
        # Temporary credentials are renewed during a run; boto3 caches them.
        if self._credentials is None:
            return
        found = tuple(filter(None, self._credentials.get_frozen_credentials()[:3]))
        if found != self._secrets:
            redactor = build_endpoint_redactor(
                self._endpoint, self._headers, self._template.proxy, more=found
            )
            self._template = replace(self._template, redactor=redactor)
            self._secrets = found

    def _send(self, request: Any, **_: object) -> Any:
        from botocore.awsrequest import AWSResponse

        for name, value in self._headers.items():
            request.headers[name] = value
        # Leaves the body unread, which has no limit otherwise.
        request.stream_output = True
        answer = self._http.send(request)
        # A long error page is not read to its end.
        most = MAX_RESPONSE_BYTES if answer.status_code == 200 else _CHUNK_BYTES
        pieces, size = [], 0
        for piece in answer.raw.stream(_CHUNK_BYTES):
            pieces.append(piece)
            size += len(piece)
            if size > most:
                answer.raw.close()
                break
        body, cut = b"".join(pieces)[:most], size > most
        if answer.status_code != 200:
            headers = {
                name.lower().encode("latin-1"): value.encode("latin-1", "replace")
                for name, value in answer.headers.items()
            }
            raw = RawResponse(answer.status_code, headers, body, cut)
            raise build_status_error(raw, self._template, self._now())
        if cut:
            raise AttemptError(
                ErrorKind.GARBLED, f"the answer is longer than {MAX_RESPONSE_BYTES} bytes", 200
            )
        return AWSResponse(request.url, answer.status_code, answer.headers, _Body(body))

    def _build_error(self, error: Exception) -> AttemptError:
        from botocore import exceptions
        from urllib3.exceptions import HTTPError, ReadTimeoutError

        if isinstance(error, exceptions.ReadTimeoutError | ReadTimeoutError):
            return build_timeout_error(self._template.timeout_s)
        cause = getattr(error, "kwargs", {}).get("error", error)
        if isinstance(error, exceptions.SSLError) and "CERTIFICATE" in str(cause):
            return AttemptError(
                ErrorKind.REFUSED,
                "the server's certificate is not valid for this address",
                hint="trust the authority that signed it: set AWS_CA_BUNDLE to its bundle",
            )
        if isinstance(
            error,
            exceptions.HTTPClientError | exceptions.ConnectionError | HTTPError | OSError,
        ):
            return build_connection_error(_find_os_error(error))
        excerpt = make_excerpt(str(error), self._template.redactor)
        if isinstance(
            error,
            exceptions.NoCredentialsError
            | exceptions.PartialCredentialsError
            | exceptions.CredentialRetrievalError
            | exceptions.TokenRetrievalError
            | exceptions.SSOError,
        ):
            return AttemptError(
                ErrorKind.DENIED,
                f"the credentials of AWS cannot be used: {excerpt}",
                hint=_CREDENTIALS_HINT,
            )
        if isinstance(error, exceptions.ParamValidationError):
            return AttemptError(ErrorKind.REFUSED, f"the request is invalid: {excerpt}")
        return AttemptError(
            ErrorKind.GARBLED, f"the answer is not one of the Converse API: {excerpt}", 200
        )


# Reading the descriptions of the service takes most of the time in which a client is built.
@cache
def _create_loader(data_path: str | None) -> Any:
    from botocore.loaders import create_loader

    return create_loader(data_path)


class _Body:
    """A body that was read already, in the form that boto3 reads."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def stream(self) -> Iterator[bytes]:
        yield self._data


def _build_boto_client(core: Any, endpoint: Endpoint, *, signed: bool, where: str) -> Any:
    import boto3
    from botocore import UNSIGNED
    from botocore.config import Config

    # boto3 reads only AWS_DEFAULT_REGION; AWS itself sets AWS_REGION.
    region = core.get_config_variable("region") or os.environ.get("AWS_REGION")
    if not region:
        raise ConfigError(
            "the region of AWS is missing",
            where=where,
            hint="set AWS_REGION, such as us-east-1, or `region` in your AWS profile",
        )
    url = None
    if endpoint.api_base is not None:
        address = resolve_address(endpoint)
        url = f"{address.scheme}://{address.host}{address.path}"
    return boto3.session.Session(botocore_session=core).client(
        "bedrock-runtime",
        region_name=region,
        endpoint_url=url,
        config=Config(
            # Retries are counted and limited by the caller.
            retries={"total_max_attempts": 1, "mode": "standard"},
            signature_version=None if signed else UNSIGNED,
            user_agent_extra="assay",
        ),
    )


def _build_boto_proxies(proxy: Proxy | None) -> dict[str, str]:
    if proxy is None:
        return {}
    scheme, _, host = proxy.url.partition("://")
    user = ""
    if proxy.user:
        user = f"{quote(proxy.user, safe='')}:{quote(proxy.password, safe='')}@"
    url = f"{scheme}://{user}{host}"
    return {"http": url, "https": url}


def _find_os_error(error: BaseException) -> Exception:
    # The cause has a code, and no address in its message.
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, OSError) and seen.errno:
            return seen
        seen = getattr(seen, "kwargs", {}).get("error") or seen.__cause__ or seen.__context__
    return ConnectionError() if not isinstance(error, OSError) else error


def _encode_blobs(value: Any) -> Any:
    if isinstance(value, bytes | bytearray):
        return b64encode(value).decode("ascii")
    if isinstance(value, dict):
        return {key: _encode_blobs(inner) for key, inner in value.items()}
    return [_encode_blobs(inner) for inner in value] if isinstance(value, list) else value
