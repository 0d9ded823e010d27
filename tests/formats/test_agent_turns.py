"""Which turns are the agent's: by recorded calls, by the prompt, and when nobody can tell."""

import pytest

from assay.errors import WireError
from assay.formats.agent_turns import flatten_to_text, get_prompt_messages, split_agent_turns
from assay.train.retokenize import find_answer_places
from assay.types import Message, ModelCall, Sample, Trajectory
from make import answered, asked, called, said

SHOWN = said("an example of an answer")
HISTORY = [asked("an example"), SHOWN, asked("the question")]


def rolled_out(*messages: Message, prompt: list[Message], calls: tuple[int, ...] = ()) -> Sample:
    made = [ModelCall(message_index=place) for place in calls]
    return Sample(id="s", prompt=prompt, trajectory=Trajectory(messages=list(messages), calls=made))


def test_assistant_turns_of_the_prompt_are_context() -> None:
    turns = split_agent_turns(rolled_out(*HISTORY, said("mine"), prompt=HISTORY))

    assert turns.context == HISTORY
    assert turns.made == [said("mine")]
    assert turns.foreign


def test_a_system_message_put_before_the_prompt_does_not_hide_it() -> None:
    system = Message(role="system", content="Be brief.")

    turns = split_agent_turns(rolled_out(system, *HISTORY, said("mine"), prompt=HISTORY))

    assert turns.context == [system, *HISTORY]


def test_recorded_calls_tell_the_agents_turns_from_those_an_environment_put_in() -> None:
    messages = [asked("go"), SHOWN, asked("now you"), said("mine"), said("not mine"), said("mine")]

    turns = split_agent_turns(rolled_out(*messages, prompt=messages[:1], calls=(3, 5)))

    assert turns.context == messages[:3]
    assert turns.own == {0, 2}
    assert turns.foreign


def test_calls_that_failed_or_say_nothing_of_their_place_are_not_asked() -> None:
    unplaced = rolled_out(asked("go"), said("mine"), prompt=[asked("go")])
    assert unplaced.trajectory is not None
    unplaced.trajectory.calls = [ModelCall(), ModelCall(message_index=7, error="overloaded")]

    assert split_agent_turns(unplaced).made == [said("mine")]


@pytest.mark.parametrize("apart", [ModelCall(), ModelCall(purpose="summary")])
def test_the_message_of_a_failed_call_is_no_turn_of_the_agent(apart: ModelCall) -> None:
    messages = [asked("go"), said(""), asked("again"), said("mine")]
    sample = rolled_out(*messages, prompt=messages[:1])
    assert sample.trajectory is not None
    failed = ModelCall(message_index=1, error="overloaded")
    retried = ModelCall(message_index=3, error="overloaded")
    sample.trajectory.calls = [failed, apart, retried, ModelCall(message_index=3)]

    assert split_agent_turns(sample).made == messages[3:]
    assert find_answer_places(sample) == [3]


def test_what_comes_after_the_last_turn_is_cut_and_counted() -> None:
    messages = [asked("go"), said(None, called("look")), answered("north")]

    turns = split_agent_turns(rolled_out(*messages, prompt=messages[:1]))

    assert turns.made == messages[1:2]
    assert turns.cut == 1


def test_without_a_trajectory_the_answer_is_what_follows_the_last_thing_asked() -> None:
    row = Sample(prompt=[*HISTORY, said(None, called("look")), answered("north"), said("there")])

    turns = split_agent_turns(row)

    assert turns.context == HISTORY
    assert len(turns.made) == 3
    assert get_prompt_messages(row) == HISTORY


def test_a_turn_of_weight_0_is_context() -> None:
    weightless = Message.model_validate({"role": "assistant", "content": "x", "weight": 0})
    messages = [asked("a"), weightless, asked("b"), said("mine")]

    assert split_agent_turns(rolled_out(*messages, prompt=messages[:1])).context == messages[:3]


def test_a_prompt_in_words_is_one_user_message() -> None:
    assert get_prompt_messages(Sample(prompt="hi")) == [asked("hi")]
    assert get_prompt_messages(Sample()) == []


@pytest.mark.parametrize(
    ("sample", "problem"),
    [
        (Sample(prompt="hi"), "the agent took no turn"),
        (rolled_out(asked("hi"), prompt=[asked("hi")]), "the agent took no turn"),
        (rolled_out(asked("other words"), said("x"), prompt=HISTORY), "cannot be distinguished"),
    ],
)
def test_a_sample_without_a_turn_of_the_agent_is_refused(sample: Sample, problem: str) -> None:
    with pytest.raises(WireError, match=problem):
        split_agent_turns(sample)


def test_a_rewritten_prompt_without_assistant_turns_hides_nothing() -> None:
    turns = split_agent_turns(rolled_out(asked("other words"), said("x"), prompt=[asked("words")]))

    assert turns.made == [said("x")]


def test_text_blocks_become_text_and_images_are_refused() -> None:
    blocks = {"role": "user", "content": [{"type": "text", "text": "a"}]}
    image = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "u"}}]}

    (worded,) = flatten_to_text([Message.model_validate(blocks)])

    assert worded.content == "a"
    assert flatten_to_text([said(None, called("f"))])[0].content == ""
    with pytest.raises(WireError, match=r"messages\[0\].content\[0\]: a `image_url` block"):
        flatten_to_text([Message.model_validate(image)])
