"""Shards: every sample belongs to one of them, whoever asks."""

import pytest

from assay.errors import ConfigError
from assay.runner import Shard


def test_each_sample_belongs_to_one_shard_and_all_shards_have_about_as_many() -> None:
    shards = [Shard("run", number, 4) for number in range(1, 5)]
    ids = [f"sample-{number}" for number in range(4000)]

    owners = [[shard.number for shard in shards if shard.has(each)] for each in ids]

    assert all(len(found) == 1 for found in owners)
    assert all(900 < owners.count([number]) < 1100 for number in range(1, 5))


def test_the_assignment_is_the_same_in_every_version() -> None:
    # Other processes of the run may have been started earlier.
    assert [Shard("run", 1, 2).has(each) for each in ("a", "b", "c", "é", "\ud800")] == [
        False,
        False,
        False,
        False,
        True,
    ]


def test_a_shard_is_parsed_from_its_text() -> None:
    shard = Shard.parse("3/16", "nightly")

    assert (shard.run_id, shard.number, shard.count, str(shard)) == ("nightly", 3, 16, "3/16")


@pytest.mark.parametrize("text", ["", "3", "3/", "/16", "a/b", "-1/4", "1/2/3", "1 / 2"])
def test_a_text_that_is_no_shard_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="is not a shard"):
        Shard.parse(text, "nightly")


@pytest.mark.parametrize("text", ["0/4", "5/4", "0/0"])
def test_a_shard_outside_of_its_run_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=f"shard {text} does not exist"):
        Shard.parse(text, "nightly")
