"""The environments of a test: in this process, or on a server."""

import os
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from assay.errors import ConfigError
from assay.providers import is_loopback
from assay.types import Redactor

from .decorator import EvalOptions


@asynccontextmanager
async def open_environment(options: EvalOptions, *, rolled_out: bool) -> AsyncIterator[Any]:
    """Yield the `environment` of a test's evaluation; for an address, after its server is ready.

    A server that `env_command` starts is stopped at the end. Without rollouts a server is only
    waited for.
    """
    if isinstance(options.environment, AbstractAsyncContextManager):
        # Entering it may start servers, which nothing would use.
        if not rolled_out:
            yield None
            return
        async with options.environment as factory:
            yield factory
        return
    if options.env_url is None:
        yield options.environment
        return
    parts, token = urlsplit(options.env_url), read_environment_token(options)
    # A token from the environment belongs to no particular host. One written into the test does.
    is_plain = parts.scheme == "http" and not is_loopback(parts.hostname or "")
    if token and not options.env_token and is_plain:
        raise ConfigError(
            f"ASSAY_ENV_TOKEN is not sent to {parts.hostname or ''!r} over plain http, which does "
            "not encrypt it",
            where="env_url",
            hint="use an https address; `env_token` of @evaluation_test is sent to any address",
        )
    from assay.environments import RemoteEnvironments, launch_server, wait_until_ready

    async with AsyncExitStack() as stack:
        url = options.env_url
        if options.env_command is None:
            await wait_until_ready(url, deadline_s=options.env_deadline_s)
        else:
            server = launch_server(options.env_command, url, deadline_s=options.env_deadline_s)
            url = (await stack.enter_async_context(server)).url
        if not rolled_out:
            yield None
            return
        remote = RemoteEnvironments(
            url, kind=options.env_kind, token=token, timeout_s=options.step_timeout_s
        )
        await stack.enter_async_context(remote)
        yield lambda sample: remote.make(sample.input)


def read_environment_token(options: EvalOptions) -> str | None:
    """Return the bearer token for the server of a test, if any."""
    return options.env_token or os.environ.get("ASSAY_ENV_TOKEN") or None


def build_token_redactor(options: EvalOptions) -> Redactor:
    """Return a redactor of the test's token; it works while it is referenced."""
    return Redactor([read_environment_token(options) or ""])


def describe_environment(options: EvalOptions) -> str | None:
    """Return the name or the address of a test's environment, without secrets."""
    if options.env_url is not None:
        return strip_environment_url(options.env_url)
    environment = options.environment
    if environment is None or isinstance(environment, str):
        return environment
    return str(getattr(environment, "__qualname__", type(environment).__qualname__))


def strip_environment_url(url: str) -> str:
    """Return an address without user, password and query, which may contain secrets."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path, "", ""))
