"""How a run is going, shown where people look: in a notebook, on a terminal, else in lines."""

from __future__ import annotations

import html
import sys
import time
from dataclasses import dataclass
from typing import Any, Optional, Protocol, TextIO

__all__ = ["Status"]

ENDED = ("converged", "unconverged", "cancelled", "failed")


@dataclass(frozen=True)
class Status:
    """How a run is going.

    Attributes
    ----------
    state : str
        queued, preparing, warmup, sampling, certifying, paused, converged, unconverged, cancelled
        or failed.
    warmup, draws : int
        Iterations of the slowest chain so far.
    wanted : int
        Draws that each chain makes before the run may end as converged.
    rhat, ess : float or None
        The largest R-hat and the smallest effective sample size over all parameters, at the last look.
    seconds : float
        Time at work.
    message : str
        What the run waits for, or why it failed.
    """

    state: str
    warmup: int = 0
    draws: int = 0
    wanted: int = 0
    rhat: Optional[float] = None
    ess: Optional[float] = None
    seconds: float = 0.0
    message: str = ""

    @property
    def ended(self) -> bool:
        """Whether the run has come to an end."""
        return self.state in ENDED

    @property
    def fraction(self) -> float:
        """The part of the draws wanted that is there, from 0 to 1."""
        return min(1.0, self.draws / self.wanted) if self.wanted else 0.0

    def __str__(self) -> str:
        parts = [self.state]
        if self.state == "warmup" and self.warmup:
            parts.append(f"{self.warmup} iterations")
        if self.draws:
            parts.append(f"{self.draws} of {self.wanted} draws a chain")
        if self.rhat is not None:
            parts.append(f"R-hat {self.rhat:.3f}")
        if self.ess is not None:
            parts.append(f"ESS {self.ess:.0f}")
        parts.append(_clock(self.seconds))
        if self.message:
            parts.append(self.message)
        return "  ".join(parts)


def _clock(seconds: float) -> str:
    minutes, s = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{s:02}" if hours else f"{minutes}:{s:02}"


class Display(Protocol):
    """Shows what becomes of a run."""

    def show(self, name: str, status: Status) -> None:
        """Show the status."""

    def close(self) -> None:
        """Leave what was shown last."""


class Silent:
    """Shows nothing."""

    def show(self, name: str, status: Status) -> None:
        pass

    def close(self) -> None:
        pass


class Lines:
    """Writes a line at each change of state, and now and again."""

    every = 10.0  # seconds

    def __init__(self, out: TextIO) -> None:
        self.out = out
        self.state = ""
        self.told = 0.0

    def show(self, name: str, status: Status) -> None:
        now = time.monotonic()
        if status.state == self.state and now - self.told < self.every:
            return
        self.state, self.told = status.state, now
        print(f"{name}: {status}", file=self.out, flush=True)

    def close(self) -> None:
        pass


class Terminal:
    """Keeps one line up to date."""

    width = 24

    def __init__(self, out: TextIO) -> None:
        self.out = out
        self.length = 0

    def show(self, name: str, status: Status) -> None:
        done = round(self.width * status.fraction)
        line = f"{name} [{'=' * done}{' ' * (self.width - done)}] {status}"
        self.out.write("\r" + line.ljust(self.length))
        self.out.flush()
        self.length = len(line)

    def close(self) -> None:
        if self.length:
            self.out.write("\n")
            self.out.flush()
            self.length = 0


class Notebook:
    """Keeps a bar in the cell up to date."""

    def __init__(self) -> None:
        self.handle: Any = None

    def show(self, name: str, status: Status) -> None:
        from IPython.display import HTML, display

        bar = f'<progress value="{status.fraction:.3f}" max="1" style="width:16em;vertical-align:middle"></progress>'
        content = HTML(f"<div><b>{html.escape(name)}</b> {bar} <span>{html.escape(str(status))}</span></div>")
        if self.handle is None:
            self.handle = display(content, display_id=True)
        else:
            self.handle.update(content)

    def close(self) -> None:
        pass


def in_notebook() -> bool:
    """Report whether a notebook's kernel runs this."""
    if "IPython" not in sys.modules:
        return False
    from IPython import get_ipython

    return getattr(get_ipython(), "kernel", None) is not None


def display(progress: Optional[bool]) -> Display:
    """Return where to show progress: nowhere if False; with None only where it is live, in notebooks and
    on terminals; with True in lines elsewhere."""
    if progress is False:
        return Silent()
    if in_notebook():
        return Notebook()
    if sys.stderr is not None and sys.stderr.isatty():
        return Terminal(sys.stderr)
    if progress:
        return Lines(sys.stderr)
    return Silent()
