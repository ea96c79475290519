"""Answers worked out from nothing but a prompt's text, by other formulas than the generator's."""

import re

CHAIN = re.compile(r"Start with (\d+) and apply ((?:[-+*]\d+ )+)in turn\. Result modulo (\d+)\?")
RECURRENCE = re.compile(
    r"f\(0\)=(\d+), f\(1\)=(\d+), f\(n\)=(\d+)f\(n-1\)([-+])f\(n-2\)\. "
    r"Find f\((\d+)\) modulo (\d+)\."
)
POLYNOMIAL = re.compile(
    r"Polynomial with coefficients ((?:\d+ )*\d+), highest power first: "
    r"value at (\d+) modulo (\d+)\?"
)


def answer_of(prompt: str) -> int:
    """Exact arithmetic over the integers; the modulus is taken once, at the end."""
    if match := CHAIN.fullmatch(prompt):
        value = int(match[1])
        for operation in match[2].split():
            number = int(operation[1:])
            value = {"+": value + number, "-": value - number, "*": value * number}[operation[0]]
        return value % int(match[3])
    if match := RECURRENCE.fullmatch(prompt):
        before, value, factor = int(match[1]), int(match[2]), int(match[3])
        for _ in range(int(match[5]) - 1):
            other = before if match[4] == "+" else -before
            before, value = value, factor * value + other
        return value % int(match[6])
    match = POLYNOMIAL.fullmatch(prompt)
    assert match, f"no family has the prompt {prompt!r}"
    coefficients, point = [int(c) for c in match[1].split()], int(match[2])
    powers = range(len(coefficients) - 1, -1, -1)
    value = sum(c * point**power for c, power in zip(coefficients, powers, strict=True))
    return value % int(match[3])


def step_holds(line: str, modulus: int) -> bool:
    """Whether a line of a chain of thought, such as ``4*3=2``, is true modulo `modulus`."""
    left, sign, right, result = re.fullmatch(r"(\d+)([-+*])(\d+)=(\d+)", line).groups()
    a, b = int(left), int(right)
    return ({"+": a + b, "-": a - b, "*": a * b}[sign] - int(result)) % modulus == 0
