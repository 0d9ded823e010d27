"""The judges of `assay judge`: models behind endpoints, or Vertex's evaluation service."""

import json
import os
from argparse import ArgumentParser, Namespace
from pathlib import Path

from pydantic import ValidationError

from assay.errors import ConfigError
from assay.providers import parse_model
from assay.scorers import Judge, VertexJudge, judge, rubric_names, vertex_judge
from assay.types import Endpoint

from .arguments import add_count
from .eval_overrides import add_endpoint_options, apply_endpoint_options

BACKENDS = ("llm", "vertex")
_DEFAULT_VERTEX_LOCATION = "us-central1"
# Files are committed and shared; keys must not be in them.
_SECRET_ENDPOINT_FIELDS = ("api_key", "oauth_token")


def add_backend_options(parser: ArgumentParser) -> None:
    """Declare the judges and their rubric."""
    parser.add_argument(
        "--rubric",
        required=True,
        metavar="NAME|FILE.yaml",
        help=f"rubric file, or one of {', '.join(rubric_names())}; for Vertex one or several names",
    )
    parser.add_argument(
        "--backend",
        choices=BACKENDS,
        default="llm",
        help="judge with a model behind --endpoint (default), or with Vertex's evaluation service",
    )
    parser.add_argument(
        "--endpoint",
        metavar="PROVIDER:MODEL[@URL]|FILE.json",
        help="judge model; a file contains the fields of an Endpoint, such as its temperature. "
        "For Vertex: the URL of the service, if it is not Google's own",
    )
    parser.add_argument(
        "--panel",
        metavar="MODEL,...",
        help="further judge models, written like --endpoint, with equal weight",
    )
    add_endpoint_options(parser)
    add_count(parser, "--votes", "call each judge N times", default=1)
    parser.add_argument(
        "--project", metavar="ID", help="project for Vertex (default: $GOOGLE_CLOUD_PROJECT)"
    )
    parser.add_argument(
        "--location",
        metavar="REGION",
        help="region for Vertex (default: $GOOGLE_CLOUD_LOCATION, else "
        f"{_DEFAULT_VERTEX_LOCATION})",
    )


def build_judge(args: Namespace) -> Judge | VertexJudge:
    """Build the judge from the options. Raises `ConfigError` for invalid ones."""
    if args.backend == "vertex":
        return _build_vertex_judge(args)
    for option in ("project", "location"):
        if getattr(args, option) is not None:
            raise ConfigError(
                f"--{option} has no effect without Vertex", hint="add --backend vertex"
            )
    if args.endpoint is None:
        raise ConfigError(
            "no judge model: pass --endpoint",
            hint="name a model, as in --endpoint openai:gpt-5, or choose --backend vertex",
        )
    named = [args.endpoint, *(args.panel.split(",") if args.panel is not None else ())]
    # --key-env is for the first judge only: the others have other servers, and name their own
    # variable in the model string, as #key_env=NAME.
    endpoints = [
        apply_endpoint_options(read_endpoint_option(each.strip()), args, key=not index)
        for index, each in enumerate(named)
    ]
    return judge(args.rubric, endpoints, votes=args.votes)


def _build_vertex_judge(args: Namespace) -> VertexJudge:
    if args.panel is not None or args.votes != 1:
        option = "votes" if args.panel is None else "panel"
        raise ConfigError(
            f"--{option} has no effect with Vertex", hint="leave it out: Vertex draws its own votes"
        )
    project = args.project or os.environ.get("GOOGLE_CLOUD_PROJECT")
    if not project:
        raise ConfigError(
            "no Google Cloud project is set",
            hint="name it with --project, or set GOOGLE_CLOUD_PROJECT",
        )
    location = args.location or os.environ.get("GOOGLE_CLOUD_LOCATION") or _DEFAULT_VERTEX_LOCATION
    return vertex_judge(args.rubric, project=project, location=location, address=args.endpoint)


def read_endpoint_option(text: str) -> Endpoint:
    """Read an endpoint from a model string or a JSON file. Keys come from the environment only."""
    if not text.lower().endswith(".json"):
        return parse_model(text)
    try:
        data = json.loads(Path(text).read_bytes())
        found = Endpoint.model_validate(data)
    except OSError as error:
        raise ConfigError(f"the file cannot be read: {error.strerror}", where=text) from None
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        field = ".".join(map(str, first["loc"]))
        message = f"the file is not an endpoint: {field}: {first['msg']}"
        raise ConfigError(message, where=text) from None
    except (ValueError, RecursionError):
        raise ConfigError("the file is not JSON", where=text) from None
    for name in (*_SECRET_ENDPOINT_FIELDS, *(found.model_extra or {})):
        if name in data:
            raise ConfigError(
                f"`{name}` is not allowed in the file",
                where=text,
                hint="a key comes from the provider's environment variable, or from `key_env`"
                if name in _SECRET_ENDPOINT_FIELDS
                else f"the fields are: {', '.join(Endpoint.model_fields)}",
            )
    return found
