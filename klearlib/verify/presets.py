"""What a program finds around it: imports, and the limits of Python's own."""

from __future__ import annotations

import sys
from dataclasses import dataclass

USUAL_IMPORTS = """\
from typing import *
import bisect, collections, copy, datetime, functools, heapq, io, itertools, json, math
import operator, os, random, re, statistics, string, sys
from bisect import bisect_left, bisect_right, insort
from collections import Counter, OrderedDict, defaultdict, deque
from functools import cache, cmp_to_key, lru_cache, reduce
from heapq import heapify, heappop, heappush, nlargest, nsmallest
from itertools import accumulate, combinations, groupby, pairwise, permutations, product
from math import ceil, comb, factorial, floor, gcd, inf, isqrt, lcm, sqrt
"""
"""The imports that graders put before every program (LiveCodeBench and the released code: these and
more), so that ``List[int]`` of LeetCode's starter code needs none of its own. typing comes first:
``Counter`` is that of collections."""

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
