"""An agent that is an HTTP service with a JSON interface of its own."""

import codecs
import json
import os
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import parse_qsl, urlsplit, urlunsplit

import aiohttp

from assay.errors import ConfigError, WireError
from assay.formats import convert_agent_output, to_openai_chat
from assay.providers import Redactor, find_proxy, is_loopback
from assay.types import Sample, Trajectory, stable_id

from .agent import AgentFault, RunContext
from .agent_answer import build_trajectory
from .command_agent import render_prompt

DEFAULT_REQUEST: Mapping[str, Any] = {"messages": "{messages}", "prompt": "{prompt}"}
"""The body that a service is sent unless it has a request template."""

_MAX_BODY_BYTES = 16 * 1024 * 1024
_MAX_EXCERPT_CHARS = 300
_PLACEHOLDER = re.compile(r"\{(prompt|messages|id|seed|base_url|api_key|input(?:\.[^{}]+)?)\}")
_FIELD = re.compile(r"\{([^{}]+)\}")
_PATH_STEP = re.compile(r"\.?([^.\[\]]+)|\[(\d+)\]")


class HttpAgent:
    """Posts each sample as JSON to a service, and reads its answer from the response.

    `request` is the body: JSON in which `{prompt}`, `{messages}`, `{id}`, `{seed}` and
    `{input.FIELD}` are replaced, and in a run with an `endpoint` `{base_url}` and `{api_key}`, by
    which the service reaches its model. `answer` is the path of the answer in the response, such as
    `data.choices[0].text`, and `$` is the whole response; None: the format of the response is
    detected, and one of no known format is a failure.
    """

    def __init__(
        self,
        url: str,
        *,
        request: Mapping[str, Any] | None = None,
        answer: str | None = None,
        headers: Mapping[str, str] | None = None,
        key_env: str | None = None,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(
                "the address of the agent is not an http or https URL",
                hint="write it like http://127.0.0.1:8000/ask",
            )
        if "@" in parts.netloc:
            raise ConfigError(
                "the address of the agent contains a user or password",
                hint="pass the key in an environment variable: HttpAgent(url, key_env='NAME')",
            )
        self._url = url
        # Without the query, which may contain a key.
        self.name = urlunsplit((parts.scheme, parts.netloc, parts.path, "", ""))
        self._request = DEFAULT_REQUEST if request is None else request
        self._path = None if answer is None else _parse_path(answer)
        self._headers = {**(headers or {}), **_read_key(key_env, self.name)}
        secrets = [value for _, value in parse_qsl(parts.query)]
        self._redactor = Redactor([*self._headers.values(), *secrets])
        self.identity = stable_id([self.name, self._request, answer, sorted(headers or ())])
        self._session: aiohttp.ClientSession | None = None

    @property
    def uses_gateway(self) -> bool:
        """Whether the service is sent the address of a gateway."""
        return "{base_url}" in json.dumps(self._request)

    async def run(self, sample: Sample, context: RunContext) -> Trajectory:
        """Send the sample and convert the response. A status of 400 or above is a failure."""
        body = _fill_template(self._request, sample, context)
        started = time.perf_counter()
        text, content_type = await self._post(json.dumps(body).encode())
        seconds = time.perf_counter() - started
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            # Half an object, scored as text, would be a wrong answer.
            is_broken = content_type.endswith("json") and text.lstrip()[:1] in ("{", "[")
            if self._path is not None or is_broken:
                raise AgentFault(
                    f"the response is not JSON: {self._cut(text)}", where=self.name
                ) from None
            value = text
        if self._path is None:
            self._refuse_unknown_format(value)
        else:
            value = self._follow_path(value)
            value = value if isinstance(value, str | list | dict) else json.dumps(value)
        return build_trajectory(value, context, seconds)

    async def _post(self, body: bytes) -> tuple[str, str]:
        """Return the text of the response, and its content type."""
        if self._session is None:
            self._session = aiohttp.ClientSession(
                # The runner limits the time of a sample, and how many are in progress.
                connector=aiohttp.TCPConnector(limit=0),
                # The session that a service keeps by a cookie would go from sample to sample.
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=30),
                headers={"Content-Type": "application/json", **self._headers},
            )
        proxy = find_proxy(self._url)
        try:
            async with self._session.post(
                self._url,
                data=body,
                # A redirect could lead the question and the key to another server.
                allow_redirects=False,
                proxy=None if proxy is None else proxy.url,
                proxy_headers=None if proxy is None else proxy.credentials,
            ) as response:
                text = await self._read_body(response)
        except aiohttp.ClientError as error:
            raise AgentFault(
                f"the service cannot be called: {self._redactor.clean(str(error))}",
                where=self.name,
                hint="check that it is running at this address",
            ) from None
        if 300 <= response.status < 400:
            raise AgentFault(
                f"HTTP {response.status}: the service redirects, which is not followed",
                where=self.name,
                hint="use the address that it redirects to",
            )
        if response.status >= 400:
            raise AgentFault(f"HTTP {response.status}: {self._cut(text)}", where=self.name)
        if self._path is None and response.content_type == "text/html":
            raise AgentFault(
                f"the response is a web page, not an answer: {self._cut(text)}",
                where=self.name,
                hint="check the path of the address",
            )
        return text, response.content_type

    async def _read_body(self, response: aiohttp.ClientResponse) -> str:
        data = await response.content.read(_MAX_BODY_BYTES + 1)
        while len(data) <= _MAX_BODY_BYTES and (part := await response.content.readany()):
            data += part
        if len(data) > _MAX_BODY_BYTES:
            raise AgentFault(
                f"the response has more than {_MAX_BODY_BYTES:,} bytes", where=self.name
            )
        return _decode_body(data, response.charset or "utf-8")

    def _refuse_unknown_format(self, value: object) -> None:
        output_format = None
        if isinstance(value, dict):
            with suppress(WireError):  # raised again, with its reason, when the answer is read
                output_format = convert_agent_output(value).format
        # Scored as it is, such a response would be a wrong answer to every question.
        if isinstance(value, dict) and output_format == "json":
            has = self._cut(", ".join(map(str, value)) or "none")
            raise AgentFault(
                f"the response is JSON of no known format; its fields are {has}",
                where=self.name,
                hint="name the place of the answer, such as #answer=data.text; #answer=$ is the "
                "whole response",
            )
        if value == "":
            raise AgentFault("the response is empty", where=self.name)

    def _follow_path(self, value: Any) -> Any:
        assert self._path is not None
        found = value
        for step in self._path:
            try:
                found = found[step]
            except (KeyError, IndexError, TypeError):
                has = f"has {sorted(map(str, found))}" if isinstance(found, dict) else "has none"
                raise AgentFault(
                    f"the response has no {step!r} of the answer path; the value there "
                    f"{self._cut(has)}",
                    where=self.name,
                ) from None
        return found

    def _cut(self, text: str) -> str:
        # Redacted before it is cut: half a key would not be recognised.
        text = " ".join(self._redactor.clean(text).split())
        return text if len(text) <= _MAX_EXCERPT_CHARS else f"{text[:_MAX_EXCERPT_CHARS]}…"

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None


