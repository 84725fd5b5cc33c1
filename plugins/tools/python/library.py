"""The standard library of a cell, and one sentence for each module that does not work.

A component has the modules that are imported while it is built, so this list is what a cell can
import.
"""

# ruff: noqa: F401
from __future__ import annotations

import abc
import argparse
import array
import ast
import base64
import binascii
import bisect
import calendar
import cmath
import codecs
import collections.abc
import configparser
import contextlib
import contextvars
import copy
import csv
import dataclasses
import datetime
import decimal
import difflib
import dis
import enum
import fnmatch
import fractions
import functools
import gc
import glob
import graphlib
import gzip
import hashlib
import heapq
import hmac
import html.entities
import html.parser
import importlib.util
import inspect
import io
import ipaddress
import itertools
import json
import keyword
import linecache
import logging
import math
import numbers
import operator
import os.path
import pathlib
import pickle
import pkgutil
import platform
import pprint
import queue
import random
import re
import reprlib
import secrets
import shlex
import shutil
import stat
import statistics
import string
import struct
import sys
import tarfile
import tempfile
import textwrap
import threading
import time
import timeit
import tokenize
import tomllib
import traceback
import types
import typing
import unicodedata
import unittest
import urllib.error
import urllib.parse
import uuid
import warnings
import weakref
import xml.etree.ElementTree
import zipfile
import zlib
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

_NETWORK = "a cell has no network; an agent reads pages with the action `browse`"
_PROCESS = "a cell starts no programs; an agent runs commands with the action `run`"
_THREAD = "a cell has one thread and no event loop; call the functions one after another"
_ABSENT = "this Python was built without it"

_REFUSED = {
    **dict.fromkeys(
        ["ftplib", "http", "imaplib", "poplib", "select", "smtplib", "socket", "socketserver"],
        _NETWORK,
    ),
    **dict.fromkeys(["ssl", "urllib.request", "xmlrpc"], _NETWORK),
    **dict.fromkeys(["pty", "subprocess"], _PROCESS),
    **dict.fromkeys(["asyncio", "concurrent", "multiprocessing", "selectors"], _THREAD),
    **dict.fromkeys(["bz2", "compression.zstd", "lzma"], f"{_ABSENT}; use `zlib` or `gzip`"),
    "unittest.mock": "it needs an event loop; write a small class in its place",
    "zoneinfo": "there are no data of time zones; use `datetime.timezone` with an offset",
    "sqlite3": f"{_ABSENT}; keep the data in lists and dictionaries, or in a file as JSON",
}


class _Refusals:
    """Answers imports of modules that were found nowhere else."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        del path, target
        raise ModuleNotFoundError(f"No module named '{name}': {_reason(name)}", name=name)


def _reason(name: str) -> str:
    above = name
    while above:
        if above in _REFUSED:
            return _REFUSED[above]
        above = above.rpartition(".")[0]
    top = name.partition(".")[0]
    if top in sys.stdlib_module_names:
        return _ABSENT if top == name else "this module of the standard library is not in it"
    return "a cell has the standard library and the modules of its folder; nothing can be installed"


def install() -> None:
    """Let imports that fail say what to do instead."""
    sys.dont_write_bytecode = True
    sys.meta_path.append(_Refusals)
