"""The Ray cluster of a run: connects to it or starts it, and starts and checks its workers."""

import asyncio
import io
import linecache
import logging
import os
import secrets
import socket
import sys
import zipfile
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import packages_distributions
from pathlib import Path
from pickle import PicklingError, dumps
from typing import TYPE_CHECKING, Any, Self

from assay.errors import ConfigError, MissingExtra, RunStopped
from assay.providers import PROVIDERS
from assay.scorers import hash_loaded_files
from assay.store import Run, Store

from ..eval_config import EvalConfig
from ..run_progress import Stop
from .ray_settings import RaySettings, ShippedCode, split_address

if TYPE_CHECKING:
    from .ray import RayEngine

_PROBE_S = 5.0
# A cluster may have to start a node first.
_START_S = 120.0
_CLOSE_S = 10.0
# Calls in flight to one worker: jobs, results, stop. Each carries many samples, so that Ray's own
# limit of 1,000 calls never limits the samples in progress.
_CALLS_AT_ONCE = 16
# Samples never pass through the object store. Ray refuses less than 75 MB.
_OBJECT_STORE_BYTES = 100_000_000
_MAX_CODE_BYTES = 50_000_000
# On Linux, Ray replaces 127.0.0.1 by the outer address of the machine.
_LOOPBACK = "127.0.0.2" if sys.platform == "linux" else "127.0.0.1"


class WorkerDied(Exception):
    """A worker, or its node, has ended."""


@dataclass(frozen=True)
class StartedWorker:
    """A worker that has loaded the configuration."""

    actor: Any
    pid: int
    node: str


