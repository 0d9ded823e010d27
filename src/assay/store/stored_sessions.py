"""Stored sessions: save, load, list, continue and branch. Secrets are never stored."""

from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from assay.errors import ConfigError, StoreError

from .database import Database, Transaction
from .run_rows import now

if TYPE_CHECKING:
    from assay.types import AgentSession, Message, Status

_MAX_SESSION_ID_LENGTH = 400


@dataclass(frozen=True, slots=True)
class SessionRow:
    """One session in a list."""

    id: str
    parent_id: str | None
    branch_point: int | None
    status: str
    provider: str
    model: str
    messages: int
    """The number of messages."""

    created_at: str
    updated_at: str


class SessionStore:
    """The sessions of a store. Messages are stored one by one, so that appending is cheap."""

    _database: Database

    def save_session(self, session: "AgentSession") -> None:
        """Store a whole session; overwrite the one with the same id."""
        _check_session_id(session.id)
        columns = _build_session_columns(session)
        changes = ", ".join(
            f"{name} = excluded.{name}" for name in columns if name not in ("id", "created_at")
        )
        with self._database.write_transaction() as transaction:
            transaction.execute(
                f"{_build_session_insert(columns)} DO UPDATE SET {changes}", *columns.values()
            )
            transaction.execute("DELETE FROM assay_message WHERE session_id = ?", session.id)
            _insert_messages(transaction, session.id, 0, session.messages)

    def load_session(self, session_id: str) -> "AgentSession":
        """Load a session. `AgentSession.with_secrets` makes its endpoint callable."""
        with self._database.read_transaction() as transaction:
            return self._read_session(transaction, self._find_session_row(transaction, session_id))

    def has_session(self, session_id: str) -> bool:
        """Whether a session with this id is stored."""
        query = "SELECT 1 FROM assay_session WHERE id = ?"
        with self._database.read_transaction() as transaction:
            return transaction.execute(query, session_id).scalar() is not None

    def list_sessions(
        self,
        *,
        status: "Status | None" = None,
        parent_id: str | None = None,
        limit: int | None = None,
    ) -> list[SessionRow]:
        """Return sessions, last updated first: all, of one status, or the branches of one."""
        given = {"status": None if status is None else str(status), "parent_id": parent_id}
        chosen = {name: value for name, value in given.items() if value is not None}
        conditions = " AND ".join(f"{name} = ?" for name in chosen)
        query = (
            f"SELECT {', '.join(SessionRow.__slots__)} FROM assay_session "
            f"{'WHERE' if chosen else ''} {conditions} ORDER BY updated_at DESC, id "
            f"{'' if limit is None else f'LIMIT {int(limit)}'}"
        )
        with self._database.read_transaction() as transaction:
            return [SessionRow(*row) for row in transaction.execute(query, *chosen.values()).all()]

    def read_session_labels(self, session_ids: Iterable[str]) -> dict[str, str]:
        """Return the first line that the user wrote in each of these sessions; "" for none."""
        from pydantic import ValidationError

        from assay.types import Message, Sample, build_label

        # The question comes first, or behind the system's message.
        query = "SELECT blob FROM assay_message WHERE session_id = ? ORDER BY position LIMIT 3"
        labels = {}
        with self._database.read_transaction() as transaction:
            for session_id in session_ids:
                blobs = transaction.execute(query, session_id).scalars()
                labels[session_id] = ""
                # A list does not fail for a damaged session; loading it does.
                with suppress(ValidationError):
                    prompt = [Message.from_json(blob) for blob in blobs]
                    labels[session_id] = build_label(Sample(prompt=prompt))
        return labels

    def continue_session(
        self,
        session_id: str,
        messages: "Sequence[Message]",
        *,
        after: int | None = None,
        status: "Status | None" = None,
    ) -> "AgentSession":
        """Append messages to a stored session and return all of it.

        `after` is the number of messages the caller has seen. Raises `ConfigError` if the number
        differs by now, so that two concurrent callers never interleave.
        """
        with self._database.write_transaction() as transaction:
            row = self._find_session_row(transaction, session_id, lock=True)
            if after is not None and after != row.messages:
                raise ConfigError(
                    f"session {session_id!r} has {row.messages} messages, not {after}: "
                    "another process or task continued it",
                    where=self._database.where,
                    hint="load the session again, or branch it",
                )
            _insert_messages(transaction, session_id, row.messages, messages)
            transaction.execute(
                "UPDATE assay_session SET messages = ?, updated_at = ?, status = ? WHERE id = ?",
                row.messages + len(messages),
                now(),
                row.status if status is None else str(status),
                session_id,
            )
            return self._read_session(transaction, self._find_session_row(transaction, session_id))

    def branch_session(
        self, session_id: str, new_id: str, *, at: int | None = None
    ) -> "AgentSession":
        """Store a new session with the first `at` messages of this one, or with all."""
        _check_session_id(new_id)
        with self._database.write_transaction() as transaction:
            row = self._find_session_row(transaction, session_id)
            parent = self._read_session(transaction, row)
            point = row.messages if at is None else at
            if not 0 <= point <= row.messages:
                raise ConfigError(
                    f"session {session_id!r} cannot branch at message {point}: "
                    f"it has {row.messages}",
                    where=self._database.where,
                )
            child = parent.model_copy(
                update={
                    "id": new_id,
                    "parent_id": session_id,
                    "branch_point": point,
                    "messages": parent.messages[:point],
                    "created_at": now(),
                }
            )
            columns = _build_session_columns(child)
            insert = f"{_build_session_insert(columns)} DO NOTHING RETURNING id"
            if transaction.execute(insert, *columns.values()).first() is None:
                raise ConfigError(
                    f"session {new_id!r} already exists",
                    where=self._database.where,
                    hint="choose another id",
                )
            _insert_messages(transaction, new_id, 0, child.messages)
            return self._read_session(transaction, self._find_session_row(transaction, new_id))

    def _find_session_row(
        self, transaction: Transaction, session_id: str, *, lock: bool = False
    ) -> Any:
        query = "SELECT * FROM assay_session WHERE id = ?"
        query += transaction.lock_clause if lock else ""
        row = transaction.execute(query, session_id).first()
        if row is None:
            raise ConfigError(f"session {session_id!r} does not exist", where=self._database.where)
        return row

    def _read_session(self, transaction: Transaction, row: Any) -> "AgentSession":
        # Not above: most uses of a store read no session, and need none of these models.
        from pydantic import ValidationError

        from assay.types import AgentSession, Message, Status

        query = "SELECT blob FROM assay_message WHERE session_id = ? ORDER BY position"
        blobs = transaction.execute(query, row.id).scalars()
        try:
            session = AgentSession.from_json(row.blob)
            messages = [Message.from_json(blob) for blob in blobs]
        except ValidationError as error:
            problem = error.errors(include_url=False, include_input=False)[0]["msg"]
            raise StoreError(
                f"session {row.id!r} cannot be read: {problem}", where=self._database.where
            ) from None
        return session.model_copy(
            update={
                "messages": messages,
                "status": Status(row.status),
                "created_at": row.created_at,
                "updated_at": row.updated_at,
            }
        )


