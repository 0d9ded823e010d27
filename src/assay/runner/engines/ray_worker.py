"""A worker of a Ray cluster: executes the jobs that it is sent and records their results itself.

Only keys, rewards, costs and errors return to the process that started the run.
"""

import asyncio
import hashlib
import importlib.metadata
import io
import linecache
import os
import pickle
import platform
import shutil
import sys
import zipfile
from collections import deque
from collections.abc import Iterable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import gettempdir, mkdtemp
from typing import IO, Any

from assay.errors import AssayError, ConfigError, StoreError
from assay.providers import LIMIT_SHARE, REFUSALS, ModelClient, VersionedClient, connect
from assay.scorers import Judge, Spending, build_import_path, import_file
from assay.store import InsertRow, KeptRollout, Run, Store, Writer, sample_key
from assay.types import Boundary, Failure, Sample, Usage

from ..agent_gateway import find_agent_gateway
from ..early_stop import EarlyStop, ObservedClient
from ..eval_config import EvalConfig
from ..evaluation import use_workspaces
from ..kept_rollouts import iterate_reused_runs
from ..rescore_run import clear_score
from ..rollout_job import RolloutJob
from ..run_progress import Progress, RunControl, Stop
from .in_process import EvalEngine
from .sealed_message import MessageReader

# Results that end within this time are reported together: a remote call costs more than a result.
_REPORT_S = 0.05
# The name is not that of a module, so that user code cannot import it.
_IN_USE = ".in-use"
# A call that waits for results returns at least this often, so that it ends with its driver.
_LONGEST_WAIT_S = 5.0


@dataclass(frozen=True)
class WorkerSetup:
    """What a worker needs before its first job. Contains secrets: sent sealed."""

    config: bytes
    """The pickled configuration, loaded once the code is in place."""

    store_url: str
    variables: dict[str, str]
    """Environment variables with keys."""

    part: int
    parts: int
    """The share of this worker in every limit: one of `parts`."""

    archive: bytes
    """The user's code as a zip file."""

    import_folders: tuple[str, ...]
    folder: str
    scripts: tuple[str, ...]
    sources: dict[str, str]
    """The shipped files by their path on the driver, where functions of a script are defined."""

    cells: dict[str, str]
    """The text of code that is in no file, such as of a notebook's cells, by its name."""

    hidden_folders: tuple[str, ...]
    """Folders of the driver, which Ray adds to the import path of workers on the same machine."""

    packages: dict[str, str]
    """The versions of the packages that the driver has loaded."""

    prices: bytes | None = None
    """The price table of the client settings, a file of the driver."""

    dataset_folder: Path | None = None
    """Where rows name the files of their workspaces, on a disk that nodes share."""


@dataclass(frozen=True)
class WorkerCheck:
    """What the driver compares before the first job."""

    pid: int
    node: str
    packages: dict[str, str | None]
    """The versions of the same packages here; None for a missing one."""

    description: dict[str, Any]
    """The description of the configuration, whose digest is the fingerprint of the run."""


@dataclass
class JobReport:
    """What has ended since the last report."""

    recorded: list[tuple[str, float | None, float | None, bool]] = field(default_factory=list)
    """Key, reward and cost of each committed result, and whether it was inserted."""

    failed: list[str] = field(default_factory=list)
    """The keys of recorded failures."""

    dropped: list[str] = field(default_factory=list)
    """The keys of jobs that ended without a record: stopped, or by an error of the run."""

    faults: list[tuple[BaseException, Failure]] = field(default_factory=list)
    spent_usd: float | None = 0.0
    """The cost of the model calls; None if that of one is unknown."""

    answers: int = 0
    refusals: list[tuple[str, float]] = field(default_factory=list)
    """Endpoints that refused this worker (429), and the seconds that they asked to wait."""

    judge_spending: Spending | None = None
    """What the judge that scores the run has spent."""

    fatal: BaseException | None = None
    """The error that ends the whole run."""


