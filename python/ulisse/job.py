"""Runs: what those on this machine and those in a cluster have in common."""

from __future__ import annotations

import html
import json
import secrets
import warnings
from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Iterator, Optional, Sequence, TypeVar, Union

import numpy as np
from numpy.typing import NDArray

from . import posterior as _posterior
from .errors import BadInput, JobFailed, NotConverged, UlisseError
from .posterior import Groups
from .progress import Status, display
from .table import Table

__all__ = ["Job", "Predictions", "Specification"]

Floats = NDArray[np.float64]
Specification = Union[dict[str, Any], str, Path]
Self = TypeVar("Self", bound="Job")


@dataclass(frozen=True)
class Predictions:
    """Predictions of rows, in the units of the target: of the mixture over the draws.

    Attributes
    ----------
    mean, sd : array of shape (rows,)
        NaN of classes without an order.
    quantiles : array of shape (rows, probabilities)
        Alike.
    log_density : array of shape (rows,), or None where the targets are not known
        The log density of the mixture at the target.
    probabilities : array of shape (rows, classes), or None
        Of three or more classes, or of classes without an order, the probability of each.
    functions : dict of (mean, sd), arrays of shape (rows,), or None
        Of several latent functions, where the latent ones were asked for, what is told of each by its name: of classes without an order the
        function of each class, of heteroscedastic noise ``noise_sd``, in the units of the target.
    """

    mean: Floats
    sd: Floats
    quantiles: Floats
    log_density: Optional[Floats] = None
    probabilities: Optional[Floats] = None
    functions: Optional[dict[str, tuple[Floats, Floats]]] = None