class RayCluster:
    """The workers of a run, as an async context manager."""

    def __init__(
        self, config: EvalConfig, store: Store, dataset_folder: Path | None = None
    ) -> None:
        assert config.engine is not None
        assert store.url is not None  # refused before
        self._settings = config.engine
        self._dataset_folder = dataset_folder
        self._store_url = store.url
        workspace = config.workspace
        self._config = replace(
            config,
            engine=None,
            # Workers have another current folder.
            workspace=None if workspace is None else Path(workspace).absolute(),
        )
        self._ray: Any = None
        self._owns_connection = False
        self._environment: dict[str, str | None] = {}
        self._packages: dict[str, str] = {}
        self._archive = b""
        self._code = ShippedCode({})
        self._pickled = b""
        self._weight_version: str | None = None
        self._replacements = defaultdict[int, asyncio.Lock](asyncio.Lock)
        self.workers: list[StartedWorker] = []
        """One for each part. A dead one stays until it is replaced."""

    @property
    def config(self) -> EvalConfig:
        return self._config

    async def __aenter__(self) -> Self:
        # Mistakes of the request first: connecting takes seconds.
        if self._settings.address is not None:
            await asyncio.to_thread(_probe, self._settings.address)
        self._set_environment()
        try:
            _check_extra()
            await self._connect()
            self._code = self._settings.code or collect_loaded_code()
            self._archive = _pack_code(self._code)
            self._packages = _list_loaded_packages()
            self._pickled = _pickle_config(self._config)
            await self._start_workers(self._count_workers())
        except BaseException:
            await self._disconnect()
            raise
        return self

    async def _start_workers(self, parts: int) -> None:
        starts = [asyncio.create_task(self.start_worker(part, parts)) for part in range(parts)]
        try:
            self.workers = await asyncio.gather(*starts)
        finally:
            # After an error of one of them, the others must not start behind the run's back.
            for start in starts:
                start.cancel()
            await asyncio.gather(*starts, return_exceptions=True)

    async def __aexit__(self, *error: object) -> None:
        await self._disconnect()

    async def start(self, stack: AsyncExitStack, stop: Stop) -> bool:
        """Start the workers, which end with the stack. Return False if the run is stopped first."""
        start = asyncio.create_task(stack.enter_async_context(self))
        stop.listen(start.cancel)
        if stop.requested:
            start.cancel()
        try:
            await start
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if not stop.requested or (task is not None and task.cancelling()):
                raise  # the caller's own cancellation
        return not stop.requested

    def build_engine(self, run: Run) -> "Callable[..., RayEngine]":
        """Return what builds the engine of a run on these workers."""
        from .ray import RayEngine

        return partial(RayEngine, self, run)

    async def start_worker(self, part: int, parts: int) -> StartedWorker:
        """Start one of `parts` workers and compare it with this process, before any job.

        Raises `ConfigError` if its packages or its configuration differ, `RunStopped` if the
        cluster has no place for it.
        """
        from .ray_worker import RayWorker, WorkerCheck

        actor = (
            self._ray.remote(RayWorker)
            .options(
                num_cpus=1,
                max_restarts=0,
                max_concurrency=_CALLS_AT_ONCE,
                scheduling_strategy="SPREAD",
            )
            .remote()
        )
        try:
            async with asyncio.timeout(_START_S):
                public = await call_worker(actor.read_public_key)
                sealed = self._seal_setup(public, part, parts)
                check: WorkerCheck = await call_worker(actor.prepare, sealed)
        except TimeoutError:
            self.kill(actor)
            raise RunStopped(
                f"a worker did not start within {_START_S:g} s",
                where="Ray",
                hint="look at `ray status`: every worker needs one free CPU",
            ) from None
        except BaseException:
            self.kill(actor)
            raise
        self._compare(check)
        return StartedWorker(actor, check.pid, check.node)

    async def replace_worker(self, part: int, dead: StartedWorker) -> StartedWorker:
        """Return the worker in place of a dead one. Raises as `start_worker`, and `WorkerDied`."""
        async with self._replacements[part]:
            # Of several open runs, one starts it.
            if self.workers[part] is dead:
                self.kill(dead.actor)  # it may be alive and only out of reach
                worker = await self.start_worker(part, len(self.workers))
                self.workers[part] = worker
                if self._weight_version is not None:
                    await call_worker(worker.actor.set_weight_version, self._weight_version)
            return self.workers[part]

    async def set_weight_version(self, version: str) -> None:
        """Make workers record which weights the server of a training has."""
        self._weight_version = version
        calls = [call_worker(each.actor.set_weight_version, version) for each in self.workers]
        # The engine of a run replaces dead workers, and the new ones are given the version.
        await asyncio.gather(*calls, return_exceptions=True)

    def kill(self, actor: Any) -> None:
        """End a worker at once."""
        with suppress(Exception):  # it may be dead already
            self._ray.kill(actor)

    def _seal_setup(self, public: bytes, part: int, parts: int) -> bytes:
        from .ray_worker import WorkerSetup
        from .sealed_message import seal_message

        code, prices, folder = self._code, self._config.client.prices, self._dataset_folder
        setup = WorkerSetup(
            config=self._pickled,
            store_url=self._store_url,
            variables=_read_variables(self._config, self._settings),
            part=part,
            parts=parts,
            archive=self._archive,
            import_folders=code.import_folders,
            folder=code.folder,
            scripts=code.scripts,
            sources={str(path): name for name, path in code.files.items()},
            # Entries that are never compared with a file.
            cells={
                path: "".join(entry[2])
                for path, entry in linecache.cache.items()
                if len(entry) == 4 and entry[1] is None
            },
            hidden_folders=tuple({os.getcwd(), os.path.abspath(sys.path[0])}),
            packages=self._packages,
            prices=None if prices is None else Path(prices).read_bytes(),
            dataset_folder=None if folder is None else folder.absolute(),
        )
        return seal_message(dumps(setup), public)

    def _compare(self, check: Any) -> None:
        """Raise `ConfigError` if a worker differs from this process."""
        others = [
            f"{name} {found or 'missing'} instead of {self._packages[name]}"
            for name, found in check.packages.items()
            if found != self._packages[name]
        ]
        if others:
            raise ConfigError(
                f"node {check.node} has other packages: {', '.join(others)}",
                where="Ray",
                hint="install the same versions on every node of the cluster",
            )
        own = self._config.describe()
        names = [name for name in own if own[name] != check.description.get(name)]
        if names:
            raise ConfigError(
                f"node {check.node} loads another configuration: other {', '.join(names)}",
                where="Ray",
                hint="what a scorer or an agent consists of must not depend on the process, such "
                "as its id, its environment or the time",
            )

    def _count_workers(self) -> int:
        free = int(self._ray.cluster_resources().get("CPU", 0))
        wanted = self._settings.workers or free
        if wanted > free or not free:
            raise ConfigError(
                f"{wanted or 'no'} workers need as many CPUs, but the Ray cluster has {free}",
                where="Ray",
                hint="pass a lower number of workers, or add nodes",
            )
        # A worker without a share of the limits would have nothing to do.
        config = self._config
        agent_limit = getattr(config.agent, "max_workers", wanted)
        limits = (config.concurrency, config.client.concurrency or wanted, agent_limit)
        return min(wanted, *limits)

    async def _connect(self) -> None:
        import ray

        self._ray = ray
        if not ray.is_initialized():
            _reload_authentication()
        if ray.is_initialized() and self._settings.address is None:
            return
        options: dict[str, Any] = {"address": self._settings.address}
        if self._settings.address is None:
            options = {
                "address": "local",
                "num_cpus": self._settings.workers,
                "include_dashboard": False,
                "object_store_memory": _OBJECT_STORE_BYTES,
                "_node_ip_address": _LOOPBACK,
            }
        # Ray reports the death of each worker in paragraphs; the engine replaces it.
        logging.getLogger("ray").setLevel(logging.CRITICAL)
        start = partial(
            ray.init, **options, log_to_driver=False, configure_logging=False, namespace="assay"
        )
        connecting = asyncio.create_task(asyncio.to_thread(start))
        try:
            await asyncio.shield(connecting)
        except asyncio.CancelledError:
            # A thread cannot be interrupted: a cluster that starts behind the run's back would
            # stay, and without the token of the environment that is restored next.
            while not connecting.done():
                with suppress(asyncio.CancelledError):
                    await asyncio.wait([connecting])
            self._owns_connection = connecting.exception() is None
            raise
        except Exception as error:
            raise ConfigError(
                f"the Ray cluster cannot be used: {str(error).strip().splitlines()[0]}",
                where=self._settings.address or "Ray",
                hint="start this command on a node of the cluster, with the token and the version "
                "of Ray that the cluster has; set RAY_AUTH_MODE=disabled if it has no token",
            ) from None
        self._owns_connection = True

    async def _disconnect(self) -> None:
        try:
            if self._ray is None:
                return
            closing = [call_worker(each.actor.close) for each in self.workers]
            with suppress(TimeoutError):
                async with asyncio.timeout(_CLOSE_S):
                    await asyncio.gather(*closing, return_exceptions=True)
            for each in self.workers:
                self.kill(each.actor)
            if self._owns_connection:
                await asyncio.to_thread(self._ray.shutdown)
        finally:
            _restore_environment(self._environment)

    def _set_environment(self) -> None:
        # Read by Ray when it starts or connects. Without a token, whoever reaches a port of the
        # cluster can run code on it.
        wanted = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "token"}
        if self._settings.address is not None:
            # Something answers there: a refused token stays refused, and Ray tries it 20 times.
            wanted["RAY_gcs_server_port_wait_time_s"] = "3"
        if self._settings.address is None and os.environ.get("RAY_AUTH_MODE") != "disabled":
            wanted["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
        for name, value in wanted.items():
            if name not in os.environ:
                self._environment[name] = None
                os.environ[name] = value


def _restore_environment(changed: Mapping[str, str | None]) -> None:
    for name in changed:
        os.environ.pop(name, None)


def _reload_authentication() -> None:
    # Ray reads the mode and the token once, when it is imported or first used: an import by user
    # code, or an earlier run of this process, came before `_set_environment`.
    with suppress(ImportError):
        from ray._raylet import (  # type: ignore[attr-defined]  # not in its stub
            AuthenticationTokenLoader,
            Config,
        )

        Config.initialize("")
        AuthenticationTokenLoader.instance().reset_cache()


async def call_worker(method: Any, *given: object) -> Any:
    """Call a method of a worker. Raises its own error, or `WorkerDied`."""
    from ray.exceptions import RayActorError, RayTaskError

    try:
        return await method.remote(*given)
    except RayTaskError as error:
        raise error.cause from None
    except RayActorError:
        # Out of reach counts as dead: another worker takes over, and no result is recorded twice.
        raise WorkerDied from None


def _check_extra() -> None:
    try:
        import cryptography
        import ray
    except ModuleNotFoundError as error:
        raise MissingExtra.build("ray", by="the Ray engine", package=error.name or "ray") from None
    del cryptography, ray


def _probe(address: str) -> None:
    """Raise `ConfigError` if nothing answers: Ray itself would try for more than a minute."""
    host, port = split_address(address)
    try:
        socket.create_connection((host, port), _PROBE_S).close()
    except OSError as error:
        raise ConfigError(
            f"no Ray cluster answers: {error.strerror or error}",
            where=address,
            hint="start it with `ray start --head`, and pass the address that it prints",
        ) from None


def collect_loaded_code() -> ShippedCode:
    """Return the loaded files of the current folder that are not installed."""
    start = Path.cwd()
    names = [name for name in hash_loaded_files(start) if not os.path.isabs(name)]
    inside = [Path(os.path.abspath(each)) for each in sys.path]
    folders = [each.relative_to(start).as_posix() for each in inside if each.is_relative_to(start)]
    return ShippedCode(
        {name: start / name for name in names}, tuple(dict.fromkeys([".", *folders]))
    )


def _pack_code(code: ShippedCode) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, path in code.files.items():
            archive.write(path, name)
    if packed.tell() > _MAX_CODE_BYTES:
        raise ConfigError(
            f"the code of the evaluation takes {packed.tell() // 10**6} MB",
            where="Ray",
            hint="start the command in the folder of the project; install large packages on nodes",
        )
    return packed.getvalue()


def _pickle_config(config: EvalConfig) -> bytes:
    from ray import cloudpickle

    try:
        pickled: bytes = cloudpickle.dumps(config)
    except (TypeError, AttributeError, PicklingError) as error:
        raise ConfigError(
            f"the configuration cannot be sent to workers: {error}",
            where="EvalConfig",
            hint="open connections and files inside the agent, the environment or the scorer",
        ) from None
    return pickled


def _list_loaded_packages() -> dict[str, str]:
    """Return the versions of the packages that this process has loaded."""
    from .ray_worker import ASSAY_FILES, PYTHON, find_versions

    owners = packages_distributions()
    loaded = {name.partition(".")[0] for name in list(sys.modules)}
    names = {owner for module in loaded for owner in owners.get(module, ())}
    found = find_versions([PYTHON, ASSAY_FILES, *sorted(names)])
    return {name: version for name, version in found.items() if version is not None}


def _read_variables(config: EvalConfig, settings: RaySettings) -> dict[str, str]:
    """Return the keys of providers that are set here, and the variables of the settings."""
    names = {name for provider in PROVIDERS.values() for name in provider.key_variables}
    names |= {each.address_variable for each in PROVIDERS.values() if each.address_variable}
    if config.endpoint is not None and config.endpoint.key_env:
        names.add(config.endpoint.key_env)
    for name in settings.variables:
        if name not in os.environ:
            raise ConfigError(f"the environment variable {name} is not set", where="RaySettings")
    return {name: os.environ[name] for name in (*names, *settings.variables) if name in os.environ}
