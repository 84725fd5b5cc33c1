"""The three forms of docstrings."""

import pytest

from conclave_sdk.docstrings import parse

GOOGLE = """High water at a place. Use it
    when the user asks about tides.

    More for the reader of the code.

    Args:
        place (str): The harbour,
            such as Oban.
        days: How many: at most 7.

    Returns:
        The times.
    """

NUMPY = """High water at a place. Use it
    when the user asks about tides.

    Parameters
    ----------
    place : str
        The harbour,
        such as Oban.
    days : int
        How many: at most 7.

    Returns
    -------
    str
        The times.
    """

SPHINX = """High water at a place. Use it
    when the user asks about tides.

    :param place: The harbour,
        such as Oban.
    :param int days: How many: at most 7.
    :returns: The times.
    """


@pytest.mark.parametrize("text", [GOOGLE, NUMPY])
def test_the_first_paragraph_and_the_parameters_are_read(text: str) -> None:
    read = parse(text)
    assert read.description == "High water at a place. Use it when the user asks about tides."
    assert read.parameters == {
        "place": "The harbour, such as Oban.",
        "days": "How many: at most 7.",
    }


def test_sphinx_is_read_too() -> None:
    read = parse(SPHINX)
    assert read.description == "High water at a place. Use it when the user asks about tides."
    assert read.parameters["days"] == "How many: at most 7."


def test_an_absent_docstring_is_empty() -> None:
    assert parse(None).description == ""
