"""A model's address and settings. Serialization always omits secrets."""

import re
from collections.abc import Collection, Iterator
from math import isfinite
from typing import Any, Self
from urllib.parse import parse_qsl, urlsplit, urlunsplit

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, model_serializer

from assay.errors import ConfigError

from .stable_ids import stable_id

# Allowlists, not blocklists: a header or parameter that is unknown here must not leak a key.
_WRITABLE_HEADERS = frozenset(
    """
    accept accept-encoding accept-language anthropic-beta anthropic-version content-type
    http-referer openai-beta user-agent x-title
    """.split()
)
_WRITABLE_PARAMETERS = frozenset(
    """
    add_generation_prompt additionalmodelrequestfields best_of cache_prompt
    chat_template_kwargs context continue_final_message device do_sample dtype echo
    enable_thinking frequency_penalty generationconfig guardrailconfig guided_choice
    guided_grammar guided_json guided_regex ignore_eos include include_stop_str_in_output
    inferenceconfig keep_alive length_penalty logit_bias logprobs max_completion_tokens
    max_new_tokens min_p min_tokens modalities n num_beams num_ctx num_predict output_config
    parallel_tool_calls prediction presence_penalty prompt_logprobs reasoning
    reasoning_effort repeat_penalty repetition_penalty response_format return_token_ids
    return_tokens_as_token_ids safetysettings seed service_tier skip_special_tokens slots
    spaces_between_special_tokens stop stop_token_ids stream_options strict temperature text
    threads tool_calls tool_choice tool_format toolconfig top_a top_k top_logprobs top_p
    truncate_prompt_tokens truncation typical_p use_beam_search verbosity
    """.split()
)
_SENSITIVE_FIELDS = frozenset(
    {"api_key", "oauth_token", "api_base", "headers", "extra_params", "thinking"}
)
_SECRET_SETTING_NAME = re.compile(
    r"key|token(?!s|_ids)|secret|passw|auth|credential|cookie|session|bearer|signature", re.I
)
# Secret in a URL's query only; elsewhere, as in a JSON schema, these are ordinary names.
_SECRET_QUERY_NAMES = frozenset({"code", "pin", "pw", "pwd", "sig"})

# JSON schema keywords whose keys are names that the user chose.
_SCHEMA_PROPERTY_KEYWORDS = frozenset({"properties", "$defs", "definitions"})
# 32 bits distinguish configurations, but are too few to verify a guessed secret.
_HIDDEN_DIGEST_LENGTH = 8


