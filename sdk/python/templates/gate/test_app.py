from conclave_sdk.gate import GateInput, Point, allow, block
from conclave_sdk.testing import FakeHost

from app import Discreet


def test_a_word_of_the_list_blocks():
    with FakeHost().settings({"words": ["secret"]}):
        assert Discreet().check(GateInput(Point.DELEGATE, "a plan")) == allow()
        blocked = Discreet().check(GateInput(Point.DELEGATE, "a Secret plan"))
    assert blocked == block("it holds “secret”")
