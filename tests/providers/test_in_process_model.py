"""A model in this process: loading, modes, threads, and what it refuses."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from assay.errors import ConfigError, MissingExtra
from assay.providers import in_process_model
from assay.providers.in_process import NEVER, LocalModel, Sampling
from assay.providers.in_process_model import check_local_packages, prepare_half_precision
from tiny_models import tiny_local, tiny_model, tiny_tokenizer, tiny_weights


def test_a_folder_is_loaded_as_it_was_saved_and_without_a_word(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = tiny_model(tmp_path, "llama3")
    capfd.readouterr()

    loaded = LocalModel.load(folder, device="cpu")

    assert capfd.readouterr() == ("", "")
    made = tiny_local("llama3").generate([[1, 2, 3]], Sampling(max_tokens=5), seeds=[1])
    again = loaded.generate([[1, 2, 3]], Sampling(max_tokens=5), seeds=[1])
    assert again[0].ids == made[0].ids
    assert again[0].logprobs == pytest.approx(made[0].logprobs, abs=1e-4)
    assert loaded.device.type == "cpu"
    assert loaded.context == 2048
    assert loaded.stop_ids == (tiny_tokenizer("llama3").eos_token_id,)


def test_what_is_no_model_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    broken = tiny_model(tmp_path, "plain")
    (broken / "model.safetensors").write_bytes(b"not weights")

    with pytest.raises(ConfigError, match="is not a folder"):
        LocalModel.load(tmp_path / "absent")
    with pytest.raises(ConfigError, match=r"has no `config\.json`"):
        LocalModel.load(tmp_path / "empty")
    with pytest.raises(ConfigError, match="cannot be loaded"):
        LocalModel.load(broken)
    with pytest.raises(ConfigError, match="dtype='float5' is not a torch dtype"):
        LocalModel.load(broken, dtype="float5")
    with pytest.raises(ConfigError, match="device='banana' cannot be used: Expected one of"):
        LocalModel.load(broken, device="banana")


def test_a_missing_package_is_named_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_process_model, "find_spec", lambda name: None)

    with pytest.raises(MissingExtra, match="`torch`") as caught:
        check_local_packages("local:x")
    assert caught.value.hint == "pip install 'assay-eval[local]'"


def test_modes_gradients_and_threads_are_afterwards_as_before() -> None:
    import torch

    local = tiny_local("qwen2.5")
    local.model.train()
    local.model.lm_head.eval()
    torch.set_num_threads(2)
    inside: list[tuple[bool, bool, int]] = []

    def look(row: int, ids: object) -> bool:
        grown = torch.is_grad_enabled()
        inside.append((local.model.training, grown, torch.get_num_threads()))
        return True

    local.generate([[1, 2]], Sampling(), seeds=[0], should_stop=look)

    assert inside == [(False, False, 1)]
    assert local.model.training
    assert local.model.model.training
    assert not local.model.lm_head.training
    assert torch.is_grad_enabled()
    assert torch.get_num_threads() == 2
    torch.set_num_threads(1)


def test_modes_come_back_after_a_failure_too() -> None:
    local = tiny_local("qwen2.5")
    local.model.train()

    def fail(row: int, ids: object) -> bool:
        raise KeyError("boom")

    with pytest.raises(KeyError):
        local.generate([[1, 2]], Sampling(), seeds=[0], should_stop=fail)

    assert local.model.training
    assert local.generate([[1, 2]], Sampling(max_tokens=1), seeds=[0])


def test_a_small_model_runs_on_one_thread_and_another_number_may_be_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    weights, tokenizer = tiny_weights("plain"), tiny_tokenizer("plain")

    assert LocalModel(weights, tokenizer).threads == 1
    assert LocalModel(weights, tokenizer, threads=2).threads == 2
    monkeypatch.setattr(in_process_model, "SMALL_MODEL_PARAMETERS", 10)
    assert LocalModel(weights, tokenizer).threads is None


def test_prompts_samplings_and_seeds_must_be_as_many() -> None:
    local = tiny_local("plain")

    with pytest.raises(ConfigError, match="the lengths differ: 2 prompts, 2 samplings and 1 seeds"):
        local.generate([[1], [2]], Sampling(), seeds=[1])
    with pytest.raises(ConfigError, match="the lengths differ: 1 prompts, 2 samplings"):
        local.generate([[1]], [Sampling(), Sampling()], seeds=[1])
    with pytest.raises(ConfigError, match="prompt 1 has no tokens"):
        local.generate([[1], []], Sampling(), seeds=[1, 2])
    assert local.generate([], Sampling(), seeds=[]) == []


def test_the_context_of_a_model_that_also_reads_images_is_known() -> None:
    import transformers

    tokenizer = tiny_tokenizer("plain")
    layers = {"hidden_size": 16, "intermediate_size": 16, "num_attention_heads": 2}
    config = transformers.Gemma3Config(
        text_config={
            **layers,
            "vocab_size": len(tokenizer),
            "num_hidden_layers": 1,
            "num_key_value_heads": 1,
            "head_dim": 8,
            "max_position_embeddings": 64,
        },
        vision_config={**layers, "num_hidden_layers": 1, "image_size": 28, "patch_size": 14},
    )
    weights = transformers.AutoModelForCausalLM.from_config(config)

    assert LocalModel(weights, tokenizer).context == 64


def test_the_ends_that_the_settings_name_all_end_a_completion() -> None:
    weights = tiny_weights("llama3")
    weights.generation_config.eos_token_id = [3, 4]

    local = LocalModel(weights, tiny_tokenizer("llama3"))

    assert local.stop_ids == (3, 4, tiny_tokenizer("llama3").eos_token_id)


_BUSY = """
import sys
from threading import Event
from types import SimpleNamespace
import torch
from assay.providers.daemon_threads import EXIT_GROUP
from assay.providers.in_process import NEVER, LocalModel, Sampling

