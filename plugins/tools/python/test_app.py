import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from conclave_sdk import Error
from conclave_sdk.testing import FakeHost, run_tool

from app import run_ipython


@pytest.fixture(autouse=True)
def host() -> Iterator[FakeHost]:
    path = list(sys.path)
    with FakeHost() as host:
        yield host
    assert sys.path == path


def cell(code: str, **more: str) -> str:
    content = run_tool(run_ipython, {"code": code, **more}).content
    assert content is not None
    return content


def test_what_is_printed_comes_before_the_value_of_the_last_expression() -> None:
    assert cell("import sys\nprint('a')\nprint('b', file=sys.stderr)\n1 + 1") == "a\nb\n2"
    assert cell("1 + 1;") == ""
    assert cell("x = 1") == ""
    assert cell("None") == ""
    assert cell("") == ""


def test_variables_functions_classes_and_imports_live_on() -> None:
    cell("import math as m\nfrom json import dumps\nscale = 2\nrows = [1]\nsame = rows")
    cell("def area(r):\n    return scale * m.floor(r)")
    cell(
        "class Point:\n    def __init__(self, a):\n        self.a = a\np = Point(3)\nPoint.seen = 1"
    )
    assert cell(
        "rows.append(2); same, area(2.5), p.a, isinstance(p, Point), dumps(Point.seen)"
    ) == ("([1, 2], 4, 3, True, '1')")
    cell("scale = 10")
    assert cell("area(1)") == "10"
    cell("del area")
    assert "NameError" in cell("area")


def test_the_closed_file_of_a_with_is_dropped_without_a_word(tmp_path: Path) -> None:
    path = str(tmp_path / "a.txt")
    assert cell(f"with open({path!r}, 'w') as f:\n    written = f.write('a')") == ""
    assert cell("written, 'f' in dir()") == "(1, False)"
    assert cell(f"f = open({path!r}, 'w')").startswith("[not kept for the next cell: `f`")


def test_a_class_keeps_its_bases_and_its_members() -> None:
    cell(
        "import enum, typing\n"
        "class E(enum.Enum):\n    A = 1\n"
        "class T(typing.NamedTuple):\n    q: int\n"
        "class Base:\n    def hi(self): return 'base'\n"
        "class Sub(Base):\n    def hi(self): return super().hi() + '!'\n"
        "e, t, s = E.A, T(3), Sub()"
    )
    assert cell("e is E.A, t, s.hi()") == "(True, T(q=3), 'base!')"


def test_closures_share_their_variable_and_may_call_themselves() -> None:
    cell(
        "def counter():\n"
        "    n = 0\n"
        "    def inc():\n        nonlocal n\n        n += 1\n"
        "    def get(): return n\n"
        "    return inc, get\n"
        "inc, get = counter()\n"
        "def outer():\n"
        "    def down(n): return n if n == 0 else down(n - 1)\n"
        "    return down\n"
        "down = outer()"
    )
    cell("inc(); inc()")
    assert cell("get(), down(3)") == "(2, 0)"


def test_a_variable_that_cannot_be_kept_is_named_and_takes_no_other_with_it() -> None:
    shown = cell("before = 1\nf = (i for i in ())\nafter = [2]")
    assert shown.startswith("[not kept for the next cell: `f`: cannot pickle 'generator' object")
    assert cell("before, after, 'f' in dir()") == "(1, [2], False)"
    assert "`g`: it is the namespace itself" in cell("g = globals()")


def test_a_variable_that_cannot_be_restored_is_named_and_takes_no_other_with_it() -> None:
    cell(
        "class Odd:\n    def __setstate__(self, state): raise ValueError('no')\n"
        "odd = Odd(); odd.a = ['x' * 100_000]\nafter = odd.a"
    )
    shown = cell("len(after[0]), 'odd' in dir()")
    assert shown == "(100000, False)\n[not kept for the next cell: `odd`: no]"


def test_the_largest_variables_are_left_out_of_a_state_that_is_too_large(host: FakeHost) -> None:
    host.settings({"state_bytes": 40_000})
    shown = cell("import os\nsmall = os.urandom(1000)\nlarge = os.urandom(80_000)")
    assert "`large`: it has 800" in shown
    assert "small" not in shown
    assert cell("len(small), 'large' in dir()") == "(1000, False)"
    assert "`huge`: it is too large" in cell("huge = bytes(30_000_000)")
    assert cell("len(small)") == "1000"


def test_a_state_is_compressed_before_something_is_left_out(host: FakeHost) -> None:
    host.settings({"state_bytes": 40_000})
    assert cell("text = 'abc' * 100_000") == ""
    assert cell("len(text)") == "300000"