def _decode_body(data: bytes, charset: str) -> str:
    try:
        # The work of these two grows with the square of the length.
        known = codecs.lookup(charset).name not in ("punycode", "idna")
        text = data.decode(charset if known else "utf-8", "replace")
    except (LookupError, ValueError):  # an unknown charset
        text = data.decode("utf-8", "replace")
    return text.removeprefix("\ufeff")


def _read_key(key_env: str | None, url: str) -> dict[str, str]:
    if key_env is None:
        return {}
    key = os.environ.get(key_env, "").strip()
    if not key:
        raise ConfigError(
            f"the environment variable {key_env} is not set",
            where=url,
            hint=f"set {key_env} to the key of the service",
        )
    parts = urlsplit(url)
    if parts.scheme == "http" and not is_loopback(parts.hostname or ""):
        raise ConfigError(
            f"{key_env} is not sent to {parts.hostname!r} over plain http, which does not "
            "encrypt it",
            where=url,
            hint="use an https address",
        )
    return {"Authorization": f"Bearer {key}"}


def _parse_path(path: str) -> tuple[str | int, ...]:
    """Split `a.b[0].c`, with or without `$` in front, into its steps; none for `$` alone."""
    rest = path.removeprefix("$")
    steps: list[str | int] = []
    position = 0
    while position < len(rest) and (match := _PATH_STEP.match(rest, position)):
        name, index = match.groups()
        steps.append(int(index) if name is None else name)
        position = match.end()
    if position < len(rest) or not (steps or path == "$"):
        raise ConfigError(
            f"the answer path {path!r} is invalid at {rest[position:]!r}",
            hint="write it like answer, data.text or choices[0].message.content",
        )
    return tuple(steps)


def _fill_template(template: Any, sample: Sample, context: RunContext) -> Any:
    if isinstance(template, Mapping):
        return {key: _fill_template(each, sample, context) for key, each in template.items()}
    if isinstance(template, list | tuple):
        return [_fill_template(each, sample, context) for each in template]
    if not isinstance(template, str):
        return template
    if whole := _PLACEHOLDER.fullmatch(template):
        return _find_value(whole[1], sample, context)  # a list stays a list, a number a number
    # Prompt files and commands name fields without `input.`. Sent as it is, nobody would notice.
    for name in _FIELD.findall(template):
        if name in sample.input and not _PLACEHOLDER.fullmatch(f"{{{name}}}"):
            raise AgentFault(
                f"the request template has {{{name}}}, which is not replaced",
                hint=f"write {{input.{name}}} for a field of the row",
            )

    def write(match: re.Match[str]) -> str:
        value = _find_value(match[1], sample, context)
        return value if isinstance(value, str) else json.dumps(value)

    return _PLACEHOLDER.sub(write, template)


def _find_value(name: str, sample: Sample, context: RunContext) -> Any:
    if name == "prompt":
        return render_prompt(context.messages)
    if name == "messages":
        return to_openai_chat(context.messages).value
    if name == "id":
        return sample.id
    if name == "seed":
        return context.sampling_seed
    if name in ("base_url", "api_key"):
        return getattr(context, name)
    found: Any = sample.input
    for step in name.split(".")[1:]:
        if not isinstance(found, dict) or step not in found:
            raise AgentFault(f"the row has no field for {{{name}}}; it has {sorted(sample.input)}")
        found = found[step]
    return found
