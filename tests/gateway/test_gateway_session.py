"""One session: the sampling seeds of its calls."""

from assay.gateway.dialects import OPENAI_CHAT
from assay.gateway.gateway_session import GatewaySession
from assay.gateway.spending import GatewayLimits


def list_seeds(seed: int | None, *texts: str) -> list[int | None]:
    session = GatewaySession("s", "http://127.0.0.1:1", limits=GatewayLimits(), seed=seed)
    bodies = [{"model": "m", "messages": [{"role": "user", "content": each}]} for each in texts]
    return [session.start_call(OPENAI_CHAT, body, b"", {}).seed for body in bodies]


def test_a_request_that_is_sent_again_has_another_seed() -> None:
    assert list_seeds(5, "one", "two", "one", "one", "two") == [5, 5, 6, 7, 6]


def test_without_a_seed_of_the_session_calls_have_none() -> None:
    assert list_seeds(None, "one", "one") == [None, None]