def test_a_traceback_shows_the_lines_of_each_cell() -> None:
    cell("def fails(n):\n    return 1 / n")
    assert cell("x = 1\nfails(0)") == "\n".join(
        [
            "-" * 75,
            "ZeroDivisionError                         Traceback (most recent call last)",
            "Cell In[2], line 2",
            "      1 x = 1",
            "----> 2 fails(0)",
            "",
            "Cell In[1], line 2, in fails(n)",
            "      1 def fails(n):",
            "----> 2     return 1 / n",
            "",
            "ZeroDivisionError: division by zero",
        ]
    )
    # What ran before the exception is kept.
    assert cell("x") == "1"


def test_a_traceback_has_the_exceptions_before_it_and_no_endless_frames() -> None:
    shown = cell("try:\n    {}['k']\nexcept KeyError as e:\n    raise ValueError('bad') from e")
    assert shown.index("KeyError: 'k'") < shown.index("direct cause")
    assert shown.endswith("ValueError: bad")
    shown = cell("try:\n    1 / 0\nexcept ZeroDivisionError:\n    unknown")
    assert "During handling of the above exception" in shown
    shown = cell("def again(): again()\nagain()")
    assert "frames left out …]" in shown
    assert shown.endswith("RecursionError: maximum recursion depth exceeded")


def test_wrong_syntax_is_shown_with_its_place() -> None:
    assert "Cell In[1], line 2\n    y = (\n        ^\nSyntaxError" in cell("x = 1\ny = (")
    assert "commands of IPython" in cell("!ls")
    assert "commands of IPython" in cell("%pip install numpy")
    assert "commands of IPython" not in cell("1 +")


def test_a_cell_cannot_end_the_program_or_wait_for_input() -> None:
    assert cell("raise SystemExit(3)").endswith("SystemExit: 3")
    assert "EOFError" in cell("input()")
    assert cell("import sys\nsys.stdout.close()\nprint('on')") == "on"


def test_the_middle_of_a_long_output_is_left_out() -> None:
    shown = cell("for i in range(100_000): print(i)\n'v' * 100_000")
    assert shown.startswith("0\n1\n")
    assert "\n99999\n'vvv" in shown
    assert "bytes left out" in shown
    assert "characters left out" in shown
    assert len(shown) < 160_000


def test_what_does_not_work_is_refused_in_a_sentence() -> None:
    assert "nothing can be installed" in cell("import conclave_absent_package")
    shown = cell("import xmlrpc.absent")
    assert shown.endswith(
        "No module named 'xmlrpc.absent': a cell has no network; an agent reads "
        "pages with the action `browse`"
    )


def test_code_for_the_beginning_runs_once() -> None:
    assert cell("n", kernel_init_code="n = 1") == "1"
    cell("n += 1", kernel_init_code="n = 1")
    assert cell("n", kernel_init_code="n = 1") == "2"


def test_a_refused_file_is_named(host: FakeHost) -> None:
    assert "\nfiles was refused: /none/a.txt: " in cell("open('/none/a.txt')")
    host.file("/none/b.txt", "")
    assert "refused" not in cell("open('/none/a.txt')")


def test_a_reset_forgets_the_session_without_restoring_it(tmp_path: Path) -> None:
    restored = tmp_path / "restored"
    # One that ends the process, as `os._exit` does, would end every later cell.
    cell(
        "from pathlib import Path\nclass Ends:\n"
        f"    def __reduce__(self): return Path.touch, (Path({str(restored)!r}),)\n"
        "ends = Ends()"
    )
    cell("x = 1")
    assert restored.exists()
    restored.unlink()
    assert cell("%reset") == "The next cell begins a new session."
    assert not restored.exists()
    assert cell("'x' in dir(), 'ends' in dir(), n", kernel_init_code="n = 1") == (
        "(False, False, 1)"
    )
    assert "SyntaxError" in cell("%reset all")


