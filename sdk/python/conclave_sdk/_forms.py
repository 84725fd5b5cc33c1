"""The fixed JSON form of actions and observations: the kinds, their eras and their fields.

A field has a type, a default, and its presence in 2024-07 and in 2025-11: `R` is required, `O`
optional, `-` absent. The order of the kinds and of the fields is the order of the messages about
them.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from enum import Enum
from typing import Any


class Era(Enum):
    """A form of the actions and observations of a log.

    2024-07 has background commands, `kill` and the plan; 2025-11 has risks, condensation and tools
    of MCP servers.
    """

    V2024 = "2024-07"
    V2025 = "2025-11"


@dataclass(frozen=True)
class Kind:
    """A kind of action or observation. `eras` is `BOTH`, `OLD`, `NEW`, or `OURS` for neither."""

    eras: str
    fields: dict[str, tuple[str, Any, str]]

    def is_in(self, era: Era) -> bool:
        """Return whether the era has the kind."""
        return self.eras == "BOTH" or self.eras == ("OLD" if era is Era.V2024 else "NEW")

    def names_in(self, era: Era) -> list[str]:
        """Return the fields that are written in an era. An era without the kind has all."""
        if not self.is_in(era):
            return list(self.fields)
        at = 0 if era is Era.V2024 else 1
        return [name for name, (_, _, presence) in self.fields.items() if presence[at] != "-"]

    def required(self) -> list[str]:
        """Return the fields that every era with the kind requires."""
        wanted = {"BOTH": (0, 1), "OLD": (0,)}.get(self.eras, (1,))
        return [
            name
            for name, (_, _, presence) in self.fields.items()
            if all(presence[at] == "R" for at in wanted)
        ]

    def defaults(self) -> dict[str, Any]:
        """Return all fields with their defaults."""
        return {name: copy.deepcopy(default) for name, (_, default, _) in self.fields.items()}


UNKNOWN_COMMAND: dict[str, Any] = {
    "exit_code": -1,
    "pid": -1,
    "username": None,
    "hostname": None,
    "working_dir": None,
    "py_interpreter_path": None,
    "prefix": "",
    "suffix": "",
}
"""The metadata of a command of which nothing is known."""

ACTIONS = {
    "null": Kind("BOTH", {}),
    "run": Kind(
        "BOTH",
        {
            "command": ("text", "", "RR"),
            "background": ("flag", False, "O-"),
            "is_input": ("flag", False, "-O"),
            "thought": ("text", "", "OO"),
            "blocking": ("flag", False, "-O"),
            "is_static": ("flag", False, "-O"),
            "cwd": ("?text", None, "-O"),
            "hidden": ("flag", False, "-O"),
            "confirmation_state": ("confirmation", "confirmed", "-O"),
            "security_risk": ("risk", -1, "-O"),
        },
    ),
    "kill": Kind(
        "OLD",
        {
            "command_id": ("id", -1, "R-"),
            "thought": ("text", "", "O-"),
        },
    ),
    "run_ipython": Kind(
        "BOTH",
        {
            "code": ("text", "", "RR"),
            "thought": ("text", "", "OO"),
            "include_extra": ("flag", True, "-O"),
            "confirmation_state": ("confirmation", "confirmed", "-O"),
            "security_risk": ("risk", -1, "-O"),
            "kernel_init_code": ("text", "", "OO"),
        },
    ),
    "browse": Kind(
        "BOTH",
        {
            "url": ("text", "", "RR"),
            "thought": ("text", "", "OO"),
            "security_risk": ("risk", -1, "-O"),
            "return_axtree": ("flag", False, "-O"),
        },
    ),
    "browse_interactive": Kind(
        "BOTH",
        {
            "browser_actions": ("text", "", "RR"),
            "thought": ("text", "", "OO"),
            "browsergym_send_msg_to_user": ("text", "", "OO"),
            "security_risk": ("risk", -1, "-O"),
            "return_axtree": ("flag", False, "-O"),
        },
    ),
    "read": Kind(
        "BOTH",
        {
            "path": ("text", "", "RR"),
            "start": ("whole", 0, "OO"),
            "end": ("whole", -1, "OO"),
            "thought": ("text", "", "OO"),
            "security_risk": ("risk", -1, "-O"),
            "impl_source": ("reader", "default", "-O"),
            "view_range": ("?wholes", None, "-O"),
        },
    ),
    "write": Kind(
        "BOTH",
        {
            "path": ("text", "", "RR"),
            "content": ("text", "", "RR"),
            "start": ("whole", 0, "OO"),
            "end": ("whole", -1, "OO"),
            "thought": ("text", "", "OO"),
            "security_risk": ("risk", -1, "-O"),
        },
    ),
    "edit": Kind(
        "NEW",
        {
            "path": ("text", "", "-R"),
            "command": ("?text", "", "-O"),
            "file_text": ("?text", None, "-O"),
            "old_str": ("?text", None, "-O"),
            "new_str": ("?text", None, "-O"),
            "insert_line": ("?whole", None, "-O"),
            "content": ("text", "", "-O"),
            "start": ("whole", 1, "-O"),
            "end": ("whole", -1, "-O"),
            "thought": ("text", "", "-O"),
            "security_risk": ("risk", -1, "-O"),
            "impl_source": ("editor", "oh_aci", "-O"),
        },
    ),
    "recall": Kind(
        "BOTH",
        {
            "recall_type": ("?recall", None, "-R"),
            "query": ("text", "", "RO"),
            "thought": ("text", "", "OO"),
        },
    ),
    "add_task": Kind(
        "OLD",
        {
            "parent": ("text", "", "R-"),
            "goal": ("text", "", "R-"),
            "subtasks": ("list", [], "O-"),
            "thought": ("text", "", "O-"),
        },
    ),
    "modify_task": Kind(
        "OLD",
        {
            "task_id": ("id", "", "R-"),
            "state": ("text", "", "R-"),
            "thought": ("text", "", "O-"),
        },
    ),
    "think": Kind(
        "NEW",
        {
            "thought": ("text", "", "-O"),
        },
    ),
    "talk": Kind(
        "OURS",
        {
            "content": ("text", "", "-R"),
        },
    ),
    "finish": Kind(
        "BOTH",
        {
            "final_thought": ("text", "", "-O"),
            "outputs": ("object", {}, "OO"),
            "thought": ("text", "", "OO"),
        },
    ),
    "reject": Kind(
        "BOTH",
        {
            "outputs": ("object", {}, "OO"),
            "thought": ("text", "", "OO"),
        },
    ),
    "delegate": Kind(
        "BOTH",
        {
            "agent": ("text", "", "RR"),
            "inputs": ("object", {}, "RR"),
            "thought": ("text", "", "OO"),
        },
    ),
    "message": Kind(
        "BOTH",
        {
            "content": ("text", "", "RR"),
            "file_urls": ("?texts", None, "-O"),
            "image_urls": ("?texts", None, "-O"),
            "wait_for_response": ("flag", False, "OO"),
            "security_risk": ("risk", -1, "-O"),
        },
    ),
    "change_agent_state": Kind(
        "BOTH",
        {
            "agent_state": ("text", "", "RR"),
            "thought": ("text", "", "OO"),
        },
    ),
    "system": Kind(
        "NEW",
        {
            "content": ("text", "", "-R"),
            "tools": ("?list", None, "-O"),
            "openhands_version": ("?text", None, "-O"),
            "agent_class": ("?text", None, "-O"),
        },
    ),
    "condensation": Kind(
        "NEW",
        {
            "forgotten_event_ids": ("?wholes", None, "-O"),
            "forgotten_events_start_id": ("?whole", None, "-O"),
            "forgotten_events_end_id": ("?whole", None, "-O"),
            "summary": ("?text", None, "-O"),
            "summary_offset": ("?whole", None, "-O"),
        },
    ),
    "condensation_request": Kind("NEW", {}),
    "call_tool_mcp": Kind(
        "NEW",
        {
            "name": ("text", "", "-R"),
            "arguments": ("object", {}, "-O"),
            "thought": ("text", "", "-O"),
            "security_risk": ("risk", -1, "-O"),
        },
    ),
    "task_tracking": Kind(
        "NEW",
        {
            "command": ("text", "view", "-O"),
            "task_list": ("list", [], "-O"),
            "thought": ("text", "", "-O"),
        },
    ),
    "loop_recovery": Kind(
        "NEW",
        {
            "option": ("whole", 1, "-O"),
        },
    ),
    "delegate_task": Kind(
        "OURS",
        {
            "agent": ("text", "", "-R"),
            "task": ("text", "", "-R"),
            "context": ("object", {}, "-O"),
            "share_channels": ("texts", [], "-O"),
            "thought": ("text", "", "-O"),
        },
    ),
    "delegate_all": Kind(
        "OURS",
        {
            "delegates": ("delegates", [], "-R"),
            "thought": ("text", "", "-O"),
        },
    ),
}

OBSERVATIONS = {
    "null": Kind(
        "BOTH",
        {
            "content": ("text", "", "OO"),
        },
    ),
    "run": Kind(
        "BOTH",
        {
            "content": ("text", "", "OO"),
            "command": ("text", "", "RR"),
            "metadata": ("metadata", dict(UNKNOWN_COMMAND), "-O"),
            "hidden": ("flag", False, "-O"),
        },
    ),
    "run_ipython": Kind(
        "BOTH",
        {
            "content": ("text", "", "OO"),
            "code": ("text", "", "RR"),
            "image_urls": ("?texts", None, "-O"),
        },
    ),
    "browse": Kind(
        "BOTH",
        {
            "content": ("text", "", "OO"),
            "url": ("text", "", "RR"),
            "trigger_by_action": ("text", "", "-R"),
            "screenshot": ("text", "", "RO"),
            "screenshot_path": ("?text", None, "-O"),
            "set_of_marks": ("text", "", "-O"),
            "status_code": ("whole", 200, "O-"),
            "error": ("flag", False, "OO"),
            "goal_image_urls": ("texts", [], "-O"),
            "open_pages_urls": ("texts", [], "OO"),
            "active_page_index": ("whole", -1, "OO"),
            "dom_object": ("object", {}, "OO"),
            "axtree_object": ("object", {}, "OO"),
            "extra_element_properties": ("object", {}, "OO"),
            "last_browser_action": ("text", "", "OO"),
            "last_browser_action_error": ("text", "", "OO"),
            "focused_element_bid": ("text", "", "OO"),
            "filter_visible_only": ("flag", False, "-O"),
        },
    ),
    "read": Kind(
        "BOTH",
        {
            "content": ("text", "", "OO"),
            "path": ("text", "", "RR"),
            "impl_source": ("reader", "default", "-O"),
        },
    ),
    "write": Kind(
        "BOTH",
        {
            "content": ("text", "", "OO"),
            "path": ("text", "", "RR"),
        },
    ),
    "edit": Kind(
        "NEW",
        {
            "content": ("text", "", "-O"),
            "path": ("text", "", "-O"),
            "prev_exist": ("flag", False, "-O"),
            "old_content": ("?text", None, "-O"),
            "new_content": ("?text", None, "-O"),
            "impl_source": ("editor", "llm_based_edit", "-O"),
            "diff": ("?text", None, "-O"),
            "_diff_cache": ("?text", None, "-O"),
        },
    ),
    "recall": Kind(
        "BOTH",
        {
            "content": ("text", "", "OO"),
            "memories": ("texts", [], "R-"),
            "role": ("text", "assistant", "O-"),
            "recall_type": ("?recall", None, "-R"),
            "repo_name": ("text", "", "-O"),
            "repo_directory": ("text", "", "-O"),
            "repo_branch": ("text", "", "-O"),
            "repo_instructions": ("text", "", "-O"),
            "runtime_hosts": ("wholes by name", {}, "-O"),
            "additional_agent_instructions": ("text", "", "-O"),
            "date": ("text", "", "-O"),
            "custom_secrets_descriptions": ("texts by name", {}, "-O"),
            "conversation_instructions": ("text", "", "-O"),
            "working_dir": ("text", "", "-O"),
            "microagent_knowledge": ("knowledge", [], "-O"),
        },
    ),
    "delegate": Kind(
        "BOTH",
        {
            "content": ("text", "", "OO"),
            "outputs": ("object", {}, "RR"),
        },
    ),
    "success": Kind(
        "BOTH",
        {
            "content": ("text", "", "OO"),
        },
    ),
    "error": Kind(
        "BOTH",
        {
            "content": ("text", "", "OO"),
            "error_id": ("text", "", "-O"),
        },
    ),
    "agent_state_changed": Kind(
        "BOTH",
        {
            "content": ("text", "", "OO"),
            "agent_state": ("text", "", "RR"),
            "reason": ("text", "", "-O"),
        },
    ),
    "user_rejected": Kind(
        "NEW",
        {
            "content": ("text", "", "-O"),
        },
    ),
    "condense": Kind(
        "NEW",
        {
            "content": ("text", "", "-O"),
        },
    ),
    "think": Kind(
        "NEW",
        {
            "content": ("text", "", "-O"),
        },
    ),
    "mcp": Kind(
        "NEW",
        {
            "content": ("text", "", "-O"),
            "name": ("text", "", "-O"),
            "arguments": ("object", {}, "-O"),
        },
    ),
    "download": Kind(
        "NEW",
        {
            "content": ("text", "", "-O"),
            "file_path": ("text", "", "-R"),
        },
    ),
    "task_tracking": Kind(
        "NEW",
        {
            "content": ("text", "", "-O"),
            "command": ("text", "", "-O"),
            "task_list": ("list", [], "-O"),
        },
    ),
    "loop_detection": Kind(
        "NEW",
        {
            "content": ("text", "", "-O"),
        },
    ),
}
