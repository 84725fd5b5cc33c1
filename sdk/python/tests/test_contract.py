"""The component's side against the bindings that componentize-py makes of the contract."""

import ast
import dataclasses
import importlib
import inspect
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

from conclave_sdk import (
    Denied,
    InvalidArguments,
    Outcome,
    Role,
    ToolCall,
    ToolError,
    Turn,
    Unavailable,
    _guest,
    actions,
    call,
    channel,
    delegate,
    delivery,
    errors,
    model,
)
from conclave_sdk.actions import OnClose, Strategy
from conclave_sdk.app import KINDS, App
from conclave_sdk.testing import FakeHost
from conclave_sdk.tools import as_outcome
from conclave_sdk.types import Blob, Draft, Message
from tests.conftest import WIT

COMPONENTIZE = shutil.which("componentize-py", path=Path(sys.executable).parent)
pytestmark = pytest.mark.skipif(
    COMPONENTIZE is None, reason="componentize-py is not there: pip install componentize-py"
)


@pytest.fixture(scope="module")
def bindings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Make the bindings of the world `all` importable."""
    folder = tmp_path_factory.mktemp("bindings")
    command = [str(COMPONENTIZE), "-d", str(WIT), "-w", "all", "bindings", str(folder)]
    subprocess.run(command, check=True, capture_output=True)
    before = set(sys.modules)
    sys.path.insert(0, str(folder))
    yield folder
    sys.path.remove(str(folder))
    # Without the bindings, another test must not find what was built with them.
    for name in set(sys.modules) - before:
        if name.startswith(("wit_world", "componentize_py", "conclave_sdk._guest")):
            del sys.modules[name]
    for name in ("codec", "errors", "host"):
        vars(_guest).pop(name, None)


@pytest.fixture
def codec(bindings: Path) -> Any:
    return importlib.import_module("conclave_sdk._guest.codec")


def records_of(codec: Any) -> list[tuple[Any, Any]]:
    pairs = [(kind, codec.wit(*name)) for kind, name in codec._RECORDS.items()]
    for interface, _, cases in codec._VARIANTS.values():
        forms = [(kind, form) for kind, form in cases.values() if form not in ("", "=", "()")]
        pairs += [(kind, codec.wit(interface, form)) for kind, form in forms]
    return pairs


def test_every_record_has_the_fields_of_the_contract(codec: Any) -> None:
    pairs = records_of(codec)
    assert len(pairs) > 30
    for kind, record in pairs:
        renamed = codec._RENAMED.get(kind, {})
        names = {renamed.get(field.name, field.name) for field in dataclasses.fields(kind)}
        assert names == {field.name for field in dataclasses.fields(record)}, kind


def test_every_enum_has_the_members_of_the_contract(codec: Any) -> None:
    for kind, name in codec._ENUMS.items():
        assert [item.name for item in kind] == [item.name for item in codec.wit(*name)], kind


def test_every_variant_has_the_cases_of_the_contract(codec: Any) -> None:
    for interface, variant, cases in codec._VARIANTS.values():
        names = [kind.__name__ for kind in codec.wit(interface, variant).__args__]
        assert [f"{variant}_{name}" for name in cases] == names


def test_every_import_is_called(bindings: Path) -> None:
    """Each function and method of an import is an attribute that the host reads."""
    source = Path(inspect.getfile(importlib.import_module("conclave_sdk._guest.host")))
    trees = [ast.parse(file.read_text()) for file in (source, source.parent / "judge.py")]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    called = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    agents = (source.parents[1] / "agents.py").read_text()
    agents += (source.parents[1] / "delivery.py").read_text()
    for file in (bindings / "wit_world" / "imports").glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("__enter"):
                is_called = node.name in called or f'"{node.name}"' in agents
                assert is_called, f"{file.stem}.{node.name}"


SAMPLES: list[tuple[Any, Any]] = [
    (actions.Action, actions.Nothing()),
    (actions.Action, call("a.b", {"é": [1, None]}).to("user").action),
    (actions.Action, actions.Kill(-1)),
    (actions.Action, actions.Finish({"n": 1.5})),
    (actions.Action, actions.Custom("edit", {"path": "/a"})),
    (actions.Action, actions.ModifyTask("0", actions.PlanState.IN_PROGRESS)),
    (
        actions.Action,
        delegate(
            "writer",
            "Write.",
            context={"n": 1},
            structured=actions.StructuredResult({"type": "object"}, 2),
            deliver=Strategy("digest"),
            on_close=OnClose.FINISH_SILENTLY,
            turns=3,
        ).action,
    ),
    (actions.Observation, actions.Silence()),
    (actions.Observation, actions.CellResult("1", "2")),
    (actions.Observation, actions.Delegated("t", {"a": 1})),
    (actions.Observation, actions.ToolOutput("1", "a.b", "c", {"d": 1}, True)),
    (actions.Observation, actions.Recalled(["a"])),
    (delivery.Wake, delivery.SendFailed("busy")),
    (delivery.Decision, delivery.deliver(["a"], channel="phone", interrupt=True)),
    (delivery.Decision, delivery.wait(5)),
    (
        Message,
        Message(
            3,
            Role.USER,
            "you",
            "hello",
            tool_calls=[ToolCall("a.b", {"c": 1}, "1")],
            attachments=[Blob("00", "text/plain", 1)],
            extra={"x-a": [1]},
        ),
    ),
    (
        model.Request,
        model.Request(
            prompt=[model.System(), model.HistoryRange(1, 2), model.note("n")],
            tools=["a.b"],
            tool_format=model.ToolFormat.XML,
            tool_choice=model.Named("a.b"),
            output_schema={"type": "object"},
            options={"seed": 1},
        ),
    ),
    (Draft, Draft(Role.LLM, "x")),
    (Turn, call("a.b").because("why").with_extra("value", {"n": 1})),
    (Outcome, Outcome("a", {"b": 1}).then("done", {"content": 1})),
]


@pytest.mark.parametrize(("hint", "value"), SAMPLES)
def test_a_value_survives_both_conversions(codec: Any, hint: Any, value: Any) -> None:
    encoded = codec.encoder(hint)(value)
    assert type(encoded).__module__.startswith("wit_world")
    assert codec.decoder(hint)(encoded) == value


def test_a_type_that_is_in_no_table_is_a_mistake_of_the_build(codec: Any) -> None:
    with pytest.raises(TypeError, match="the contract has no type for"):
        codec.encoder(list[dict[str, Enum]])


def test_every_export_is_built(codec: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each module converts what it needs when it is imported, so a missing table shows."""
    entry = importlib.import_module("conclave_sdk._guest.entry")
    classes = {kind: type(base.__name__, (base,), {}) for kind, base in KINDS.items()}
    monkeypatch.setattr(entry, "app", App(classes=classes))
    for name in ["tools", *KINDS]:
        module = importlib.import_module(f"conclave_sdk._guest.{name.replace('-', '_')}")
        exported = "".join(word.capitalize() for word in name.split("-"))
        assert callable(getattr(module, exported))


