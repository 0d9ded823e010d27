"""Secrets in files that are bundled."""

from pathlib import Path

import pytest

from assay.cli.bundle_secrets import is_secret_file, refuse_secrets
from assay.errors import ConfigError

KEY = "sk-" + "a1b2c3d4" * 4


def check(folder: Path, text: str, *, name: str = "evals.py", allowed: bool = False) -> None:
    (folder / name).write_text(text)
    refuse_secrets(folder / name, name, allow_suspected=allowed)


@pytest.mark.parametrize(
    "name", [".env", ".env.local", "prod.env", "server.pem", "id_rsa", "aws_credentials", ".netrc"]
)
def test_files_for_secrets_are_known_by_name(name: str) -> None:
    assert is_secret_file(Path("project") / name)


@pytest.mark.parametrize("name", ["prompt.txt", "rows.jsonl", "credentials.py", "environment.json"])
def test_other_files_are_not(name: str) -> None:
    assert not is_secret_file(Path("project") / name)


def test_a_secret_of_this_process_is_refused_even_if_suspected_ones_are_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_SERVICE_TOKEN", "correct-horse-battery")
    with pytest.raises(ConfigError, match=r"evals\.py:2 contains the secret of an env") as caught:
        check(tmp_path, 'a = 1\nb = "correct-horse-battery"\n', allowed=True)
    assert "correct-horse" not in str(caught.value)


@pytest.mark.parametrize(
    "line",
    [
        f'print("{KEY}")',
        'Endpoint(provider="openai", model="m", api_key="hunter2hunter2")',
        'API_KEY = "hunter2hunter2"',
        'settings.password = "hunter2hunter2"',
        'headers["auth_token"] = "hunter2hunter2"',
        'options = {"client_secret": "hunter2hunter2"}',
        'token: str = "hunter2hunter2"',
        'api_key = os.environ.get("OPENAI_API_KEY", "hunter2hunter2")',
        'api_key = os.environ.get("OPENAI_API_KEY") or "hunter2hunter2"',
        'api_key = f"hunter2hunter2"',
        'api_key = SecretStr("hunter2hunter2")',
        'def connect(host, api_key="hunter2hunter2"): ...',
        'async def connect(*, port=1, password="hunter2hunter2"): ...',
        'connect = lambda api_key="hunter2hunter2": api_key',
        'user, password = "me", "hunter2hunter2"',
        'print(token := "hunter2hunter2")',
        'os.environ.setdefault("OPENAI_API_KEY", "hunter2hunter2")',
        'dataset = "https://me:hunter2@127.0.0.1/rows.jsonl"',
        'headers = {"X-Api-Key": "hunter2hunter2"}',
        'headers = {"Authorization": "Token hunter2hunter2"}',
    ],
)
def test_what_looks_like_a_secret_is_refused_with_its_line(line: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"evals\.py:2 contains a suspected secret") as caught:
        check(tmp_path, f"\n{line}\n")
    assert "hunter2" not in str(caught.value)
    assert KEY not in str(caught.value)
    check(tmp_path, f"\n{line}\n", allowed=True)


@pytest.mark.parametrize(
    "line",
    [
        'api_key = os.environ["OPENAI_API_KEY"]',
        'api_key = os.environ.get("OPENAI_API_KEY2")',
        'api_key = "not-needed"',
        'store = f"postgresql://me:{password}@db/x"',
        'address = "http://127.0.0.1:8000/v1"',
        'tokens = "gpt4tokens"',
        'token = encode(text, model="gpt4tokens")',
        'prompt = "The password1 is in the vault"',
        "password = 12345678",
        "def broken(:",
        'def connect(password, host="host1host2", /, *, api_key=None, **more): ...',
        'password, host = read(), "host1host2"',
        'names.setdefault(key, "value1value2")',
    ],
)
def test_ordinary_code_is_bundled(line: str, tmp_path: Path) -> None:
    check(tmp_path, line)


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("judge.json", '{"model": "m", "api_key": "hunter2hunter2"}'),
        ("judge.yaml", "api-key: hunter2hunter2"),
        ("judge.toml", "password = 'hunter2hunter2'"),
        ("prompt.txt", "-----BEGIN RSA PRIVATE KEY-----"),
        ("prompt.txt", "Log in with glpat-abcdefghij0123456789."),
    ],
)
def test_a_secret_in_settings_and_prompts_is_refused(name: str, line: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(f"\n{line}\n")
    with pytest.raises(ConfigError, match=rf"{name}:2 contains a suspected secret"):
        refuse_secrets(tmp_path / name, name, allow_suspected=False)


def test_prompts_and_data_may_speak_of_secrets(tmp_path: Path) -> None:
    (tmp_path / "prompt.txt").write_text("The password: hunter2hunter2. Never tell the api_key.\n")
    (tmp_path / "rows.json").write_text('[{"tokens": "gpt4tokens", "api_key": "not-needed"}]\n')
    for name in ("prompt.txt", "rows.json"):
        refuse_secrets(tmp_path / name, name, allow_suspected=False)


def test_a_binary_file_is_read_as_well(tmp_path: Path) -> None:
    (tmp_path / "weights.bin").write_bytes(b"\xff\x00\n" + KEY.encode())
    with pytest.raises(ConfigError, match=r"weights\.bin:2"):
        refuse_secrets(tmp_path / "weights.bin", "weights.bin", allow_suspected=False)
