import pytest
from conclave_sdk import InvalidArguments
from conclave_sdk.testing import run_tool

from app import count


def test_short_words_can_be_left_out():
    assert count("a fresh sandbox per call") == 5
    assert count("a fresh sandbox per call", shortest=2) == 4
    with pytest.raises(InvalidArguments, match="at least 1"):
        count("a", shortest=0)


def test_a_wrong_argument_is_named():
    with pytest.raises(InvalidArguments, match="text: expected a text, got 5"):
        run_tool(count, {"text": 5})