@dataclass(frozen=True)
class OpenRun:
    """A run that a worker records into. A training has others beside its own: its evaluations."""

    run: Run
    source: Run | None
    """The run that is scored again."""

    engine: "WorkerEngine"
    stack: AsyncExitStack


@dataclass(frozen=True, slots=True)
class SentJob:
    """A job on its way to a worker."""

    sample: Sample
    repeat: int
    key: str
    sample_id: str
    is_kept: bool
    """Whether a recorded rollout is reused. The worker reads it from the store."""

    source: str | None = None
    """The key of the recorded sample to score again. The worker reads it from the store."""

    group: int | None = None
    """As in `RolloutJob`."""


def _find_kept_rollout(run: Run, store: Store, job: RolloutJob) -> KeptRollout | None:
    for each in iterate_reused_runs(run, store):
        key = sample_key(each.id, job.sample_id, job.repeat, each.key_fingerprint)
        if (found := each.find_kept_rollout(key)) is not None:
            return found
    return None


class RayWorker:
    """The actor. Its calls are few and short, and each carries many jobs or results: the number of
    samples in progress is that of the run, not limited by Ray's calls in flight."""

    def __init__(self) -> None:
        self._reader = MessageReader()
        self._stack = AsyncExitStack()
        self._config: EvalConfig
        self._dataset_folder: Path | None = None
        self._store: Store
        self._client: ModelClient | None = None
        self._connected: EvalConfig | None = None
        """The configuration with its agent behind a gateway; None before the first run."""

        self._connection = asyncio.Lock()
        self._weight_version: str | None = None
        self._runs: dict[str, OpenRun] = {}

    async def read_public_key(self) -> bytes:
        return self._reader.public

    async def prepare(self, sealed: bytes) -> WorkerCheck:
        """Install the user's code and load the configuration. Raises `ConfigError` if it fails."""
        setup: WorkerSetup = pickle.loads(self._reader.unseal(sealed))
        os.environ.update(setup.variables)
        self._dataset_folder = setup.dataset_folder
        LIMIT_SHARE.set(setup.part, setup.parts)
        loop = asyncio.get_running_loop()

        def report_refusal(endpoint: str, pause_s: float) -> None:
            # Clients of synchronous user code have event loops of their own. The driver passes a
            # refusal on to all other workers, whichever run it comes with.
            for each in list(self._runs.values())[:1]:
                loop.call_soon_threadsafe(each.engine.note_refusal, endpoint, pause_s)

        REFUSALS.open(report_refusal)
        packages, node = find_versions(setup.packages), _find_node_address()
        description: dict[str, Any] = {}
        if packages == setup.packages:
            # Only then: other packages may fail to load the code, with an error about something
            # else.
            folder, in_use = make_code_folder(Path(gettempdir()))
            self._stack.callback(in_use.close)
            self._stack.callback(shutil.rmtree, folder, ignore_errors=True)
            try:
                _install_code(setup, folder)
                self._config = pickle.loads(setup.config)
            except Exception as error:
                shutil.rmtree(folder, ignore_errors=True)
                reason = f"{type(error).__name__}: {error}"
                reason = error.message if isinstance(error, AssayError) else reason
                raise ConfigError(
                    f"node {node} cannot load the code of the evaluation: {reason}",
                    where="Ray",
                    hint="workers have the modules of the project and the files that these name: "
                    "install others on every node, and pass environment variables with --ray-env "
                    "or RaySettings(variables=...)",
                ) from None
            if setup.prices is not None:
                prices = folder / "assay-prices.json"
                prices.write_bytes(setup.prices)
                client = replace(self._config.client, prices=prices)
                self._config = replace(self._config, client=client)
            description = self._config.describe()
            try:
                opened = Store.open(setup.store_url, create=False)
            except AssayError as error:
                raise ConfigError(
                    f"node {node} cannot use the store: {error.message}",
                    where=error.where,
                    hint="pass the address of the store that every node reaches, not localhost",
                ) from None
            self._store = self._stack.enter_context(opened)
        return WorkerCheck(os.getpid(), node, packages, description)

    async def open_run(self, run_id: str, concurrency: int) -> None:
        """Start as many loops as samples of a run may be in progress."""
        async with self._connection:
            # Several runs are opened at once on a worker in place of a dead one.
            if self._connected is None:
                self._connected = await self._connect()
        run, source = self._store.run(run_id), None
        if (rescored := run.spec.config.get("rescored")) is not None:
            source = self._store.run(str(rescored))
        stack = AsyncExitStack()
        writer = await stack.enter_async_context(run.open_shared_writer())
        # Limits of the whole run are kept by the driver.
        config = replace(
            self._connected, fail_on_error=None, max_cost_usd=None, concurrency=concurrency
        )
        limited = self._config.max_cost_usd is not None
        engine = WorkerEngine(config, self._client, writer, counts_cost=limited)
        self._runs[run_id] = OpenRun(run, source, engine, stack)
        engine.start()

    async def _connect(self) -> EvalConfig:
        """Connect to the model, and start what the agents of all runs share."""
        config = self._config
        if config.endpoint is not None:
            self._client = connect(config.endpoint, config.client)
            self._stack.push_async_callback(self._client.close)
        if self._weight_version is not None and self._client is not None:
            self._client = VersionedClient(self._client, self._weight_version)
        if (close := getattr(config.agent, "close", None)) is not None:
            self._stack.push_async_callback(close)
        if (gateway := find_agent_gateway(config, self._client)) is not None:
            config = replace(config, agent=await self._stack.enter_async_context(gateway))
        if self._config.uses_workspace:
            config = use_workspaces(config, self._dataset_folder)
        return config

    async def set_weight_version(self, version: str) -> None:
        """Record this version in every call from now on, unless the server names one."""
        self._weight_version = version
        if isinstance(self._client, VersionedClient):
            self._client.version = version

    async def execute(self, run_id: str, batch: bytes, answered: bool) -> None:
        """Add jobs to the queue."""
        opened = self._runs[run_id]
        try:
            # In a thread: the samples in progress must not wait for the database.
            jobs = await asyncio.to_thread(self._open_jobs, opened, pickle.loads(batch))
        except Exception as error:
            opened.engine.abort(error)
        else:
            opened.engine.add(jobs, answered=answered)

    def _open_jobs(self, opened: OpenRun, sent: list[SentJob]) -> list[RolloutJob]:
        jobs = [
            RolloutJob(each.sample, each.repeat, each.key, each.sample_id, group=each.group)
            for each in sent
        ]
        for job, each in zip(jobs, sent, strict=True):
            if each.is_kept:
                job.kept = _find_kept_rollout(opened.run, self._store, job)
        if opened.source is not None:
            sources = [each.source for each in sent if each.source is not None]
            recorded = dict(opened.source.samples_by_key(sources))
            for job, each in zip(jobs, sent, strict=True):
                if each.source not in recorded:
                    raise StoreError(f"sample {each.sample_id!r} of the scored run is missing")
                job.sample = clear_score(recorded[each.source])
        return jobs

    async def collect(self, run_id: str) -> JobReport:
        """Wait for results, and return those that are committed."""
        return await self._runs[run_id].engine.collect()

    async def lower_limit(self, endpoint: str, pause_s: float) -> None:
        """Take the refusal of another worker for one of this worker."""
        REFUSALS.receive(endpoint, pause_s)

    async def stop(self, run_id: str, at_once: bool) -> None:
        """Start no more jobs; with `at_once`, cancel those in progress."""
        await self._runs[run_id].engine.stop(at_once)

    async def close_run(self, run_id: str) -> None:
        """End the jobs of a run, and write finished ones."""
        opened = self._runs.pop(run_id)
        await opened.engine.stop(True)
        await opened.stack.aclose()

    async def close(self) -> None:
        """End all jobs, and write finished ones."""
        for run_id in list(self._runs):
            await self.close_run(run_id)
        await self._stack.aclose()


