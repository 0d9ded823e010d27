"""The recording that a run replays: a file, or the calls of a recorded run."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from assay.agents import ModelAgent
from assay.errors import ConfigError
from assay.providers import ModelClient, connect
from assay.store import Store
from assay.types import Boundary, Sample, Trajectory, describe_endpoint

if TYPE_CHECKING:
    from assay.gateway import Recording, RecordingHeader, Replay, ReplayClient

    from .eval_config import EvalConfig


@contextmanager
def open_replay(
    config: "EvalConfig", store: Store | str | Path | None
) -> Iterator[tuple["EvalConfig", "Replay | None"]]:
    """Open the recording of a run, if it has one. Raises `ConfigError` if it cannot be replayed."""
    given = config.replay
    if given is None:
        yield config, None
        return
    if config.endpoint is None and not isinstance(config.agent, ModelAgent):
        raise ConfigError(
            "`replay` answers the calls to a model, but the evaluation has none",
            where="EvalConfig",
            hint="pass the model that was recorded as `endpoint`",
        )
    from assay.gateway import Replay

    with open_recording(given, store) as recording:
        config = replace(config, replay=recording)
        yield config, Replay(recording, missing=config.replay_missing)


@contextmanager
def open_recording(
    source: "str | Path | Recording", store: Store | str | Path | None
) -> Iterator["Recording"]:
    """Open a file, or write the calls of a recorded run to a temporary one."""
    from assay.gateway import Recording

    if isinstance(source, Recording):
        yield source
    elif is_recording_file(source):
        yield Recording.open(source)
    else:
        with TemporaryDirectory(prefix="assay-replay-") as folder:
            target = Path(folder) / "calls.jsonl"
            if isinstance(store, Store):
                record_calls(store, str(source), target)
            else:
                with Store.open(store, create=False) as opened:
                    record_calls(opened, str(source), target)
            yield Recording.open(target)


def is_recording_file(source: str | Path) -> bool:
    """Whether a recording is a file, not the id of a run."""
    path = Path(source)
    named = isinstance(source, Path) or path.suffix == ".jsonl" or len(path.parts) > 1
    return named or path.is_file()


def record_calls(store: Store, wanted: str, target: Path) -> "RecordingHeader":
    """Write the model calls of a run, or of a session of `assay gateway`, to a file."""
    from assay.gateway import write_recording

    if store.has_session(wanted):
        session = store.load_session(wanted)
        plain = session.metadata.get("trajectory")
        recorded = {**(plain if isinstance(plain, dict) else {}), "messages": session.messages}
        sample = Sample(id=session.id, trajectory=Trajectory.model_validate(recorded))
        model = {} if session.endpoint is None else describe_endpoint(session.endpoint)
        return write_recording(target, [(sample, 0)], run=session.id, endpoint=model)
    run = store.run(wanted)
    rows = ((each.sample, each.repeat) for each in run.samples_with_keys())
    endpoint = run.spec.config.get("endpoint")
    about = endpoint if isinstance(endpoint, dict) else {}
    return write_recording(target, rows, run=run.id, endpoint=about)


def connect_model(config: "EvalConfig", replay: "Replay | None") -> ModelClient | None:
    """Connect the model of a run; None without one. One that is never asked needs no key."""
    if config.endpoint is None:
        return None
    if replay is None or replay.asks_model:
        return connect(config.endpoint, config.client)
    from assay.gateway import OfflineClient

    return OfflineClient(config.endpoint)


def conclude_replay(
    sample: Sample, client: "ReplayClient"
) -> tuple[BaseException, Boundary] | None:
    """Mark the rollout as replayed. Returns the first call that is not in the recording.

    Whatever the agent made of it: its answer would not be that of a model.
    """
    if sample.trajectory is not None:
        sample.trajectory = client.mark(sample.trajectory)
    difference = client.session.difference
    return None if difference is None else (difference, Boundary.REPLAY)


def describe_replay(config: "EvalConfig") -> dict[str, Any]:
    """Return the identity of the recording, for the fingerprint of a run."""
    from assay.gateway import Recording

    source = config.replay
    about = source.describe() if isinstance(source, Recording) else {"source": str(source)}
    return {**about, "missing": config.replay_missing}
