"""The export `judge`."""

from __future__ import annotations

import importlib
from typing import Any

from conclave_sdk._guest import entry
from conclave_sdk._guest.codec import decoder, encoder, wit
from conclave_sdk._guest.errors import ErrorForm
from conclave_sdk._guest.host import TaskState
from conclave_sdk.agents import View
from conclave_sdk.judge import Answer, Ending, TaskResult

_error = ErrorForm("judge", "JudgeError")
_kind: Any = entry.app.classes["judge"]
_state = TaskState()
_to_answer = decoder(Answer)
_to_ending = decoder(Ending)
_of_result = encoder(TaskResult | None)
_ruling = wit("judge", "Ruling")
_words = importlib.import_module("wit_world.imports.judge_feedback")


class Judge:
    def rule(self, answer: Any) -> Any:
        try:
            judge, read, view = _kind(), _to_answer(answer), View(_state)
            valid = judge.valid(read, view)
            # An answer that is not valid ends nothing.
            done = None if valid is False else judge.done(read, view)
            if valid is False or done is False:
                feedback = judge.feedback(read, view)
                if feedback is not None:
                    _words.explain(feedback)
            return _ruling(valid, done)
        except Exception as error:
            _error.raise_from(error)

    def conclude(self, ending: Any) -> Any:
        try:
            result = _kind().result(_to_ending(ending), View(_state))
            return _of_result(TaskResult(result) if isinstance(result, str) else result)
        except Exception as error:
            _error.raise_from(error)