class WorkerEngine(EvalEngine):
    """Executes jobs that arrive while it runs. The driver decides when the run ends."""

    def __init__(
        self,
        config: EvalConfig,
        client: ModelClient | None,
        writer: Writer,
        *,
        counts_cost: bool = False,
    ) -> None:
        self._report = JobReport()
        self._news = asyncio.Event()
        control = RunControl(Progress(), None, Stop(), stops_early=False)
        super().__init__(config, client, writer, control)
        # Beside the limit on costs, answers matter only until the first success.
        self._early = _AnswerCount(self, counts_all=counts_cost)
        if client is not None:
            self._client = ObservedClient(client, self._early)
            self._agent = self._choose_agent()
        self._queue: deque[RolloutJob] = deque()
        self._arrived = asyncio.Event()
        self._loops: list[asyncio.Task[None]] = []
        self._unsettled: set[str] = set()

    def start(self) -> None:
        """Start as many loops as samples may be in progress."""
        self._loops = [
            asyncio.create_task(self._take_jobs()) for _ in range(self._config.concurrency)
        ]

    def add(self, jobs: Iterable[RolloutJob], *, answered: bool) -> None:
        """Queue jobs. `answered`: whether any worker has had an answer of the model."""
        self._early.answered |= answered
        if self._stop.requested:
            self._report.dropped += [job.key for job in jobs]
            self._news.set()
            return
        for job in jobs:
            self._unsettled.add(job.key)
            self._queue.append(job)
        self._arrived.set()

    async def _take_jobs(self) -> None:
        while True:
            while not self._queue:
                self._arrived.clear()
                await self._arrived.wait()
            job = self._queue.popleft()
            try:
                await self._execute(job)
            except Exception as error:
                self._abort(error)

    def note_refusal(self, endpoint: str, pause_s: float) -> None:
        """Report to the driver that an endpoint refused this worker."""
        self._report.refusals.append((endpoint, pause_s))
        self._news.set()

    def note_answer(self, usage: Usage | None) -> None:
        """Count an answer of the model and its cost."""
        report, cost = self._report, None if usage is None else usage.cost_usd
        report.answers += 1
        if report.spent_usd is not None:
            report.spent_usd = None if cost is None else report.spent_usd + cost

    def _record_failure(self, sample: Sample, error: BaseException, boundary: Boundary) -> Failure:
        failure = super()._record_failure(sample, error, boundary)
        self._report.faults.append((_make_portable(error), failure))
        return failure

    def _encode_job(self, job: RolloutJob, *, failed: bool) -> tuple[InsertRow, Any] | None:
        encoded = super()._encode_job(job, failed=failed)
        return None if encoded is None else (encoded[0], (job.key, encoded[1]))

    def _count_result(self, note: Any, fresh: bool) -> None:
        key, outcome = note
        self._unsettled.discard(key)
        if outcome is None:
            self._report.failed.append(key)
        else:
            self._report.recorded.append((key, *outcome, fresh))
        self._news.set()

    def _abort(self, error: BaseException) -> None:
        super()._abort(error)
        self._report.fatal = self._fatal
        self._news.set()

    def abort(self, error: BaseException) -> None:
        """End the run with an error that does not concern a sample."""
        self._abort(error)

    async def collect(self) -> JobReport:
        """Wait for results, and return those that are committed."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._news.wait(), _LONGEST_WAIT_S)
            await asyncio.sleep(_REPORT_S)
        self._news.clear()
        report, self._report = self._report, JobReport()
        judge = self._config.score_fn
        if isinstance(judge, Judge):
            report.judge_spending, judge.spending = judge.spending, Spending()
        if report.fatal is not None:
            report.fatal = _make_portable(report.fatal)
        return report

    async def stop(self, at_once: bool) -> None:
        """Drop queued jobs; with `at_once`, cancel those in progress and write the finished."""
        queued = [job.key for job in self._queue]
        self._queue.clear()
        if not self._stop.requested:
            self._stop.request()
        if at_once:
            for loop in self._loops:
                loop.cancel()
            await asyncio.gather(*self._loops, return_exceptions=True)
            self._submit_finished()
            await self._writer.flush()
            # The outcome of the last write is counted in the next turn of the event loop.
            await asyncio.sleep(0)
            queued = list(self._unsettled)
        self._unsettled.difference_update(queued)
        self._report.dropped += queued
        self._news.set()


class _AnswerCount(EarlyStop):
    """Counts answers for the driver, and ends nothing but by a refused key."""

    def __init__(self, engine: WorkerEngine, *, counts_all: bool) -> None:
        super().__init__(is_watching=False)
        self._engine = engine
        self._counts_all = counts_all

    @property
    def is_settled(self) -> bool:
        return self.succeeded and not self._counts_all

    def answer(self, usage: Usage | None) -> None:
        self.answered = True
        self._engine.note_answer(usage)


def _make_portable(error: BaseException) -> BaseException:
    """Return an error that the driver can load: it need not have the classes of the user."""
    if isinstance(error, AssayError | TimeoutError):
        return error
    return RuntimeError(f"{type(error).__name__}: {error}")


def make_code_folder(parent: Path) -> tuple[Path, IO[bytes]]:
    """Make a folder for code, which is in use until the file is closed or this process ends.

    Folders that are not in use any more, such as those of killed workers, are removed.
    """
    import fcntl  # Unix only, as Ray's clusters are

    for left in parent.glob("assay-ray-*"):
        # A lock that is held, and a folder without a lock, raise an OSError.
        with suppress(OSError), (left / _IN_USE).open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(left, ignore_errors=True)
    folder = Path(mkdtemp(prefix="assay-ray-", dir=parent))
    in_use = (folder / "new").open("wb")
    fcntl.flock(in_use, fcntl.LOCK_EX)
    # Renamed once it is locked: another worker must never find it unlocked.
    os.rename(folder / "new", folder / _IN_USE)
    return folder, in_use


def _install_code(setup: WorkerSetup, folder: Path) -> None:
    """Unpack the user's code into a folder of its own, and import from there only."""
    with zipfile.ZipFile(io.BytesIO(setup.archive)) as archive:
        archive.extractall(folder)
    files = {path: folder / name for path, name in setup.sources.items()}
    texts = {path: file.read_text("utf-8", errors="replace") for path, file in files.items()}
    for path, text in {**setup.cells, **texts}.items():
        # A function of a script is pickled with the path of its file, and its fingerprint contains
        # its source. None as the time keeps the entry although the file is absent here.
        linecache.cache[path] = (len(text), None, text.splitlines(keepends=True), path)
    start = folder / setup.folder
    start.mkdir(parents=True, exist_ok=True)
    os.chdir(start)
    # Ray adds the driver's folders: code that was never shipped would seem to work on one machine.
    sys.path[:] = [each for each in sys.path if os.path.abspath(each) not in setup.hidden_folders]
    sys.path[:] = build_import_path(folder / each for each in setup.import_folders)
    for name in setup.scripts:
        import_file(folder / name)


def find_versions(names: Iterable[str]) -> dict[str, str | None]:
    """Return the versions of Python, of these packages and of assay's own files."""
    found: dict[str, str | None] = {}
    for name in names:
        if name == PYTHON:
            found[name] = ".".join(platform.python_version_tuple()[:2])
        elif name == ASSAY_FILES:
            found[name] = _digest_own_files()
        else:
            with suppress(importlib.metadata.PackageNotFoundError):
                found[name] = importlib.metadata.version(name)
            found.setdefault(name, None)
    return found


PYTHON = "Python"
ASSAY_FILES = "the files of assay"


def _digest_own_files() -> str:
    # An editable install has the same version whatever its files are.
    root = Path(__file__).parents[2]
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(path.relative_to(root).as_posix().encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def _find_node_address() -> str:
    import ray

    return str(ray.util.get_node_ip_address())
