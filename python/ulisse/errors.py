"""What can go wrong, each with one sentence that says what, where, and what to do."""

from __future__ import annotations

import re
from typing import Optional

__all__ = [
    "BadInput",
    "BadSpecification",
    "JobFailed",
    "NotConverged",
    "NotFound",
    "PermissionDenied",
    "UlisseError",
    "Unreachable",
]


class UlisseError(Exception):
    """The root of all errors of this package."""


class BadInput(UlisseError, ValueError):
    """The table, the rows or an argument will not do."""


class BadSpecification(BadInput):
    """A field of the specification will not do.

    Attributes
    ----------
    field : str or None
        The field, as in ``"model.priors.sigma"``.
    line, column : int or None
        Where it stands, counted from 1, in a specification that was given as text or
        as a file.
    """

    def __init__(
        self,
        message: str,
        field: Optional[str] = None,
        line: Optional[int] = None,
        column: Optional[int] = None,
    ) -> None:
        super().__init__(message)
        self.field = field
        self.line = line
        self.column = column

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        return type(self), (self.args[0], self.field, self.line, self.column)


class NotFound(UlisseError, LookupError):
    """There is no such job."""


class JobFailed(UlisseError, RuntimeError):
    """A run came to no end of its own: it failed or was cancelled."""


class Unreachable(UlisseError, ConnectionError):
    """The cluster does not answer."""


class PermissionDenied(UlisseError, PermissionError):
    """The cluster does not let this user do this."""


class NotConverged(UserWarning):
    """A run ended before its chains agreed: its draws are not yet the posterior."""


# The name of the file that holds a specification of this package's.
SPEC = "ulisse-spec.json"
# What the program says of a field: file: line 3, column 7: model.kernel: what is wrong. A fault that has no place, as a
# field that is missing, has no line.
_FIELD = re.compile(
    rf"^(?:(?P<file>[^\n]*?{SPEC}): |(?:[^\n]*?: )?(?=line \d+, column))"
    r"(?:line (?P<line>\d+), column (?P<column>\d+): )?"
    r"(?:(?P<field>[A-Za-z_][\w.\[\]]*): )?(?P<why>.*)$",
    re.DOTALL,
)
# A table of this package's, which the user knows by its rows.
ROWS = "ulisse-rows"
_TABLE = re.compile(rf"^(?:standard input|\S*{ROWS}): line (\d+)")
_GO_ON = re.compile(r"go on with:? ulisse run --resume \S+")


def from_program(code: int, stderr: str, generated: bool) -> UlisseError:
    """Return the error that the program ended with.

    generated says that this package wrote the specification, so that a line of it
    means nothing to the user.
    """
    said = [line for line in stderr.splitlines() if line.startswith("ulisse: ")]
    message = said[-1][len("ulisse: ") :] if said else stderr.strip().rpartition("\n")[2]
    message = _GO_ON.sub("go on with resume()", message) or f"ulisse ended with code {code}"
    message = _TABLE.sub(lambda m: f"row {int(m[1]) - 1}" if int(m[1]) > 1 else "the table", message)
    if code != 2:
        if "no answer from the cluster" in message:
            return Unreachable(message)
        return JobFailed(message)
    match = _FIELD.match(message)
    if match is None:
        return BadInput(message)
    place = f"line {match['line']}, column {match['column']}: " if match["line"] else ""
    told = f"{match['field']}: {match['why']}" if match["field"] else match["why"]
    if generated:
        return BadSpecification(told, match["field"])
    if match["file"]:  # a text that was given to this package
        message = place + told
    return BadSpecification(message, match["field"], _number(match["line"]), _number(match["column"]))


def _number(digits: Optional[str]) -> Optional[int]:
    return None if digits is None else int(digits)
