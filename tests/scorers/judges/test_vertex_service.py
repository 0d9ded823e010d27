"""What is refused before Vertex is asked. `tests/flows/test_vertex_sdk.py` asks."""

import os
import sys
from pathlib import Path

import pytest

from assay.errors import AccessDenied, ConfigError, MissingExtra
from assay.scorers.judges.vertex_scorer import vertex_judge
from assay.scorers.judges.vertex_service import VertexService
from vertex_server import scored, serving

CREDENTIALS = "GOOGLE_APPLICATION_CREDENTIALS"


@pytest.mark.parametrize("missing", ["google.auth", "agentplatform"])
def test_a_missing_sdk_is_named(
    missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    monkeypatch.delenv("TQDM_DISABLE", raising=False)

    with serving(lambda request: scored(1.0)) as service:
        monkeypatch.setenv(CREDENTIALS, str(service.credentials(tmp_path / "account.json")))
        with pytest.raises(
            MissingExtra, match=r"google-cloud-aiplatform(.|\n)*assay-eval\[vertex\]"
        ):
            vertex_judge("safety", project="shop")

    assert "TQDM_DISABLE" not in os.environ


def test_credentials_that_are_refused_or_not_there_are_told_before_anything_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(lambda request: scored(1.0)) as service:
        service.token_status = 400
        monkeypatch.setenv(CREDENTIALS, str(service.credentials(tmp_path / "account.json")))
        with pytest.raises(AccessDenied, match="the credentials are refused"):
            vertex_judge("safety", project="shop", address=service.url)
    monkeypatch.setenv(CREDENTIALS, str(tmp_path / "none.json"))
    with pytest.raises(ConfigError, match="no Google Cloud credentials were found"):
        vertex_judge("safety", project="shop")

    assert service.asked == []


@pytest.mark.parametrize(
    "address", ["http://vertex.example", "vertex.example", "ftp://127.0.0.1", ""]
)
def test_an_access_token_is_not_sent_in_the_open(address: str) -> None:
    with pytest.raises(ConfigError, match="is not an https:// address"):
        VertexService("shop", "us-central1", address=address)


@pytest.mark.parametrize(
    ("project", "location"), [("a/b", "us-central1"), ("shop", "../x"), ("shop", "")]
)
def test_names_that_would_change_the_address_are_refused(project: str, location: str) -> None:
    with pytest.raises(ConfigError, match="is not a valid name"):
        VertexService(project, location)
