"""Settings of AWS that let boto3 find made-up credentials, and nothing outside the test."""

from pathlib import Path

import pytest

ACCESS_KEY = "AKIACANARY0000000001"
SECRET_KEY = "canary/secret+key/0000000000000000000001"
SESSION_TOKEN = "canary-session-token-000000000001"


def set_aws_credentials(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Set credentials and a region; hide those of the machine."""
    hide_aws_settings(monkeypatch, folder)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
    monkeypatch.setenv("AWS_SESSION_TOKEN", SESSION_TOKEN)
    monkeypatch.setenv("AWS_REGION", "us-east-1")


def hide_aws_settings(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Let boto3 find no credentials, and not look for them in the network."""
    for name in (
        *("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"),
        *("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_BEARER_TOKEN_BEDROCK"),
        *("AWS_ROLE_ARN", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_ENDPOINT_URL"),
        *("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI"),
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(folder / "aws-config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(folder / "aws-credentials"))
