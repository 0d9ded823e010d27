"""Stylesheet and scripts of the pages, read once from the package."""

import hashlib
from functools import lru_cache
from importlib.resources import files

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

_MEDIA_TYPES = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}


@lru_cache(maxsize=1)
def read_static_files() -> dict[str, bytes]:
    """Return the content of each file by name."""
    # Requests look names up here and never reach the disk: no path can leave the folder.
    folder = files("assay.web") / "static"
    return {
        file.name: file.read_bytes()
        for file in folder.iterdir()
        if file.name.rpartition(".")[2] in _MEDIA_TYPES
    }


def _send_static(request: Request) -> Response:
    name = request.path_params["name"]
    content = read_static_files().get(name)
    if content is None:
        raise HTTPException(404, "the file does not exist")
    tag = f'"{hashlib.sha256(content).hexdigest()[:20]}"'
    headers = {"ETag": tag, "Cache-Control": "no-cache"}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    media_type = _MEDIA_TYPES[name.rpartition(".")[2]]
    return Response(content, media_type=media_type, headers=headers)


ROUTES = [Route("/static/{name}", _send_static, methods=["GET"])]
