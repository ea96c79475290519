"""What a program finds around it: imports, and the limits of Python's own."""

from __future__ import annotations

import sys
from dataclasses import dataclass

USUAL_IMPORTS = """\
from typing import *
from itertools import *
from collections import *
from functools import *
from heapq import *
from bisect import *
from math import *
from string import *
from operator import *
from random import *
from copy import *
from builtins import abs, pow
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from sys import maxsize
import bisect, collections, copy, datetime, functools, heapq, io, itertools, json, math
import operator, os, random, re, statistics, string, sys, time
bisect.__class__ = type("module", (type(bisect),), {"__call__": staticmethod(bisect.bisect)})
"""
"""The imports that graders put before every program (LiveCodeBench, LeetCodeDataset, the released
code: some of these, or more), so that ``List[int]`` of LeetCode's starter code needs none of its
own. The order matters: ``Counter`` is that of collections, ``pow`` the builtin, ``random`` and
``copy`` are the modules. Answers use ``bisect`` as the module and as the function: it is both."""

_LCB_MODULES = """
    typing string re datetime collections heapq bisect copy math random statistics itertools
    functools operator io sys json builtins
"""


@dataclass(frozen=True)
class Preset:
    """prelude: Python statements run before a program. recursion_limit, int_digits: of
    ``sys.setrecursionlimit`` and ``sys.set_int_max_str_digits``, which a program may set anew."""

    prelude: str
    recursion_limit: int
    int_digits: int


PRESETS = {
    "python": Preset("", 1000, sys.int_info.default_max_str_digits),
    "lcb": Preset(  # recursion limit and digits as LiveCodeBench's grader sets them
        "".join(f"from {m} import *\n" for m in _LCB_MODULES.split())
        + f"import {', '.join(_LCB_MODULES.split())}\n",
        50_000,
        50_000,
    ),
}
"""``python``: a bare interpreter. ``lcb``: all names of the modules that LiveCodeBench's grader
imports, and the modules; its recursion limit; its longest integers."""
