"""The rollouts of a run as stored conversations that can be continued."""

from assay.store import Run, Store
from assay.types import AgentSession, Sample

from .eval_config import EvalConfig


def save_sessions(run: Run, store: Store, config: EvalConfig) -> None:
    """Store each recorded rollout as a session, replacing earlier versions of it.

    A session that was continued in the meantime is left alone.
    """
    if config.endpoint is None:
        return
    parent = config.session
    for sample in run.samples():
        if sample.trajectory is None or not sample.trajectory.messages:
            continue
        session = AgentSession(
            id=build_session_id(run.id, sample),
            endpoint=config.endpoint,
            messages=sample.messages,
            environment=sample.trajectory.session,
            parent_id=None if parent is None else parent.id,
            branch_point=None if parent is None else len(parent.messages),
            status=sample.status,
            tags={"run": run.id, "sample": sample.id},
        )
        if not _is_continued(session, store):
            store.save_session(session)


def build_session_id(run_id: str, sample: Sample) -> str:
    """Return the id under which a rollout of a run is stored as a session."""
    return f"{run_id}/{sample.rollout_id or sample.id}"


def _is_continued(session: AgentSession, store: Store) -> bool:
    if not store.has_session(session.id):
        return False
    stored, count = store.load_session(session.id).messages, len(session.messages)
    return len(stored) > count and stored[:count] == session.messages
