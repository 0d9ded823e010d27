"""Calls without an answer: which one an answer takes, among however many."""

from assay.formats.open_calls import OpenCalls


def build_calls(*given: tuple[str | None, str]) -> OpenCalls[str]:
    calls: OpenCalls[str] = OpenCalls()
    for place, (call_id, name) in enumerate(given):
        calls.add(call_id, str(place), name=name)
    return calls


def test_an_answer_takes_the_call_with_its_id_else_the_first_one() -> None:
    calls = build_calls(("a", "f"), ("b", "f"), ("a", "f"))

    assert [calls.take(each) for each in (None, "a", "a", None, None)] == [
        "0",
        "2",
        None,
        "1",
        None,
    ]
    assert list(calls) == []


def test_an_answer_with_a_name_takes_the_first_call_that_fits() -> None:
    given = (("a", "f"), (None, "g"), (None, "f"), ("b", "g"), ("c", "f"))

    assert build_calls(*given).take_named("c", "f") == "2"
    assert build_calls(*given).take_named("c", None) == "1"
    assert build_calls(*given).take_named("a", "g") == "0"
    assert build_calls(*given).take_named(None, "g") == "1"
    assert build_calls(*given).take_named(None, None) == "0"
    assert build_calls(*given).take_named("x", "h") is None
    assert build_calls(*given).get_named("g") == "1"
    assert build_calls(*given).get_named(None) == "0"


def test_all_calls_with_an_id_are_closed_together() -> None:
    calls = build_calls(("a", "f"), ("b", "f"), ("a", "f"))

    calls.close("a")

    assert list(calls) == ["1"]
    assert calls.get_named("f") == "1"


def test_very_many_calls_are_found_in_linear_time() -> None:
    count = 100_000
    calls = build_calls(*((str(n), "f") for n in range(count)), *[(None, "f")] * count)

    # A search through all of them would be ten billion steps.
    assert [calls.take(str(n)) for n in range(count)] == [str(n) for n in range(count)]
    taken = [calls.take_named(None, "f") for _ in range(count // 2)]
    taken += [calls.take(None) for _ in range(count // 2)]
    assert taken == [str(n) for n in range(count, 2 * count)]