def test_a_state_of_another_version_is_named(
    host: FakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    import state

    cell("x = 1")
    monkeypatch.setattr(state, "_FORMAT", (0, 0))
    assert cell("'x' in dir()").startswith("False\n[not kept for the next cell: all variables")
    host.set_scratch(b"junk")
    assert "all variables: the state could not be read" in cell("1")


def test_the_state_of_many_cells_stays_as_small_as_its_variables(host: FakeHost) -> None:
    cell("def step(n): return n + 1\nn = 0")
    cell("n = step(n)")
    early = len(host.scratch())
    for _ in range(100):
        cell("n = step(n)\nunused = 'a cell with a text of its own'")
    assert cell("n") == "101"
    assert len(host.scratch()) < early + 60


def test_a_cell_leaves_nothing_in_the_interpreter() -> None:
    main, folder = sys.modules["__main__"], Path.cwd()
    cell("import sys, os\nsys.stdout = None\nos.chdir('/')\nsys.path.append('/x')")
    assert sys.modules["__main__"] is main
    assert sys.stdout is not None
    assert Path.cwd() == folder
    assert "/x" not in sys.path
    assert os.getcwd() == str(folder)


def test_tools_are_functions_with_the_arguments_of_their_schema(host: FakeHost) -> None:
    schema = {
        "type": "object",
        "properties": {
            "from": {"type": "string"},
            "query": {"type": "string"},
            "limit": {"type": ["integer", "null"], "default": 3},
            "kind": {"enum": ["a", "b"]},
        },
        "required": ["query"],
    }
    host.tool("search.find", "at six", schema).tool("tide.at", {"hour": 6}).tool("plain", 1)
    listed = (
        "search.find(query: str, from_: str = ..., limit: int | None = 3,"
        " kind: Literal['a', 'b'] = ...) -> str"
    )
    assert cell("search").startswith(listed)
    assert cell("tools('find')").startswith(listed)
    assert cell("search.find('tide', from_='a')") == "'at six'"
    assert cell("tide.at()['hour'] + plain()") == "7"
    assert host.calls[0] == ("search.find", {"query": "tide", "from": "a"})
    assert "TypeError: missing a required argument: 'query'" in cell("search.find()")
    assert "TypeError: got an unexpected keyword argument 'q'" in cell("search.find('a', q=1)")


def test_a_plugin_hides_no_name_of_the_language(host: FakeHost) -> None:
    host.tool("print.all", "one").tool("tools.list", "two").tool("len", "three")
    assert cell("print(print_.all(), tools_.list(), len_(), len('ab'))") == "one two three 2"
    assert cell("tools('all')").startswith("print_.all(")


def test_calls_are_gathered_and_a_failure_is_raised_when_all_have_ended(host: FakeHost) -> None:
    host.tool("a.b", "one").tool("c.d", Error("it is broken"))
    assert cell("gather(a.b.later(), a.b.later())") == "['one', 'one']"
    assert cell("gather(a.b.later(), c.d.later())").endswith("Error: it is broken")
    assert len(host.calls) == 4
    mixed = cell("gather(c.d.later(), a.b.later(), return_exceptions=True)")
    assert mixed == "[Error('it is broken'), 'one']"
    assert "gather() takes calls such as search.find.later" in cell("gather(a.b())")
    assert cell("len(gather(*[a.b.later() for _ in range(130)]))") == "130"


def test_functions_are_those_that_are_granted_now(host: FakeHost) -> None:
    host.tool("a.b", "one")
    cell("mine, plugin = a.b, a\ndef ask():\n    return mine()\ntools = 'my own'")
    assert cell("ask(), plugin.b(), tools") == "('one', 'one', 'my own')"
    assert "not kept" not in cell("del tools")
    assert cell("tools()").startswith("a.b")
    with FakeHost().tool("e.f", "two") as other:
        other.set_scratch(host.scratch())
        content = cell("e.f()")
    assert content.startswith("'two'\n[not kept for the next cell: `mine`: ")
    assert "the tool a.b is not granted any more" in content


def test_without_a_grant_there_is_no_function(host: FakeHost) -> None:
    assert cell("tools()").startswith("No tool: this plugin and the agent")
    assert host.calls == []


def test_a_tool_of_a_plugin_that_is_not_granted_is_a_denial(host: FakeHost) -> None:
    host.tool("stock-list.items", 1)
    assert "Denied: " in cell("stock_list.price('lamp')")
    assert "stock-list.price" in cell("stock_list.price('lamp')")
    caught = (
        "try:\n    stock_list.price()\nexcept Denied as error:\n    print(isinstance(error, Error))"
    )
    assert cell(caught) == "True"
    assert "AttributeError" in cell("stock_list._secret")
    assert cell("import copy; copy.copy(stock_list).items()") == "1"


def test_tools_lists_names_that_a_cell_can_use(host: FakeHost) -> None:
    host.tool("stock-list.items", 1)
    listed = cell("tools()").partition("\n")[0]
    assert listed == "stock_list.items() -> str"
    assert cell(listed.partition(" ")[0]) == "1"
    assert cell("tools('stock-list')").startswith("stock_list.items")