def test_another_type_than_expected_is_named(codec: Any) -> None:
    with pytest.raises(TypeError, match="expected a Decision, got 'now'"):
        codec.encoder(list[delivery.Decision])(["now"])


HALF: str = json.loads(r'"\ud83d"')


def test_the_answers_of_a_channel_have_the_form_of_the_contract(
    bindings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = importlib.import_module("conclave_sdk._guest.entry")
    monkeypatch.setattr(entry, "app", App(classes={"channel": KINDS["channel"]}))
    guest = importlib.import_module("conclave_sdk._guest.channel")
    form = importlib.import_module("wit_world.exports.channel")
    assert guest._delivery(channel.Delivered("17")) == form.Delivery_Delivered("17")
    assert guest._delivery(channel.Retry("busy", 7)).value == form.RetryHint(7, "busy")
    assert guest._delivery(channel.Unknown("lost")) == form.Delivery_Unknown("lost")
    message = channel.ReceivedMessage("m1", "ada", "C1", "hello")
    read = guest._reception(channel.Messages([message]))
    assert read.value == [form.ReceivedMessage("m1", "ada", "C1", "hello")]
    answer = guest._reception(channel.Answer("{}", is_json=True)).value
    assert answer == form.HttpAnswer(form.AnswerType.JSON, "{}")
    with pytest.raises(TypeError):
        guest._delivery(None)
    proofs = importlib.import_module("wit_world.imports.channel_secret")
    valid = [proofs.Proof_HmacSha256(proofs.SignedData(b"a", b"b")), proofs.Proof_Token("t")]
    monkeypatch.setattr(proofs, "verify", lambda proof: proof in valid)
    host = importlib.import_module("conclave_sdk._guest.host").ComponentHost()
    assert host.verify(b"a", b"b")
    assert host.verify("t", None)
    assert not host.verify("u", None)


def test_a_surrogate_leaves_the_plugin_as_a_replacement_character(
    codec: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = importlib.import_module("conclave_sdk._guest.entry")
    monkeypatch.setattr(entry, "app", App())
    encoded = importlib.import_module("conclave_sdk._guest.tools")._encoded
    outcome = encoded(as_outcome({HALF: [f"a{HALF}", "😀"]}).then("done", {"content": HALF}))
    assert outcome.value == outcome.content == '{"\ufffd": ["a\ufffd", "😀"]}'
    assert outcome.follow_up_calls[0].arguments == '{"content": "\ufffd"}'
    assert encoded(as_outcome(f"a{HALF}")).content == "a\ufffd"
    turn = codec.encoder(Turn)(call("a.b").because(HALF).with_extra(HALF, HALF))
    assert (turn.thought, turn.extra[0].key, turn.extra[0].value) == (
        "\ufffd",
        "\ufffd",
        '"\ufffd"',
    )
    assert codec.encoder(list[str])([HALF]) == ["\ufffd"]


def test_a_surrogate_in_an_error_or_an_import_is_replaced(
    codec: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    forms = importlib.import_module("conclave_sdk._guest.errors")
    form = forms.ErrorForm("tools", "ToolError")
    for error in (ToolError(HALF), InvalidArguments(HALF)):
        assert form.of(error).value == "\ufffd"
    with FakeHost():
        assert form.of(ValueError(HALF)).value == "ValueError: \ufffd"
    assert form.of(Denied("files", HALF, HALF)).value.target == "\ufffd"
    assert forms.calling("kv", "a", lambda key, value: (key, value), HALF, b"1") == ("\ufffd", b"1")
    host = importlib.import_module("conclave_sdk._guest.host")
    lines: list[str] = []
    monkeypatch.setattr(host._log.functions, "log", lambda _, message: lines.append(message))
    host.ComponentHost().log("info", HALF)
    assert lines == ["\ufffd"]


def test_an_exception_without_a_text_is_an_error_of_the_contract(codec: Any) -> None:
    class Unreadable(Exception):
        def __str__(self) -> str:
            raise ValueError("inside")

    form = importlib.import_module("conclave_sdk._guest.errors").ErrorForm("tools", "ToolError")
    with FakeHost() as host:
        assert form.of(Unreadable()).value == "Unreadable: its text cannot be read"
    assert "Unreadable" in host.logged[-1]


class Case(Enum):
    INVALID = InvalidArguments("place: is missing")
    DENIED = Denied("files", "/a", "no")
    OPENED = PermissionError(1, "Operation not permitted", "/a/b")
    DOWN = Unavailable(500)
    EXPECTED = ToolError("no such harbour")


@pytest.mark.parametrize("case", Case)
def test_an_error_of_the_contract_is_no_traceback(codec: Any, case: Case) -> None:
    forms = importlib.import_module("conclave_sdk._guest.errors")
    with FakeHost() as host:
        error = forms.ErrorForm("tools", "ToolError").of(case.value)
    assert host.logged == []
    names = {
        Case.INVALID: "ToolError_InvalidArguments",
        Case.DENIED: "ToolError_Denied",
        Case.OPENED: "ToolError_Denied",
        Case.DOWN: "ToolError_Unavailable",
        Case.EXPECTED: "ToolError_Other",
    }
    assert type(error).__name__ == names[case]
    if case is Case.OPENED:
        assert (error.value.capability, error.value.target) == ("files", "/a/b")


def test_a_file_of_open_outside_of_every_folder_is_a_denial(codec: Any) -> None:
    forms = importlib.import_module("conclave_sdk._guest.errors")
    form = forms.ErrorForm("tools", "ToolError")
    with FakeHost().file("/notes/a.md", "one") as host:
        outside = form.of(FileNotFoundError(44, "No such file or directory", "/nowhere/at/all"))
        # The folder exists, so the file itself is absent.
        inside = form.of(FileNotFoundError(44, "No such file or directory", "/tmp/no-such-file"))
    assert (type(outside).__name__, outside.value.target) == ("ToolError_Denied", "/nowhere/at/all")
    assert type(inside).__name__ == "ToolError_Other"
    assert "FileNotFoundError" in host.logged[-1]


def test_a_mistake_is_one_line_for_the_model_and_a_traceback_for_the_operator(codec: Any) -> None:
    forms = importlib.import_module("conclave_sdk._guest.errors")
    form = forms.ErrorForm("gate", "GateError")

    def plugin() -> None:
        raise KeyError("nothing\nhere")

    try:
        plugin()
    except KeyError as mistake:
        with FakeHost() as host:
            error = form.of(mistake)
    assert error.value == r"KeyError: 'nothing\nhere'"
    assert host.logged[0] == "error: Traceback (most recent call last):"
    assert host.logged[-1] == r"error: KeyError: 'nothing\nhere'"
    assert any("test_contract.py" in line for line in host.logged)
    # Kinds without a case for it get the text alone.
    assert form.of(InvalidArguments("x")).value == "x"
    assert type(form.of(InvalidArguments("x"))).__name__ == "GateError_Other"


def test_a_traceback_has_the_frames_of_the_author_alone(codec: Any) -> None:
    forms = importlib.import_module("conclave_sdk._guest.errors")
    form = forms.ErrorForm("gate", "GateError")

    def refuses() -> None:
        raise RuntimeError("from the host")

    def plugin() -> None:
        try:
            forms.calling("files", "/a", refuses)
        except RuntimeError as cause:
            raise KeyError("nothing") from cause

    try:
        forms.calling("files", "/a", plugin)
    except KeyError as mistake:
        with FakeHost() as host:
            form.of(mistake)
    frames = [line for line in host.logged if ", line " in line]
    assert len(frames) == 4, frames
    assert all("test_contract.py" in frame for frame in frames), frames
    assert all(line.startswith("error:   File ") for line in frames), frames

    # A mistake of the SDK itself has all of its frames.
    with FakeHost() as host:
        form.of(_of_the_sdk())
    assert any("conclave_sdk" in line for line in host.logged), host.logged


def _of_the_sdk() -> Exception:
    code = compile("raise KeyError('x')", "/app/conclave_sdk/tools.py", "exec")
    try:
        exec(code)
    except KeyError as error:
        trace = error.__traceback__
        return error.with_traceback(trace.tb_next if trace else None)
    raise AssertionError("it raises")


def test_an_error_of_an_import_is_an_exception(codec: Any) -> None:
    forms = importlib.import_module("conclave_sdk._guest.errors")
    types = importlib.import_module("componentize_py_types")
    denial = codec.wit("types", "Denial")("files", "/a", "no")
    for interface, name, arguments, expected in [
        ("files", "FileError_NotFound", (), FileNotFoundError),
        ("files", "FileError_NotAFile", (), IsADirectoryError),
        ("files", "FileError_Denied", (denial,), Denied),
        ("files", "FileError_QuotaExceeded", (5,), errors.QuotaExceeded),
        ("files", "FileError_Other", ("x",), errors.Error),
        ("scratch", "ScratchError_TooLarge", (5,), errors.QuotaExceeded),
        ("fetch", "FetchError_TimedOut", (), TimeoutError),
        ("fetch", "FetchError_Unavailable", (5,), Unavailable),
        ("fetch", "FetchError_InvalidRequest", ("x",), errors.InvalidRequest),
        ("fetch", "FetchError_LimitExceeded", ("body: 5",), errors.QuotaExceeded),
        ("model", "ModelError_UnknownModel", ("x",), errors.UnknownModel),
        ("model", "ModelError_BudgetExhausted", ("x",), errors.BudgetExhausted),
        ("model", "ModelError_ContextTooLong", (5,), errors.ContextTooLong),
        ("blobs", "BlobError_Unknown", (), errors.UnknownBlob),
    ]:
        error = types.Err(codec.wit(interface, name)(*arguments))

        def fails(error: Exception = error) -> None:
            raise error

        with pytest.raises(expected):
            forms.calling(interface, "/a", fails)
    with pytest.raises(Denied):
        forms.calling("secrets", "a", lambda: (_ for _ in ()).throw(types.Err(denial)))
