"""Stored sessions: save, load, list, continue and branch. Secrets are never stored."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from pydantic import ValidationError

from assay.errors import ConfigError, StoreError
from assay.types import AgentSession, Message, Status

from .database import Database
from .run_rows import now
from .schema import get_tables

if TYPE_CHECKING:
    from sqlalchemy import Connection, Row

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

    def save_session(self, session: AgentSession) -> None:
        """Store a whole session; overwrite the one with the same id."""
        _check_session_id(session.id)
        moment = now()
        t = get_tables()
        values = _build_session_columns(session, moment)
        blobs = [message.to_json().encode() for message in session.messages]
        with self._database.write_transaction() as connection:
            connection.execute(
                self._database.insert(t.session)
                .values(id=session.id, created_at=session.created_at or moment, **values)
                .on_conflict_do_update(index_elements=["id"], set_=values)
            )
            connection.execute(t.message.delete().where(t.message.c.session_id == session.id))
            self._insert_messages(connection, session.id, 0, blobs)

    def load_session(self, session_id: str) -> AgentSession:
        """Load a session. `AgentSession.with_secrets` makes its endpoint callable."""
        with self._database.read_transaction() as connection:
            row = self._find_session_row(connection, session_id)
            return self._read_session(connection, row)

    def has_session(self, session_id: str) -> bool:
        """Whether a session with this id is stored."""
        session = get_tables().session
        with self._database.read_transaction() as connection:
            found = connection.execute(sa.select(session.c.id).where(session.c.id == session_id))
            return found.first() is not None

    def list_sessions(
        self,
        *,
        status: Status | None = None,
        parent_id: str | None = None,
        limit: int | None = None,
    ) -> list[SessionRow]:
        """Return sessions, last updated first: all, of one status, or the branches of one."""
        session = get_tables().session
        columns = [column for column in session.c if column.name != "blob"]
        query = sa.select(*columns).order_by(session.c.updated_at.desc(), session.c.id).limit(limit)
        if status is not None:
            query = query.where(session.c.status == str(status))
        if parent_id is not None:
            query = query.where(session.c.parent_id == parent_id)
        with self._database.read_transaction() as connection:
            return [SessionRow(**row._mapping) for row in connection.execute(query)]

    def continue_session(
        self,
        session_id: str,
        messages: Sequence[Message],
        *,
        after: int | None = None,
        status: Status | None = None,
    ) -> AgentSession:
        """Append messages to a stored session and return all of it.

        `after` is the number of messages the caller has seen. Raises `ConfigError` if the number
        differs by now, so that two concurrent callers never interleave.
        """
        blobs = [message.to_json().encode() for message in messages]
        session = get_tables().session
        with self._database.write_transaction() as connection:
            row = self._find_session_row(connection, session_id, lock=True)
            if after is not None and after != row.messages:
                raise ConfigError(
                    f"session {session_id!r} has {row.messages} messages, not {after}: "
                    "another process or task continued it",
                    where=self._database.where,
                    hint="load the session again, or branch it",
                )
            self._insert_messages(connection, session_id, row.messages, blobs)
            changes = {"messages": row.messages + len(blobs), "updated_at": now()}
            if status is not None:
                changes["status"] = str(status)
            connection.execute(session.update().where(session.c.id == session_id).values(changes))
            return self._read_session(connection, self._find_session_row(connection, session_id))

    def branch_session(
        self, session_id: str, new_id: str, *, at: int | None = None
    ) -> AgentSession:
        """Store a new session with the first `at` messages of this one, or with all."""
        _check_session_id(new_id)
        with self._database.write_transaction() as connection:
            row = self._find_session_row(connection, session_id)
            parent = self._read_session(connection, row)
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
            self._insert_session(connection, child)
            return self._read_session(connection, self._find_session_row(connection, new_id))

    def _insert_session(self, connection: "Connection", session: AgentSession) -> None:
        table = get_tables().session
        made = connection.execute(
            self._database.insert(table)
            .values(
                id=session.id,
                created_at=session.created_at,
                **_build_session_columns(session, now()),
            )
            .on_conflict_do_nothing(index_elements=["id"])
            .returning(table.c.id)
        )
        if made.first() is None:
            raise ConfigError(
                f"session {session.id!r} already exists",
                where=self._database.where,
                hint="choose another id",
            )
        blobs = [message.to_json().encode() for message in session.messages]
        self._insert_messages(connection, session.id, 0, blobs)

    def _insert_messages(
        self, connection: "Connection", session_id: str, start: int, blobs: list[bytes]
    ) -> None:
        if blobs:
            connection.execute(
                get_tables().message.insert(),
                [
                    {"session_id": session_id, "position": start + place, "blob": blob}
                    for place, blob in enumerate(blobs)
                ],
            )

    def _find_session_row(
        self, connection: "Connection", session_id: str, *, lock: bool = False
    ) -> "Row[Any]":
        session = get_tables().session
        query = session.select().where(session.c.id == session_id)
        # SQLAlchemy omits FOR UPDATE for SQLite, which has a single writer anyway.
        row = connection.execute(query.with_for_update() if lock else query).first()
        if row is None:
            raise ConfigError(f"session {session_id!r} does not exist", where=self._database.where)
        return row

    def _read_session(self, connection: "Connection", row: "Row[Any]") -> AgentSession:
        message = get_tables().message
        query = (
            sa.select(message.c.blob)
            .where(message.c.session_id == row.id)
            .order_by(message.c.position)
        )
        try:
            session = AgentSession.from_json(row.blob)
            messages = [Message.from_json(blob) for blob in connection.execute(query).scalars()]
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


def _build_session_columns(session: AgentSession, moment: str) -> dict[str, Any]:
    bare = session.model_copy(update={"messages": []})
    return {
        "parent_id": session.parent_id,
        "branch_point": session.branch_point,
        "status": session.status.value,
        "provider": session.endpoint.provider,
        "model": session.endpoint.model,
        "messages": len(session.messages),
        "updated_at": moment,
        "blob": bare.to_json().encode(),
    }


def _check_session_id(session_id: str) -> None:
    if not session_id or len(session_id) > _MAX_SESSION_ID_LENGTH or not session_id.isprintable():
        raise ConfigError(
            f"{session_id[:50]!r} is not a valid session id",
            hint=f"use 1 to {_MAX_SESSION_ID_LENGTH} printable characters",
        )
