"""One limit for all processes: what one of them is refused, all of them learn."""

from assay.providers.attempt_errors import AttemptError, ErrorKind
from assay.providers.concurrency import AdaptiveLimiter, Limiter
from assay.providers.refusal_relay import RefusalRelay
from model_server import ToldTime

THROTTLED = AttemptError(ErrorKind.THROTTLED, "HTTP 429", 429)


def connect_two(time: ToldTime) -> tuple[AdaptiveLimiter, AdaptiveLimiter]:
    """Limiters of one endpoint in two processes, whose relays send to each other."""
    here, there = RefusalRelay(), RefusalRelay()
    here.open(there.receive)
    there.open(here.receive)
    one, other = (AdaptiveLimiter(ceiling=100, timing=time.timing) for _ in range(2))
    here.add("openai:m", one)
    there.add("openai:m", other)
    return one, other


def test_a_refusal_lowers_the_limit_of_every_process_once() -> None:
    one, other = connect_two(ToldTime())

    one.record_failure(THROTTLED)
    other.record_success(0.1)
    # Of the same episode: sent before it learned of the first one.
    other.record_failure(THROTTLED)
    one.record_success(0.1)

    assert (one.limit, other.limit) == (10, 10)


def test_a_refusal_of_another_endpoint_changes_nothing() -> None:
    relay = RefusalRelay()
    relay.open(lambda endpoint, pause_s: None)
    limiter = AdaptiveLimiter(ceiling=100)
    relay.add("openai:m", limiter)

    relay.receive("openai:other", 0.0)
    limiter.record_success(0.1)

    assert limiter.limit == 20


def test_the_wait_that_a_server_asks_for_holds_in_every_process() -> None:
    time = ToldTime()
    one, other = connect_two(time)
    asked = AttemptError(ErrorKind.THROTTLED, "HTTP 429", 429, retry_after_s=60.0)

    one.record_failure(asked)
    other.record_success(0.1)
    time.at += 50
    other.record_failure(THROTTLED)

    assert other.limit == 10


def test_fixed_limits_and_single_processes_are_left_alone() -> None:
    relay, fixed, alone = RefusalRelay(), Limiter(5), AdaptiveLimiter(ceiling=100)
    relay.add("openai:m", alone)
    relay.open(lambda endpoint, pause_s: None)
    relay.add("openai:m", fixed)

    relay.receive("openai:m", 0.0)

    assert not alone.refusals
    assert alone.on_cut is None
