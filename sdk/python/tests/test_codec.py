"""The fixed JSON form, with the table that the SDKs of all languages share."""

from collections.abc import Callable
from typing import Any

import pytest

from conclave_sdk import (
    Era,
    InvalidArguments,
    Outcome,
    act,
    call,
    codec,
    model,
    observation_from_json,
    observation_to_json,
    say,
    turn_from_json,
    turn_from_value,
    value_in,
)
from conclave_sdk.actions import Custom, Run, Success
from conclave_sdk.agents import PastAction
from conclave_sdk.testing import FakeHost, TaskSnapshot

from . import codec_table as table


def _again(read: Callable[[Any], Any], form: Any) -> Any:
    """Return what is read, or the text of its refusal."""
    try:
        return read(form)
    except InvalidArguments as error:
        return str(error)


def _expected(again: Any, of: Callable[[Any], Any]) -> Any:
    return again if isinstance(again, str) else of(again)


def test_each_turn_has_its_form_in_both_eras_and_is_read_again() -> None:
    for row in table.TABLE["turns"]:
        turn = table.turn(row["turn"])
        for at, era in enumerate(Era):
            form = turn.to_json(era)
            assert form == row[era.value]
            again = row["again"][at] if "again" in row else row["turn"]
            assert _again(turn_from_value, form) == _expected(again, table.turn)


def test_each_text_of_a_model_is_read_or_refused_in_its_words() -> None:
    for row in table.TABLE["texts"]:
        assert turn_from_json(row["text"]) == table.turn(row["turn"]), row["text"]
    for row in table.TABLE["refused"]:
        with pytest.raises(InvalidArguments) as refused:
            turn_from_json(row["text"])
        assert str(refused.value) == row["error"]
    deep = "[" * 128 + "{}" + "]" * 128
    for text in [*(row["text"] for row in table.TABLE["no JSON"]), "{" * 100_000, deep]:
        with pytest.raises(InvalidArguments, match=r"^what was written is no JSON: "):
            value_in(text)


def test_each_observation_has_its_form_in_both_eras_and_is_read_again() -> None:
    for row in table.TABLE["observations"]:
        observation = table.observation(row["observation"])
        for at, era in enumerate(Era):
            form = observation_to_json(observation, era)
            assert form == row[era.value]
            again = row["again"][at] if "again" in row else row["observation"]
            expected = _expected(again, table.observation)
            assert _again(observation_from_json, form) == expected
    for row in table.TABLE["observed"]:
        assert observation_from_json(row["form"]) == table.observation(row["observation"])
    for row in table.TABLE["refused observations"]:
        with pytest.raises(InvalidArguments) as refused:
            observation_from_json(row["form"])
        assert str(refused.value) == row["error"]


def test_each_message_is_its_events_and_a_view_has_them() -> None:
    for row in table.TABLE["messages"]:
        message = table.message(row["message"])
        for era in Era:
            assert codec.forms_of_message(message, era) == row[era.value]
            assert TaskSnapshot(history=[message]).view.events(era) == row[era.value]
    past = [
        PastAction(Run("ls"), seq=3),
        PastAction(observation=Success("done"), seq=4),
        PastAction(Custom("dance"), seq=5),
    ]
    events = TaskSnapshot(since_last_step=past).view.new_events()
    known = [(e["id"], e.get("source"), e.get("action", e.get("observation"))) for e in events]
    assert known == [(3, "agent", "run"), (4, None, "success")]


def test_a_model_reads_what_it_wrote_and_what_was_wrong() -> None:
    with FakeHost().reply("Well, let us see."), pytest.raises(InvalidArguments) as refused:
        model.act()
    assert str(refused.value).startswith("there is no JSON object in what was written")
    assert str(refused.value).endswith("\nYou wrote: Well, let us see.")
    with FakeHost().reply("é" * 600), pytest.raises(InvalidArguments) as refused:
        model.act()
    assert str(refused.value).count("é") == 500


def test_tools_of_the_host_and_of_servers_are_calls() -> None:
    assert act.call_mcp("maps.find", {"q": 1}) == call("maps.find", {"q": 1})
    sent = {"to": "desk", "content": "lit?", "tools": [{"name": "a.b", "arguments": {"n": 1}}]}
    assert act.agent_send("desk", "lit?", [("a.b", {"n": 1})]) == call("agent_send", sent)
    message = {"intended_recipient": "desk", "content": "lit?"}
    assert act.recipient_message("desk", "lit?") == call("recipient_message", message)
    for outcome, name, arguments in [
        (Outcome.agent_send("desk", "lit?", [("a.b", {"n": 1})]), "agent_send", sent),
        (Outcome.recipient_message("desk", "lit?"), "recipient_message", message),
    ]:
        (one,) = outcome.follow_up_calls
        assert (one.name, one.arguments) == (name, arguments)


def test_a_turn_may_have_a_text_for_the_history() -> None:
    assert say("hi").with_text("I say hi.").extra == {"text": "I say hi."}
