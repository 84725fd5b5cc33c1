from conclave_sdk.testing import FakeHost

from app import Notebook, remember


def test_notes_with_all_words_are_found():
    with FakeHost().kv():
        remember("Skerryvore was lit in 1844.")
        remember("Bell Rock was lit in 1811.")
        assert Notebook().search("lit bell", 5) == ["Bell Rock was lit in 1811."]
        assert len(Notebook().search("lit", 1)) == 1
        assert Notebook().search("Oban", 5) == []
