"""Quotes are looked for in the transcript; what is not there is not found."""

import pytest

from assay.scorers.judges.evidence import QuoteIndex
from assay.scorers.judges.judged_transcript import render_transcript
from make import answered, asked, called, said, sample

SHOWN = render_transcript(
    sample(
        asked("Where is order R-77?"),
        said("Let me\n  look.", called("find", order="R-77")),
        answered('{"place": "Bergen"}'),
        said("It's in “Bergen”, at the quay, since May."),
    ),
    longest=10_000,
)


@pytest.mark.parametrize(
    ("quote", "turns"),
    [
        ("Let me look.", (2,)),
        ("Let me\\n  look.", (2,)),
        ('"Let me look."', (2,)),
        ('{\\"place\\": \\"Bergen\\"}', (3,)),
        ('It’s in "Bergen"', (4,)),
        ("It's in ... since May", (4,)),
        ("since May … It's in", ()),
        ("R-77", (1, 2)),
        ("find", (2,)),
        ("It is in Oslo", ()),
        ("let me look.", ()),
        ("", ()),
        ("...", ()),
    ],
)
def test_a_quote_is_found_where_it_stands(quote: str, turns: tuple[int, ...]) -> None:
    found = QuoteIndex(SHOWN).find(quote)

    assert found.turns == turns


def test_a_text_is_held_whatever_its_spacing() -> None:
    material = QuoteIndex(SHOWN)

    assert material.contains('{ "place":"Bergen" }')
    assert not material.contains('{"place": "Oslo"}')
