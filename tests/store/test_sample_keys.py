"""Keys of samples: the same tomorrow, different for what differs; and the set of done ones."""

import hashlib
import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from assay.store import DoneKeys, sample_key

parts = st.tuples(st.text(), st.text(), st.integers(0, 9), st.text())


def test_the_key_of_a_sample_never_changes() -> None:
    assert sample_key("run", "s1", 0, "c1") == "62fe083f77940b5606f5264d138aa2f1"


def test_everything_it_is_made_of_counts() -> None:
    keys = {
        sample_key("run", "s1", 0, "c1"),
        sample_key("run2", "s1", 0, "c1"),
        sample_key("run", "s2", 0, "c1"),
        sample_key("run", "s1", 1, "c1"),
        sample_key("run", "s1", 0, "c2"),
        sample_key("ru", "ns1", 0, "c1"),
        sample_key("run", "s", 10, "c1"),
    }

    assert len(keys) == 7


@given(parts, parts)
def test_different_parts_never_share_a_key(
    one: tuple[str, str, int, str], other: tuple[str, str, int, str]
) -> None:
    assert (sample_key(*one) == sample_key(*other)) == (one == other)


def test_half_an_emoji_in_an_id_has_a_key() -> None:
    assert len(sample_key("run", "half \ud83d", 0, "c1")) == 32


def test_done_keys_hold_what_they_were_given_and_nothing_else() -> None:
    done = DoneKeys(f"key {number}" for number in range(5000))

    assert all(f"key {number}" in done for number in range(5000))
    assert not any(f"key {number}" in done for number in range(5000, 10000))
    assert len(done) == 5000
    assert 5 not in done
    assert "anything" not in DoneKeys([])


def test_done_keys_cost_a_few_bytes_each() -> None:
    tracemalloc.start()

    done = DoneKeys(f"a key of ordinary length {number}" for number in range(30_000))
    kept, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert len(done) == 30_000
    assert kept < 16 * 30_000
    assert peak < 20 * 30_000


@given(parts)
def test_the_key_is_the_digest_of_all_parts_in_a_row(made_of: tuple[str, str, int, str]) -> None:
    run_id, sample_id, repeat, fingerprint = made_of
    text = f"{len(run_id)}:{run_id}{len(sample_id)}:{sample_id}{repeat}:{fingerprint}"

    whole = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16)

    assert sample_key(*made_of) == whole.hexdigest()


def test_nothing_is_done_in_a_new_run() -> None:
    assert "key" not in DoneKeys([])
    assert len(DoneKeys([])) == 0