class Job(ABC):
    """A run, at work or over: on this machine or in a cluster.

    `watch` follows it to its end. `summary`, `posterior` and `predict` tell what it found.
    """

    name: str
    id: str

    def __init__(self) -> None:
        self._groups: Optional[Groups] = None

    # What differs.

    @property
    @abstractmethod
    def status(self) -> Status:
        """How the run is going."""

    @abstractmethod
    def _follow(self) -> Iterator[Status]:
        """Yield the status now and whenever it may have changed, until the run has ended or stopped."""

    @abstractmethod
    def _summary(self) -> dict[str, Any]:
        """Return what summary.json holds."""

    @abstractmethod
    def _npz(self) -> bytes:
        """Return the draws as NPZ."""

    @abstractmethod
    def _predict(
        self,
        rows: Table,
        quantiles: Sequence[float],
        latent: bool,
        draws: Optional[int],
    ) -> Predictions:
        """Predict rows."""

    @abstractmethod
    def _paths(self, rows: Table, n: int, seed: int, latent: bool, draws: Optional[int]) -> Floats:
        """Return n joint draws at the rows, an array of shape (n, rows), of several latent functions (n, rows, functions)."""

    @abstractmethod
    def _covariance(self, rows: Table, latent: bool, draws: Optional[int]) -> tuple[Predictions, Floats]:
        """Predict rows, and return their joint covariance, too."""

    @property
    @abstractmethod
    def data(self) -> dict[str, Any]:
        """How the table was read: ``inputs`` in their order, ``target``, ``levels`` of categories, ``classes`` of the
        target, the columns of ``noise`` and ``offset``, and more."""

    @property
    @abstractmethod
    def provisional(self) -> Any:
        """What can be said of the posterior before there are draws: a table as that of `summary`."""

    @abstractmethod
    def pause(self: Self) -> Self:
        """Stop the chains at their next checkpoint; `resume` lets them continue."""

    @abstractmethod
    def resume(self: Self) -> Self:
        """Let the run continue where it stopped. It does not wait: `watch` does."""

    @abstractmethod
    def cancel(self: Self) -> Self:
        """End the run. The draws that it made are kept where there are any."""

    @abstractmethod
    def extend(self: Self, draws: int) -> Self:
        """Let the run make so many further draws of each chain. It does not wait: `watch` does."""

    @abstractmethod
    def logs(self) -> Iterator[dict[str, Any]]:
        """Yield the lines of the log, each as a dict."""

    # What is the same.

    @property
    def info(self) -> tuple[list[str], str]:
        """The names of the inputs, in their order, and of the target."""
        data = self.data
        return list(data["inputs"]), str(data["target"])

    @property
    def ended(self) -> bool:
        """Whether the run has come to an end."""
        return self.status.ended

    @property
    def converged(self) -> bool:
        """Whether the run ended with chains that agree."""
        return self.status.state == "converged"

    def watch(self: Self, progress: Optional[bool] = True) -> Self:
        """Show how the run is going until it has ended.

        A notebook shows a bar that moves, and so does a terminal; elsewhere there is a line now and then.

        Warns
        -----
        NotConverged
            if the run ended before its chains agreed.

        Raises
        ------
        JobFailed
            if the run failed or was cancelled, or if the process of a run on this machine was stopped.
        """
        show = display(progress)
        status = Status("queued")
        try:
            for status in self._follow():
                show.show(self.name, status)
        finally:
            show.close()
        self._groups = None
        if status.state == "failed":
            raise self._failure(status)
        if status.state == "cancelled":
            raise JobFailed(f"{self.name} was cancelled")
        if status.state == "paused":
            raise JobFailed(f"{self.name} was stopped: resume() continues it")
        if status.state == "unconverged":
            warnings.warn(NotConverged(self._doubts()), stacklevel=2)
        return self

    wait = watch

    def _failure(self, status: Status) -> UlisseError:
        return JobFailed(f"{self.name} failed: {status.message}" if status.message else f"{self.name} failed")

    def _doubts(self) -> str:
        """Say why a run that ended is not to be trusted yet."""
        sum = self._summary()
        said = list(sum.get("warnings") or [])
        why = "; ".join(said[:3]) + (f"; and {len(said) - 3} more" if len(said) > 3 else "")
        text = f"{self.name} has not converged: it ended by {sum.get('stop_reason') or 'its limits'}"
        return f"{text}. {why}" if why else text

    def summary(self) -> Any:
        """Return a row for each quantity: mean, Monte Carlo error, sd, quantiles, ESS, R-hat.

        It is a DataFrame if pandas is installed, else a list of dicts. While the run goes on
        it is that of the draws so far.
        """
        return _frame(self._summary().get("parameters") or [])

    @property
    def warnings(self) -> list[str]:
        """What is to be known before believing the draws, in sentences."""
        return [str(w) for w in self._summary().get("warnings") or []]

    def _draws(self) -> Groups:
        if self._groups is None:
            groups = _posterior.read_npz(self._npz())
            if not self.ended:  # there will be more
                return groups
            self._groups = groups
        return self._groups

    @property
    def posterior(self) -> Any:
        """The draws: ArviZ's InferenceData; without ArviZ the same groups of xarray's Datasets; without
        xarray of arrays. The group ``posterior`` holds them over ``chain`` and ``draw``."""
        return _posterior.inference_data(self._draws())

    def draws(self) -> Any:
        """Return the draws one below the other, with a column for each quantity.

        It is a DataFrame if pandas is installed, else a dict of arrays.
        """
        columns = _posterior.columns(self._draws())
        try:
            import pandas
        except ImportError:
            return columns
        return pandas.DataFrame(columns)

    def predict(
        self,
        X: Any,
        quantiles: Sequence[float] = (0.05, 0.5, 0.95),
        latent: bool = False,
        draws: Optional[int] = None,
    ) -> Predictions:
        """Predict the target at rows, averaged over the draws of the covariance parameters.

        Parameters
        ----------
        X : table or array
            The rows: a table with a column for each input, found by its name, and maybe one for the target;
            or an array with the inputs in their order.
        quantiles : probabilities
        latent : bool
            Predict the latent function, without the noise.
        draws : int, optional
            Average over so many draws. By default as many as are independent, 100 at most.
        """
        for p in quantiles:
            if not 0 < p < 1:
                raise BadInput(f"quantiles: {p} is not a probability between 0 and 1")
        return self._predict(self._rows(X, latent), quantiles, latent, draws)

    def _rows(self, X: Any, latent: bool) -> Table:
        """Return the columns that the run knows: inputs, what is said of each row, and the target if it is there."""
        rows = Table.of(X)
        data = self.data
        names = list(data["inputs"])
        if not rows.named:
            if len(rows.names) != len(names):
                raise BadInput(f"X has {len(rows.names)} columns, but the run has {len(names)} inputs: {', '.join(names)}")
            rows = Table(names, rows.columns, True)
        noise = data.get("noise") or {}
        of_noise = [noise.get("column"), noise.get("by")]
        needed = [*names, data.get("offset"), *([] if latent else of_noise)]
        known = [n for n in [*of_noise, noise.get("weights"), data["target"]] if n in rows.names]
        return rows.select(dict.fromkeys(n for n in [*needed, *known] if n))

    def covariance(self, X: Any, latent: bool = False, draws: Optional[int] = None) -> tuple[Predictions, Floats]:
        """Predict the target at rows and how they vary together: predictions without quantiles, and the joint
        covariance of the rows, an array of shape (rows, rows). The arguments are those of `predict`.

        There may be 4096 different rows, for a cluster 1024.
        """
        return self._covariance(self._inputs(X, latent), latent, draws)

    def sample(self, X: Any, n: int = 1, seed: Optional[int] = None, latent: bool = False, draws: Optional[int] = None) -> Floats:
        """Draw n values of the target at the rows together, an array of shape (rows, n).

        A column is a joint draw: one function from the posterior, with the noise of each row or if ``latent``
        without, at one draw of the covariance parameters. Classes are drawn as their places, from 0. Of several latent functions
        ``latent`` draws all of them, an array of shape (rows, n, functions): of classes without an order that of each class, of heteroscedastic noise the
        mean and the standard deviation of the noise. It depends on the results, the rows and the seed alone.
        There may be 4096 different rows, for a cluster 1024. Without a seed it is another one each time.
        """
        if n < 1:
            raise BadInput(f"n: {n} samples: ask for 1 or more")
        if seed is not None and not 0 <= seed < 2**64:
            raise BadInput(f"seed: {seed} is not a whole number from 0 to 2**64-1")
        drawn = self._paths(self._inputs(X, latent), int(n), secrets.randbits(64) if seed is None else int(seed), latent, draws)
        return drawn.swapaxes(0, 1)

    def _inputs(self, X: Any, latent: bool) -> Table:
        """Return the rows without the target."""
        rows = self._rows(X, latent)
        return rows.select([n for n in rows.names if n != self.info[1]])

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} ({self.id}): {self.status}>"

    def _repr_html_(self) -> str:
        s = self.status
        return f"<div><b>{html.escape(self.name)}</b> ({html.escape(self.id)}): {html.escape(str(s))}</div>"


