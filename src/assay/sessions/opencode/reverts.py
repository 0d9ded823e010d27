"""Messages that the user has reverted, which stay stored until the next prompt."""

from typing import Any

from .archive import StoredMessage, StoredSession


def split_reverted(session: StoredSession) -> tuple[list[StoredMessage], list[Any]]:
    """Return the messages that were kept, and the ids of those reverted as a whole or in part."""
    # By position, as OpenCode does: ids do not define the order.
    revert = session.info.get("revert")
    wanted = revert.get("messageID") if isinstance(revert, dict) else None
    places = [n for n, each in enumerate(session.messages) if each.info.get("id") == wanted]
    if wanted is None or not places:
        return session.messages, []
    place = places[0]
    kept = session.messages[:place]
    cut = session.messages[place]
    part_id = revert.get("partID") if isinstance(revert, dict) else None
    until = [n for n, part in enumerate(cut.parts) if part.get("id") == part_id]
    if part_id is not None and until and until[0] > 0:
        kept = [*kept, StoredMessage(cut.info, cut.parts[: until[0]])]
    return kept, [each.info.get("id") for each in session.messages[place:]]