def _build_session_columns(session: "AgentSession") -> dict[str, Any]:
    moment = now()
    return {
        "id": session.id,
        "created_at": session.created_at or moment,
        "parent_id": session.parent_id,
        "branch_point": session.branch_point,
        "status": session.status.value,
        "provider": session.endpoint.provider,
        "model": session.endpoint.model,
        "messages": len(session.messages),
        "updated_at": moment,
        "blob": session.model_copy(update={"messages": []}).to_json().encode(),
    }


def _build_session_insert(columns: Collection[str]) -> str:
    marks = ", ".join("?" * len(columns))
    return f"INSERT INTO assay_session ({', '.join(columns)}) VALUES ({marks}) ON CONFLICT (id)"


def _insert_messages(
    transaction: Transaction, session_id: str, start: int, messages: "Sequence[Message]"
) -> None:
    rows = [
        (session_id, position, message.to_json().encode())
        for position, message in enumerate(messages, start)
    ]
    if rows:
        transaction.execute_many(
            "INSERT INTO assay_message (session_id, position, blob) VALUES (?, ?, ?)", rows
        )


def _check_session_id(session_id: str) -> None:
    if not session_id or len(session_id) > _MAX_SESSION_ID_LENGTH or not session_id.isprintable():
        raise ConfigError(
            f"{session_id[:50]!r} is not a valid session id",
            hint=f"use 1 to {_MAX_SESSION_ID_LENGTH} printable characters",
        )