class Endpoint(BaseModel):
    """A model behind an address, with sampling settings and, at run time only, its secrets.

    Every serialization goes through `to_dict()`, which writes only values known to be harmless.
    Secrets are passed again when the endpoint is read.
    """

    model_config = ConfigDict(frozen=True, extra="allow", hide_input_in_errors=True)

    provider: str
    model: str
    api_base: str | None = None
    api_version: str | None = Field(default=None, pattern=r"^[A-Za-z0-9.-]+$")
    """The version of Azure's API, such as `2024-10-21`; None: its current one."""

    api_key: str = ""
    key_env: str | None = Field(default=None, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")
    """The environment variable with the key, if not the provider's default one."""

    oauth_token: str = ""
    headers: dict[str, str] = Field(default_factory=dict)
    extra_params: dict[str, Any] = Field(default_factory=dict)
    """Sent with each request in addition to the settings below."""

    temperature: FiniteFloat | None = None
    top_p: FiniteFloat | None = None
    max_tokens: int | None = Field(default=None, gt=0)
    stop: tuple[str, ...] | None = None
    seed: int | None = None
    thinking: dict[str, Any] | None = None
    reasoning_effort: str | None = None
    timeout_s: FiniteFloat | None = Field(default=None, gt=0)
    max_retries: int | None = Field(default=None, ge=0)
    allow_plain_http: bool | None = None
    """True: a key from the environment may be sent unencrypted to another machine."""

    keep: tuple[str, ...] = ()
    """Extra parameters to write although their names are not on the allowlist."""

    def to_dict(
        self, exclude_secrets: bool = True, *, keep: Collection[str] = ()
    ) -> dict[str, Any]:
        """Return plain values; `withheld` lists the names omitted as possibly secret.

        Includes the settings above, and the headers and extra parameters with a known name.
        Other extra parameters are included when they are numbers or flags, or named in `keep`
        here or on the endpoint; `from_dict` then reads them again.
        """
        data: dict[str, Any] = {name: getattr(self, name) for name in type(self).model_fields}
        named = {keep} if isinstance(keep, str) else {*keep}
        data["keep"] = sorted({*self.keep, *named}) or None
        data = {name: value for name, value in data.items() if value not in (None, "", {})}
        extras = dict(self.__pydantic_extra__ or {})
        if isinstance(data.get("stop"), tuple):
            data["stop"] = list(data["stop"])
        if not exclude_secrets:
            return {**data, **extras}
        return _strip_secrets(data, extras)

    @classmethod
    def from_dict(
        cls,
        data: dict[str, Any],
        api_key: str = "",
        oauth_token: str = "",
        *,
        headers: dict[str, str] | None = None,
        extra_params: dict[str, Any] | None = None,
    ) -> Self:
        """Read the output of `to_dict`; secrets are passed as arguments.

        Secrets in `data` are ignored. Withheld names that are not passed again stay listed.
        """
        plain = _strip_secrets(
            {key: value for key, value in data.items() if key in cls.model_fields},
            {key: value for key, value in data.items() if key not in cls.model_fields},
        )
        given = {f"headers.{name}" for name in headers or {}}
        given |= {f"extra_params.{name}" for name in extra_params or {}}
        given |= {"api_key"} if api_key else set()
        given |= {"oauth_token"} if oauth_token else set()
        if withheld := [name for name in plain.pop("withheld", ()) if name not in given]:
            plain["withheld"] = withheld
        plain["headers"] = {**plain.get("headers", {}), **(headers or {})}
        plain["extra_params"] = {**plain.get("extra_params", {}), **(extra_params or {})}
        return cls.model_validate({**plain, "api_key": api_key, "oauth_token": oauth_token})

    def __eq__(self, other: object) -> bool:
        """Compare the settings that requests depend on; `keep` and `withheld` are ignored."""
        if not isinstance(other, Endpoint):
            return NotImplemented
        return _collect_request_settings(self) == _collect_request_settings(other)

    def __repr_args__(self) -> Iterator[tuple[str, Any]]:
        yield from self.to_dict().items()

    @model_serializer
    def _serialize(self) -> dict[str, Any]:
        return self.to_dict()


def _collect_request_settings(endpoint: Endpoint) -> dict[str, Any]:
    settings = {**endpoint.__dict__, **(endpoint.__pydantic_extra__ or {})}
    return {name: value for name, value in settings.items() if name not in ("keep", "withheld")}


def _strip_secrets(fields: dict[str, Any], extras: dict[str, Any]) -> dict[str, Any]:
    """Return the writable settings, and list the names of the others under `withheld`."""
    withheld = {name for name in ("api_key", "oauth_token") if fields.get(name)}
    withheld.update(extras.pop("withheld", ()))
    plain = {name: value for name, value in fields.items() if name not in _SENSITIVE_FIELDS}
    keep = frozenset(fields.get("keep") or ())
    if fields.get("api_base") and (address := _strip_url_secrets(fields["api_base"], withheld)):
        plain["api_base"] = address
    for name, allowed in (("headers", _WRITABLE_HEADERS), ("extra_params", _WRITABLE_PARAMETERS)):
        given = fields.get(name) or {}
        kept = {
            key: _scrub_secrets(value, withheld)
            for key, value in given.items()
            if key.lower() in allowed
            or (name == "extra_params" and (key in keep or _is_writable_setting(key, value)))
        }
        withheld.update(f"{name}.{key}" for key in given if key not in kept)
        if kept:
            plain[name] = kept
    if fields.get("thinking"):
        plain["thinking"] = _scrub_secrets(fields["thinking"], withheld)
    for name, value in extras.items():
        # A field this version does not know may hold anything: only numbers and flags are plain.
        if name in keep or _is_writable_setting(name, value):
            plain[name] = value
        elif value is not None:
            withheld.add(name)
    if withheld:
        plain["withheld"] = sorted(withheld)
    return plain


def _is_writable_setting(name: str, value: object) -> bool:
    # Numbers and flags cannot be keys, except under a name such as `pin`.
    sounds_secret = name.lower() in _SECRET_QUERY_NAMES or _SECRET_SETTING_NAME.search(name)
    return isinstance(value, bool | int | float) and isfinite(value) and not sounds_secret


def collect_hidden_settings(endpoint: Endpoint) -> dict[str, Any]:
    """Return the settings that `to_dict` omits although they may affect the answers.

    For digests only, never written: values may be secret despite an innocent name.
    """
    # A query, a header or a parameter may select the model. Settings with a secret's name are
    # excluded: with another key it is still the same model.
    written = endpoint.to_dict()
    try:
        parts = urlsplit(endpoint.api_base or "")
    except ValueError:
        parts = urlsplit("")  # an invalid URL cannot be called
    host = parts.netloc.rpartition("@")[2]
    found = {
        "query": [
            [name, value]
            for name, value in parse_qsl(parts.query, keep_blank_values=True)
            if name.lower() not in _SECRET_QUERY_NAMES and not _SECRET_SETTING_NAME.search(name)
        ],
        "address": "" if "api_base" in written else f"{host}{parts.path}",
        "headers": {
            name.lower(): value
            for name, value in endpoint.headers.items()
            if name not in written.get("headers", {}) and not _SECRET_SETTING_NAME.search(name)
        },
        "extra_params": {
            name: _scrub_secrets(value, set())
            for name, value in endpoint.extra_params.items()
            if name not in written.get("extra_params", {}) and not _SECRET_SETTING_NAME.search(name)
        },
    }
    return {name: value for name, value in found.items() if value}


def compute_hidden_digest(endpoint: Endpoint) -> str | None:
    """Return a digest of `collect_hidden_settings`, too short to verify a guessed secret.

    None without hidden settings.
    """
    hidden = collect_hidden_settings(endpoint)
    try:
        return stable_id(hidden)[:_HIDDEN_DIGEST_LENGTH] if hidden else None
    except (TypeError, ValueError) as error:
        raise ConfigError(
            "extra_params cannot be written as JSON",
            where=f"{endpoint.provider}:{endpoint.model}",
            hint="use plain JSON values as parameters",
        ) from error


def describe_endpoint(endpoint: Endpoint) -> dict[str, Any]:
    """Return the settings that affect an endpoint's answers, as plain values without secrets.

    Timeouts, retries and the like are omitted.
    """
    plain = endpoint.to_dict()
    for name in ("timeout_s", "max_retries", "allow_plain_http", "key_env", "withheld", "keep"):
        plain.pop(name, None)
    if endpoint.provider == "mock":
        # The script is the model, and `to_dict` omits it.
        plain["script"] = stable_id(endpoint.extra_params)
    elif hidden := compute_hidden_digest(endpoint):
        plain["hidden"] = hidden
    return plain


def _strip_url_secrets(url: str, withheld: set[str]) -> str | None:
    """Return `url` without user, password, query and fragment, which may contain keys.

    None when the URL is ambiguous.
    """
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        valid = False
    # An unescaped `/`, `#` or `?` in a password ends the authority early, so that the rest of the
    # password, up to the `@`, would be taken for the path.
    if not valid or "@" in f"{parts.path}{parts.query}{parts.fragment}":
        withheld.add("api_base")
        return None
    host = parts.netloc.rpartition("@")[2]
    if host != parts.netloc or parts.query or parts.fragment:
        withheld.add("api_base")
    return urlunsplit((parts.scheme, host, parts.path, "", ""))


def _scrub_secrets(value: Any, withheld: set[str], *, names_schemas: bool = False) -> Any:
    """Return `value` without entries of nested objects that have a secret's name.

    `names_schemas`: the keys are property names of a JSON schema, whose values are harmless.
    """
    if isinstance(value, dict):
        # `str(key)`, because `logit_bias` may have numbers as keys.
        secret = {
            key
            for key, inner in value.items()
            if _SECRET_SETTING_NAME.search(str(key))
            and not (names_schemas and isinstance(inner, dict))
        }
        withheld.update(map(str, secret))
        return {
            key: _scrub_secrets(inner, withheld, names_schemas=key in _SCHEMA_PROPERTY_KEYWORDS)
            for key, inner in value.items()
            if key not in secret
        }
    if isinstance(value, list | tuple):
        return [_scrub_secrets(inner, withheld) for inner in value]
    return value
