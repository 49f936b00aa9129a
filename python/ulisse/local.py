"""Runs on this machine: the program as a child process, in a folder of its own."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import weakref
from pathlib import Path
from typing import IO, Any, Iterator, Optional, Sequence, Union

import numpy as np

from . import program
from .errors import ROWS, SPEC, BadInput, UlisseError, from_program
from .job import Floats, Job, Predictions, Specification, _frame, text_of
from .progress import Status
from .table import Table, data_bytes

__all__ = ["LocalJob", "load", "run"]

STOP_TIME = 30.0  # seconds that a run has to stop in peace
LOOK_EVERY = 0.05  # seconds


def run(
    spec: Specification,
    data: Any = None,
    *,
    folder: Union[str, os.PathLike[str], None] = None,
    threads: Optional[int] = None,
) -> LocalJob:
    """Begin a run on this machine and return it; `Job.watch` follows it.

    Parameters
    ----------
    spec : dict, path or str
        The specification: a dict, the path of a file, or the text of one (YAML or JSON).
    data : table or path, optional
        A DataFrame, an Arrow table, a mapping of columns, or the path of a CSV or Parquet file. By default
        the specification's own.
    folder : path, optional
        Keep the results there: it must be new or empty. By default they go with the object.
    threads : int, optional
        Compute on so many cores. By default on all.
    """
    text, generated = text_of(spec)
    job = LocalJob(folder, generated, threads)
    job._begin(text, spec, data)
    return job


def load(folder: Union[str, os.PathLike[str]]) -> LocalJob:
    """Return the run in a folder that ``ulisse run`` or `run` wrote.

    One that was interrupted is continued by its `resume`.
    """
    if not (Path(folder) / "spec.yaml").is_file():
        raise BadInput(f"{os.fspath(folder)} is not the folder of a run")
    return LocalJob(folder, False, None)


class LocalJob(Job):
    """A run on this machine."""

    def __init__(self, folder: Union[str, os.PathLike[str], None], generated: bool, threads: Optional[int]) -> None:
        super().__init__()
        self._threads = threads
        self._generated = generated
        self._held = _Held()
        self._cancelled = False
        self._log = _Log()
        if folder is None:
            self._held.folder = tempfile.mkdtemp(prefix="ulisse-")
            self.folder = Path(self._held.folder) / "run"
        else:
            self.folder = Path(folder).absolute()
        # When nobody holds the run any more, and when Python ends.
        weakref.finalize(self, self._held.let_go)

    # Beginning, stopping, going on.

    def _begin(self, text: str, spec: Specification, data: Any) -> None:
        with tempfile.TemporaryDirectory(prefix="ulisse-") as tmp:
            path = Path(tmp) / SPEC
            if isinstance(spec, dict) or "\n" in str(spec):
                path.write_text(text, encoding="utf-8")
            else:
                path = Path(spec)  # what it names is relative to its folder
            args = ["run", str(path), "--out", str(self.folder), *self._flags()]
            if data is None:
                self._start(args)
            elif isinstance(data, (str, os.PathLike)):
                self._start([*args, "--data", os.path.abspath(data)])
            else:
                with tempfile.TemporaryFile() as table:
                    table.write(Table.of(data, "data").encode())
                    table.seek(0)
                    self._start([*args, "--data", "-"], table)
            self._until_begun()

    def _flags(self) -> list[str]:
        return ["--quiet"] + (["--threads", str(self._threads)] if self._threads else [])

    def _start(self, args: list[str], stdin: Optional[IO[bytes]] = None) -> None:
        self._cancelled, self._groups = False, None
        self._look()  # at what an earlier process said
        self._log.begun = False
        self._held.hold(_Child(args, stdin))

    def _until_begun(self) -> None:
        """Wait until the program has read what it was given: it refuses bad input at once."""
        child = self._child
        assert child is not None
        try:
            while child.poll() is None:
                self._look()
                if self._log.begun:
                    return
                time.sleep(LOOK_EVERY)
        except KeyboardInterrupt:
            child.stop()
            raise
        if child.poll() not in (0, 3, 130):
            raise self._failure(self.status)

    @property
    def _child(self) -> Optional[_Child]:
        return self._held.child

    def pause(self) -> LocalJob:
        """Stop the run; `resume` continues it."""
        if self._child is not None:
            self._child.stop()
            self._look()
        return self

    def cancel(self) -> LocalJob:
        """Stop the run for good."""
        self.pause()
        self._cancelled = not self.status.ended
        return self

    def resume(self) -> LocalJob:
        """Continue a run that was stopped, or one that failed. It does not wait: `watch` does."""
        if self._running:
            return self
        if not (self.folder / "spec.yaml").is_file():
            raise UlisseError(f"there is no run to continue in {self.folder}: begin it again")
        self._start(["run", "--resume", str(self.folder), *self._flags()])
        self._until_begun()
        return self

    def extend(self, draws: int) -> LocalJob:
        """Let the run make so many further draws of each chain. It does not wait: `watch` does."""
        if self._running:
            raise UlisseError(f"{self.name} is at work: pause it first, or wait for its end")
        self._start(["extend", self._path, "--draws", str(draws)])
        self._until_begun()
        return self

    @property
    def _path(self) -> str:
        return f"{self.folder}{os.sep}"  # nobody can take it for the name of a job

    @property
    def _running(self) -> bool:
        return self._child is not None and self._child.poll() is None

    # Looking.

    @property
    def id(self) -> str:  # type: ignore[override]
        """The folder of the run."""
        return str(self.folder)

    @property
    def name(self) -> str:  # type: ignore[override]
        """The name in the specification."""
        return self._log.name or self.folder.name

    def _look(self) -> None:
        self._log.read(self.folder / "log.jsonl")

    @property
    def status(self) -> Status:
        """How the run is going."""
        running = self._running  # before looking: what is written last is seen
        self._look()
        log = self._log
        if running:
            log.tick()
        state = log.phase or "preparing"
        code = None if self._child is None else self._child.poll()
        if not running:
            if self._cancelled:
                state = "cancelled"
            elif code not in (None, 0, 3, 130):
                state = "failed"
            elif code != 130 and (self.folder / "summary.json").is_file():
                state = "converged" if self._summary().get("converged") else "unconverged"
            else:
                state = "paused"
        message = str(self._error()) if state == "failed" else ""
        return Status(state, log.warmup, log.draws, self._wanted(), log.rhat, log.ess, log.seconds, message)

    def _error(self) -> UlisseError:
        assert self._child is not None
        return from_program(self._child.poll() or 1, self._child.said(), self._generated)

    def _wanted(self) -> int:
        """Return sampler.draws of the specification that the program wrote."""
        try:
            found = re.search(r"^ +draws: (\d+)$", (self.folder / "spec.yaml").read_text(encoding="utf-8"), re.MULTILINE)
        except OSError:
            return 0
        return int(found[1]) if found else 0

    def _follow(self) -> Iterator[Status]:
        try:
            wait = LOOK_EVERY
            while self._running:
                yield self.status
                time.sleep(wait)
                wait = min(0.5, wait * 1.2)
        except KeyboardInterrupt:
            self.pause()  # nothing is lost: resume() continues
            raise
        yield self.status

    def _failure(self, status: Status) -> UlisseError:
        return self._error()

    def _summary(self) -> dict[str, Any]:
        path = self.folder / "summary.json"
        if path.is_file() and not self._running:
            text = path.read_text(encoding="utf-8")
        else:
            text = self._tell("summary", "--json")
        found: dict[str, Any] = json.loads(text)
        return found

    def _tell(self, command: str, *args: str) -> str:
        """Return what the program tells of the folder."""
        try:
            return program.call([command, self._path, *args])
        except BadInput as error:
            if (self.folder / "result.json").is_file():
                raise
            raise UlisseError(f"{self.name} has no draws to tell of yet ({self.status.state}): watch() waits for them") from error

    @property
    def provisional(self) -> Any:
        """What is known of the posterior before there are draws (the Laplace approximation, corrected by
        importance weights where that is cheap), as a table with ``attrs["note"]``; None before the mode is found."""
        try:
            said = json.loads((self.folder / "provisional.json").read_text(encoding="utf-8"))
        except OSError:
            return None
        frame = _frame(said["parameters"])
        if hasattr(frame, "attrs"):
            frame.attrs["note"] = said["note"]
        return frame

    def logs(self) -> Iterator[dict[str, Any]]:
        """Yield the lines of the log, each as a dict."""
        try:
            with open(self.folder / "log.jsonl", encoding="utf-8") as f:
                for line in f:
                    yield json.loads(line)
        except FileNotFoundError:
            return

    # Results.

    def _npz(self) -> bytes:
        with tempfile.TemporaryDirectory(prefix="ulisse-") as tmp:
            out = Path(tmp) / "draws.npz"
            self._tell("draws", "--out", str(out))
            return out.read_bytes()

    @property
    def data(self) -> dict[str, Any]:
        """How the table was read: names of columns and levels, scales."""
        if not (self.folder / "result.json").is_file():
            self._summary()  # says why
        with open(self.folder / "result.json", encoding="utf-8") as f:
            data: dict[str, Any] = json.load(f)["data"]
        return data

    def _predict(self, rows: Table, quantiles: Sequence[float], latent: bool, draws: Optional[int]) -> Predictions:
        with tempfile.TemporaryDirectory(prefix="ulisse-") as tmp:
            out = Path(tmp) / "predictions.csv"
            more = ["--quantiles", ",".join(repr(float(q)) for q in quantiles)] if quantiles else []
            self._ask(tmp, rows, out, latent, draws, *more)
            return _read_predictions(out, len(quantiles))

    def _paths(self, rows: Table, n: int, seed: int, latent: bool, draws: Optional[int]) -> Floats:
        with tempfile.TemporaryDirectory(prefix="ulisse-") as tmp:
            out = Path(tmp) / "paths.npy"
            self._ask(tmp, rows, out, latent, draws, "--paths", str(n), "--seed", str(seed))
            return np.asarray(np.load(out), dtype=np.float64)

    def _covariance(self, rows: Table, latent: bool, draws: Optional[int]) -> tuple[Predictions, Floats]:
        with tempfile.TemporaryDirectory(prefix="ulisse-") as tmp:
            out, joint = Path(tmp) / "predictions.csv", Path(tmp) / "covariance.npy"
            self._ask(tmp, rows, out, latent, draws, "--quantiles", "", "--covariance", str(joint))
            return _read_predictions(out, 0), np.asarray(np.load(joint), dtype=np.float64)

    def _ask(self, tmp: str, rows: Table, out: Path, latent: bool, draws: Optional[int], *more: str) -> None:
        """Have the program write predictions of rows to out."""
        new = Path(tmp) / ROWS
        new.write_bytes(rows.encode())
        args = ["--data", str(new), "--out", str(out), "--quiet", "--latent" if latent else "--noise", *more]
        args += ["--draws", str(draws)] if draws else []
        args += ["--threads", str(self._threads)] if self._threads else []
        piped = self.folder / "state" / "data"
        if piped.is_file():  # where the specification says it is, unless the folder has moved
            args += ["--train", str(piped)]
        self._tell("predict", *args)

    # Pickling: a run that is over goes with its results, and comes back in a folder of its own.

    KEPT = ("spec.yaml", "summary.json", "result.json", "state/data")

    def __getstate__(self) -> dict[str, Any]:
        if self._running:
            raise UlisseError(f"{self.name} is at work: it can be pickled when it is over")
        files = {k: data_bytes(self.folder / k) for k in self.KEPT}
        if files["state/data"] is None and files["result.json"] is not None:
            files["state/data"] = data_bytes(_training_path(json.loads(files["result.json"])["spec"]))
        if files["result.json"] is not None:
            self._draws()
        return {"files": files, "groups": self._groups, "threads": self._threads, "log": self._log}

    def __setstate__(self, state: dict[str, Any]) -> None:
        LocalJob.__init__(self, None, True, state["threads"])
        for name, content in state["files"].items():
            if content is not None:
                path = self.folder / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
        self._groups = state["groups"]
        self._log = state["log"]


def _training_path(spec: str) -> str:
    """Return data.path of a specification as the program writes them: no YAML reader is needed for that."""
    lines = spec.splitlines()
    for line in lines[lines.index("data:") + 1 :] if "data:" in lines else []:
        key, _, value = line.strip().partition(":")
        if key == "path":
            value = value.strip()
            quoted = value[:1] in ("'", '"') and value[-1:] == value[:1]
            return value[1:-1].replace("''", "'") if quoted else value
        if not line.startswith(" "):
            break
    return ""


def _read_predictions(path: Path, quantiles: int) -> Predictions:
    """Read the table that ulisse predict writes: row, of several classes the likeliest one and at last their probabilities, mean, sd and quantiles
    but of classes without an order, mean[NAME] and sd[NAME] of several latent functions, and where targets are known log_density among others."""
    with open(path, newline="", encoding="utf-8") as f:
        read = csv.reader(f)
        header = next(read)
        start = 2 if header[1] == "class" else 1
        header = header[start:]
        values = np.array([[float(v or "nan") for v in row[start:]] for row in read], dtype=np.float64).reshape(-1, len(header))
    column = dict(zip(header, values.T))
    none = np.full(len(values), np.nan)
    at = header.index("sd") + 1 if "sd" in header else None
    classes = [k for k, name in enumerate(header) if name.startswith("p[")]
    functions = {name[5:-1]: (column[name], column["sd" + name[4:]]) for name in header if name.startswith("mean[")}
    return Predictions(
        column.get("mean", none),
        column.get("sd", none),
        values[:, at : at + quantiles] if at is not None else np.full((len(values), quantiles), np.nan),
        column.get("log_density"),
        values[:, classes] if classes else None,
        functions or None,
    )


class _Log:
    """What the log of a run told so far. It is read on where it was left."""

    def __init__(self) -> None:
        self.offset = 0
        self.begun = False
        self.name = ""
        self.phase = ""
        self.iterations: dict[int, int] = {}
        self.chains = 0
        self.warm = 0  # iterations of warm-up
        self.ended: Optional[int] = None  # draws of each chain that were kept
        self.rhat: Optional[float] = None
        self.ess: Optional[float] = None
        self.seconds = 0.0  # at work
        self.clock: Optional[float] = None
        self.lock = threading.Lock()  # one thread may watch while another asks

    def tick(self) -> None:
        """Count the time since the last tick as one at work."""
        now = time.monotonic()
        self.seconds += now - self.clock if self.clock is not None else 0.0
        self.clock = now

    @property
    def slowest(self) -> int:
        return min(self.iterations.values()) if self.iterations and len(self.iterations) == self.chains else 0

    @property
    def warmup(self) -> int:
        return min(self.slowest, self.warm) if self.warm else self.slowest

    @property
    def draws(self) -> int:
        if self.ended is not None:
            return self.ended
        return max(0, self.slowest - self.warm) if self.phase not in ("", "preparing", "warmup") else 0

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k not in ("clock", "lock")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, clock=None, lock=threading.Lock())

    def read(self, path: Path) -> None:
        with self.lock:
            try:
                with open(path, "rb") as f:
                    f.seek(self.offset)
                    text = f.read()
            except OSError:
                return
            whole = text.rfind(b"\n") + 1
            self.offset += whole
            for line in text[:whole].splitlines():
                try:
                    self.take(json.loads(line))
                except ValueError:
                    continue

    def take(self, line: dict[str, Any]) -> None:
        kind = line.get("msg")
        if kind == "gradient":
            chain = int(line.get("chain", 0))
            if chain > 0 and not line.get("certificate"):
                self.iterations[chain] = int(line["iter"])
        elif kind == "started":
            self.begun, self.name, self.chains = True, str(line.get("name", "")), int(line.get("chains", 0))
            self.phase, self.clock, self.ended = "preparing", None, None
        elif kind in ("warmup", "sampling", "certifying", "done"):
            self.phase = "sampling" if kind == "done" else str(kind)
            if kind == "done":
                self.ended = int(line.get("draws", 0))
            if "windows" in line:
                self.warm = sum(int(w) for w in line["windows"])
            if line.get("rhat"):
                self.rhat, self.ess = float(line["rhat"]), float(line.get("ess", 0))


class _Child:
    """The program at work. It is in a session of its own, so that a Ctrl-C meant for Python does not reach it twice;
    it is stopped when Python ends."""

    def __init__(self, args: list[str], stdin: Optional[IO[bytes]]) -> None:
        apart: dict[str, Any] = {"start_new_session": True}
        if os.name == "nt":
            apart = {"creationflags": getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0)}
        path = program.find()
        self.err = tempfile.TemporaryFile()
        self.process = subprocess.Popen(
            [path, *args],
            stdin=stdin if stdin is not None else subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self.err,
            **apart,
        )
        self.lock = threading.Lock()

    def poll(self) -> Optional[int]:
        return self.process.poll()

    def said(self) -> str:
        """Return what the program wrote to standard error."""
        with self.lock:
            self.err.seek(0)
            return self.err.read().decode("utf-8", "replace")

    def stop(self) -> None:
        """Let the program stop at once, with all that it has done kept."""
        if self.poll() is None:
            self.process.send_signal(getattr(signal, "CTRL_BREAK_EVENT", signal.SIGINT))
        deadline = time.monotonic() + STOP_TIME
        while self.poll() is None:
            if time.monotonic() > deadline:
                self.process.kill()  # it is crash-safe
            time.sleep(0.01)


class _Held:
    """What a run holds beside its memory: a process, and a folder that nobody asked to keep."""

    def __init__(self) -> None:
        self.child: Optional[_Child] = None
        self.folder: Optional[str] = None
        self.owner = os.getpid()

    def hold(self, child: Optional[_Child]) -> None:
        """Hold another process, once the one before has ended."""
        if self.child is not None:
            self.child.stop()
            self.child.err.close()
        self.child = child

    def let_go(self) -> None:
        if os.getpid() != self.owner:  # a fork has a copy of the object, and nothing of what it holds
            return
        self.hold(None)
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)