def _frame(rows: list[dict[str, Any]]) -> Any:
    """Return rows as a DataFrame by their name, if pandas is installed."""
    try:
        import pandas
    except ImportError:
        return rows
    frame = pandas.DataFrame(rows)
    return frame.set_index("name") if "name" in frame else frame


def duration(value: Union[str, float, int, timedelta, None]) -> Optional[str]:
    """Return a time span as the program reads it; a number is of seconds."""
    if value is None or isinstance(value, str):
        return value
    seconds = value.total_seconds() if isinstance(value, timedelta) else float(value)
    if not seconds >= 0:
        raise BadInput(f"max_time: {value} is not a time span")
    return f"{seconds:.9f}".rstrip("0").rstrip(".") + "s"


def text_of(spec: Specification) -> tuple[str, bool]:
    """Return the text of a specification, and whether it was made here: of a dict."""
    if isinstance(spec, dict):
        if isinstance((spec.get("data") or {}).get("target"), (list, tuple)):
            raise BadInput("data.target: name one column: each target has a run of its own")
        return json.dumps(spec, indent=1), True
    if isinstance(spec, Path) or "\n" not in spec and ":" not in spec.rpartition("/")[2]:
        try:
            return Path(spec).read_text(encoding="utf-8"), False
        except OSError as error:
            raise BadInput(f"cannot read the specification {spec}: {error.strerror}") from None
    return spec, False
