"""Writes the comment of the GitHub Action on a pull request, or updates the one of an earlier run.

A comment that cannot be written is a warning: the evaluations decide whether the job fails.
"""

import hashlib
import http.client
import json
import os
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

MAX_CHARS = 60_000
"""GitHub refuses comments of more than 65,536 characters."""

MAX_PAGES = 10
"""Of 100 comments each, in which an earlier comment is looked for."""

TIMEOUT_S = 30.0


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """The token is for one host, and a redirect may lead to another."""

    def redirect_request(self, *_: Any) -> None:
        return None


def main() -> None:
    event = json.loads(Path(os.environ["GITHUB_EVENT_PATH"]).read_text("utf-8"))
    number = int(event["pull_request"]["number"])
    body = compose(os.environ["INPUT_TITLE"], Path(os.environ["INPUT_COMMENT"]).read_text("utf-8"))
    repository = f"{os.environ['GITHUB_API_URL']}/repos/{os.environ['GITHUB_REPOSITORY']}"
    try:
        known = find_comment(f"{repository}/issues/{number}/comments", body.partition("\n")[0])
        if known is None:
            request("POST", f"{repository}/issues/{number}/comments", {"body": body})
        else:
            request("PATCH", f"{repository}/issues/comments/{known}", {"body": body})
    except (OSError, ValueError, http.client.HTTPException) as error:
        # Of the token of a pull request from a fork, too: it may only read.
        print(f"::warning::the comment was not written: {explain(error)}")


def compose(title: str, text: str) -> str:
    """Return the comment. Its first line, which is not shown, is how it is found again."""
    mark = hashlib.sha256(title.encode()).hexdigest()[:12]
    heading = " ".join(title.split())
    if len(text) > MAX_CHARS:
        # In front, where no unclosed code block can take it up.
        heading += "\n\nThe text is too long for a comment and ends early; the report has it all."
        text = text[:MAX_CHARS]
    return f"<!-- assay:{mark} -->\n## {heading}\n\n{text}"


def find_comment(url: str, mark: str) -> int | None:
    """Return the id of the bot's comment that starts with `mark`."""
    for page in range(1, MAX_PAGES + 1):
        comments = request("GET", f"{url}?per_page=100&page={page}")
        for comment in comments:
            # Null for an account that was deleted.
            user, body = comment.get("user") or {}, comment.get("body") or ""
            # Anyone can write the mark; only the comment of a bot is overwritten.
            if user.get("type") == "Bot" and body.startswith(mark):
                return int(comment["id"])
        if len(comments) < 100:
            break
    return None


def request(method: str, url: str, content: dict[str, str] | None = None) -> Any:
    """Call GitHub's API and return the parsed answer."""
    asked = urllib.request.Request(
        url,
        method=method,
        data=None if content is None else json.dumps(content).encode(),
        headers={
            "Accept": "application/vnd.github+json",
            "Authorization": f"Bearer {os.environ['INPUT_TOKEN']}",
            "Content-Type": "application/json",
        },
    )
    opener = urllib.request.build_opener(_NoRedirect)
    with opener.open(asked, timeout=TIMEOUT_S) as answer:
        return json.load(answer)


def explain(error: Exception) -> str:
    if isinstance(error, urllib.error.HTTPError) and error.code in (403, 404):
        return f"status {error.code}; the job needs `permissions: pull-requests: write`"
    return " ".join(str(error).split())


if __name__ == "__main__":
    main()
