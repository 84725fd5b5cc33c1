"""The host of native tests, and the capability modules on it."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from conclave_sdk import (
    Call,
    Denied,
    Error,
    QuotaExceeded,
    Role,
    UnknownBlob,
    blobs,
    config,
    fetch,
    files,
    history,
    kv,
    log,
    model,
    programs,
    progress,
    scratch,
    secrets,
    toolbox,
)
from conclave_sdk.files import EntryKind
from conclave_sdk.testing import FakeHost, TaskSnapshot
from conclave_sdk.toolbox import ToolAnswer
from conclave_sdk.types import Blob


@pytest.mark.parametrize(
    "use",
    [
        lambda: files.read("/a"),
        lambda: files.write("/a", "x"),
        lambda: files.remove("/a"),
        lambda: files.list_entries("/"),
        lambda: kv.get("a"),
        lambda: kv.set("a", "x"),
        lambda: kv.delete("a"),
        lambda: list(kv.keys()),
        lambda: fetch.get("https://a.example"),
        lambda: model.complete(),
        lambda: model.start(),
        lambda: secrets.placeholder("a"),
        lambda: history.messages(),
        lambda: history.calling_message(),
        lambda: history.inputs(),
    ],
)
@pytest.mark.parametrize("in_host", [False, True])
def test_without_a_grant_everything_is_denied(use: Callable[[], Any], in_host: bool) -> None:
    if in_host:
        with FakeHost(), pytest.raises(Denied):
            use()
    else:
        with pytest.raises(Denied):
            use()


def test_files_are_those_of_the_granted_folders() -> None:
    host = FakeHost().file("/notes/a.md", "one").file("/notes/sub/b.md", "two").writable("/out")
    with host:
        listed = [(entry.name, entry.kind) for entry in files.list_entries("/notes")]
        assert listed == [("a.md", EntryKind.FILE), ("sub", EntryKind.DIRECTORY)]
        assert files.list_entries("/out") == []
        found = [found.path for found in files.walk("/notes")]
        assert found == ["/notes/a.md", "/notes/sub", "/notes/sub/b.md"]
        assert files.read_at("/notes/a.md", 1, 9) == b"ne"
        for path, error in [
            ("/notes/sub", IsADirectoryError),
            ("/notes/c.md", FileNotFoundError),
            ("/notes/../out/x", Denied),
            ("/notesx/a", PermissionError),
        ]:
            with pytest.raises(error):
                files.read(path)
        with pytest.raises(NotADirectoryError):
            files.list_entries("/notes/a.md")
        with pytest.raises(Denied, match="reading only"):
            files.write("/notes/a.md", "x")
        assert files.write_at("/out/x", 2, b"cd") == 4
        files.write("/out/x", "ab")
        files.remove("/out/absent")
    assert host.content("/out/x") == b"ab"


def test_large_files_and_many_keys_are_paged() -> None:
    content = bytes(range(256)) * 3_000
    host = FakeHost().file("/a/big", content).kv({f"key-{n:04}": str(n) for n in range(600)})
    with host:
        assert files.read("/a/big") == content
        assert len(list(kv.keys("key-"))) == 600
        assert kv.get_text("key-0007") == "7"
        kv.delete("key-0007")
        assert kv.get("key-0007") is None
    assert host.value("key-0008") == b"8"


def test_requests_are_encoded_and_answered() -> None:
    url = "https://a.example/x?lat=56.3&q=a%20b"
    host = FakeHost().with_secret("token").response(url, {"degrees": 4.5}, headers={"X-A": "1"})
    host.response("https://a.example/no", "gone", status=404)

    @dataclass
    class Weather:
        degrees: float

    with host:
        key = secrets.placeholder("token")
        answer = fetch.get(
            "https://a.example/x",
            query={"lat": 56.3, "q": "a b"},
            headers={"authorization": f"Bearer {key}"},
        )
        assert answer.json(Weather) == Weather(4.5)
        assert answer.headers == {"x-a": "1"}
        with pytest.raises(Error, match="answered with status 404: gone"):
            fetch.get("https://a.example/no").check()
        with pytest.raises(Denied):
            fetch.get("https://b.example")
    assert host.requests[0].headers[0].value == "Bearer <secret token>"


def test_a_model_answers_and_streams() -> None:
    host = FakeHost().reply("In 1844.").reply_with_call("search.find", {"q": 1}).reply("{}")
    with host:
        assert model.complete([model.note("When?")], options={"max_output_tokens": 5}).text
        assert model.complete().tool_calls[0].name == "search.find"
        with model.start() as stream:
            assert list(stream) == ["{}"]
            assert stream.wait().json() == {}
        with pytest.raises(AssertionError, match="more often"):
            model.complete()
    assert host.prompts[0].options == {"max-output-tokens": 5}


def test_settings_have_a_form() -> None:
    @dataclass
    class Settings:
        units: str = "celsius"

    with FakeHost():
        assert config.get(Settings) == Settings()
    with FakeHost().settings({"units": 5}), pytest.raises(Error, match="config: units: expected"):
        config.get(Settings)
    read = [config.milliseconds(text) for text in ["0", "0 s", "500 ms", "15s", " 2 min ", "1 h"]]
    assert read == [0, 0, 500, 15_000, 120_000, 3_600_000]
    for text in ["", "15", "s", "-1 s", "1.5 s", "1 week"]:
        with pytest.raises(Error, match="such as"):
            config.milliseconds(text)


def test_the_scratch_lasts_as_long_as_the_host() -> None:
    host = FakeHost()
    with host:
        assert scratch.get(int) is None
        scratch.set(7)
    with host:
        assert scratch.get(int) == 7
        with pytest.raises(Error, match="the scratch: expected a text"):
            scratch.get(str)
        with pytest.raises(QuotaExceeded):
            scratch.set("x" * 70_000)
    with FakeHost():
        assert scratch.get() is None


def test_blobs_need_no_grant() -> None:
    with FakeHost():
        blob = blobs.put("x" * 600_000, "text/plain", "x.txt")
        assert blobs.read(blob) == b"x" * 600_000
        with pytest.raises(UnknownBlob):
            blobs.read(Blob("0", "text/plain", 1))


def test_lines_of_the_log_and_progress_are_kept() -> None:
    host = FakeHost()
    logger = logging.Logger("plugin")
    logger.addHandler(log.Handler())
    with host:
        log.info("one")
        logger.warning("two %s", 2)
        progress.report(1, 2, "half")
    assert host.logged == ["info: one", "warn: two 2"]
    assert host.reported == [(1, 2, "half")]


def test_the_history_of_the_calling_task_is_read() -> None:
    task = TaskSnapshot(inputs={"a": 1}).says(Role.USER, "one").says(Role.LLM, "two")
    with FakeHost().history(task).call(Call(caller="me")):
        assert [message.content for message in history.messages()] == ["one", "two"]
        assert history.calling_message().content == "two"
        assert history.inputs() == {"a": 1}


def test_granted_programs_run_and_others_are_denied() -> None:
    with FakeHost():
        assert programs.commands() == []
    host = FakeHost().program("git log main", 1, "none\n")
    with host:
        output = programs.run("git", "log", "main", directory="/workspace", input="x")
        assert (output.exit_code, output.stopped, output.stdout) == (1, None, "none\n")
        with pytest.raises(Denied, match="rm -rf /"):
            programs.run("rm", "-rf", "/")
    assert host.ran == [("git log main", "/workspace", b"x")]


def test_other_tools_answer_and_their_calls_are_known() -> None:
    with FakeHost():
        assert toolbox.tools() == []
    host = FakeHost().tool("search.find", "at six").tool("tide.at", 6).tool("bad.one", Error("no"))
    with host:
        assert [tool.name for tool in toolbox.tools()] == ["search.find", "tide.at", "bad.one"]
        assert toolbox.call("search.find", {"query": "tide"}) == ToolAnswer("at six")
        found, refused = toolbox.call_all([("tide.at", {}), ("search.drop", {})])
        assert found == ToolAnswer(None, 6)
        assert isinstance(refused, Denied)
        assert refused.target == "search.drop"
        assert str(refused) == "this test may not call 'search.drop'"
        with pytest.raises(Error, match="no"):
            toolbox.call("bad.one")
    assert host.calls == [("search.find", {"query": "tide"}), ("tide.at", {}), ("bad.one", {})]


def test_more_calls_than_the_host_runs_at_once_are_sent_in_batches() -> None:
    batches: list[int] = []

    class Counting(FakeHost):
        def call_tools(
            self, requests: list[tuple[str, dict[str, Any]]]
        ) -> list[ToolAnswer | Error]:
            batches.append(len(requests))
            return super().call_tools(requests)

    with Counting().tool("tide.at", 6):
        assert len(toolbox.call_all([("tide.at", {})] * 130)) == 130
        assert toolbox.call_all([]) == []
    assert batches == [64, 64, 2]


def test_values_as_json_and_lines_of_a_file() -> None:
    @dataclass
    class Visit:
        place: str
        count: int = 0

    host = FakeHost().writable("/out").file("/in/a.json", '{"place": "Oban"}').kv()
    with host:
        assert kv.get_json("visit") is None
        kv.set_json("visit", Visit("Tobermory", 2))
        assert kv.get_json("visit") == {"place": "Tobermory", "count": 2}
        assert kv.get_json("visit", Visit) == Visit("Tobermory", 2)
        kv.set("visit", "{")
        with pytest.raises(Error, match="the value of visit"):
            kv.get_json("visit")
        assert files.read_json("/in/a.json", Visit) == Visit("Oban")
        files.write("/out/lines.txt", "one\r\ntwo\n")
        assert files.lines("/out/lines.txt") == ["one", "two"]
        with pytest.raises(Error, match=r"/out/lines\.txt: "):
            files.read_json("/out/lines.txt")