class Endless(torch.nn.Module):
    config = SimpleNamespace(eos_token_id=None)

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(300, 300)

    def forward(self, input_ids, **rest):
        logits = self.layer(torch.zeros(1, 1, 300))
        return SimpleNamespace(logits=logits, past_key_values=SimpleNamespace(layers=[]))

local, began = LocalModel(Endless(), None), Event()

def ended(row, ids):
    began.set()
    return EXIT_GROUP.is_shutting_down

sampling = Sampling(max_tokens=1_000_000, stop_ids=(NEVER,))
EXIT_GROUP.start(lambda: local.generate([[1]], sampling, seeds=[0], should_stop=ended))
assert began.wait(60)
sys.exit(7)
"""


def test_a_busy_model_ends_with_the_process_and_does_not_break_it() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _BUSY], capture_output=True, text=True, timeout=120
    )

    assert (done.returncode, done.stdout, done.stderr) == (7, "", "")


def test_a_model_that_keeps_tensors_of_its_own_can_be_trained_after_it_was_asked() -> None:
    import torch
    import transformers

    config = transformers.LlamaConfig(
        vocab_size=40,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=8,
        rope_parameters={"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0},
    )
    local = LocalModel(transformers.LlamaForCausalLM(config), tiny_tokenizer())

    local.generate([[1, 2, 3]], Sampling(max_tokens=12, stop_ids=(NEVER,)), seeds=[0])
    local.model(torch.tensor([[1, 2, 3]])).logits.sum().backward()

    assert all(weight.grad is not None for weight in local.model.parameters())


CPU = torch.device("cpu")


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Exit statuses of the processes that try half precision; the first is the next one."""
    statuses: list[int] = []

    def run(command: Any, **_: Any) -> subprocess.CompletedProcess[bytes]:
        return subprocess.CompletedProcess(command, statuses.pop(0))

    in_process_model._avoid_broken_amx.cache_clear()
    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: True)
    monkeypatch.setattr(torch.backends.mkldnn, "set_flags", lambda **flags: statuses.append(99))
    yield statuses
    in_process_model._avoid_broken_amx.cache_clear()


def test_a_processor_that_ends_the_process_is_asked_without_onednn(tried: list[int]) -> None:
    tried.append(-4)

    prepare_half_precision(torch.bfloat16, CPU)
    prepare_half_precision(torch.bfloat16, CPU)  # tried once

    assert tried == [99]


def test_a_processor_that_can_do_it_is_left_as_it_is(tried: list[int]) -> None:
    tried.append(0)

    prepare_half_precision(torch.bfloat16, CPU)

    assert tried == []


def test_full_precision_tries_nothing(tried: list[int]) -> None:
    prepare_half_precision(torch.float32, CPU)

    assert tried == []
