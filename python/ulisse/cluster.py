"""Clusters: jobs on other machines, over HTTP."""

from __future__ import annotations

import http.client
import io
import json
import os
import secrets
import socket
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any, Iterator, Optional, Sequence, Union

import numpy as np

from . import program
from .errors import BadInput, BadSpecification, NotFound, PermissionDenied, UlisseError, Unreachable, from_program
from .job import Floats, Job, Predictions, Specification, _frame, text_of
from .progress import Status
from .table import Table, codes

__all__ = ["Cluster", "ClusterJob", "connect", "jobs", "submit"]

DEFAULT = "http://127.0.0.1:7002"
HTTP_PORT = 7002  # of coordinators, unless told otherwise
CALL_TIME = 60.0  # seconds without a byte
PATIENCE = 20.0  # seconds that a cluster may have no leader
BATCH = 128  # rows of a call that predicts
MOST = 1024  # rows that are predicted together
LANES = 4  # such calls at once

Where = Union[None, str, Sequence[str], "Cluster"]


def connect(
    cluster: Where = None,
    *,
    token: Optional[str] = None,
    namespace: Optional[str] = None,
    tls_ca: Optional[str] = None,
    tls_cert: Optional[str] = None,
    tls_key: Optional[str] = None,
) -> Cluster:
    """Return a cluster.

    Parameters
    ----------
    cluster : str or list of str, optional
        The address of a coordinator's HTTP port (``"https://a.lab:7002"``), several of them, or the name of
        a context of ``ulisse context``. By default ``$ULISSE``; else the cluster that the command line talks
        to; else the one on this machine.
    token : str, optional
        By default ``$ULISSE_TOKEN``, else the context's.
    namespace : str, optional
        By default ``$ULISSE_NAMESPACE``, else the context's, else the token's own.
    tls_ca, tls_cert, tls_key : path, optional
        The authority to trust, and this user's certificate and key. By default ``$ULISSE_TLS_CA``,
        ``$ULISSE_TLS_CERT`` and ``$ULISSE_TLS_KEY``, else the context's.
    """
    if isinstance(cluster, Cluster):
        return cluster
    env = os.environ
    if cluster is None:
        cluster = env.get("ULISSE") or ""
    known: dict[str, str] = {}
    if isinstance(cluster, str) and "://" in cluster:
        addresses = [a.strip() for a in cluster.split(",")]
    elif isinstance(cluster, str):
        addresses, known = _context(cluster)
    else:
        addresses = list(cluster)
    return Cluster(
        addresses,
        token=token or env.get("ULISSE_TOKEN") or known.get("token") or None,
        namespace=namespace or env.get("ULISSE_NAMESPACE") or known.get("namespace") or None,
        tls_ca=tls_ca or env.get("ULISSE_TLS_CA") or known.get("tls_ca") or None,
        tls_cert=tls_cert or env.get("ULISSE_TLS_CERT") or known.get("tls_cert") or None,
        tls_key=tls_key or env.get("ULISSE_TLS_KEY") or known.get("tls_key") or None,
    )


def _context(name: str) -> tuple[list[str], dict[str, str]]:
    """Return the addresses and secrets of a context; of the current one for no name. The program reads the
    file of contexts, and asks the coordinators where they speak HTTP."""
    try:
        shown = json.loads(program.call(["context", "show", *([name] if name else [])]))
    except BadInput:
        raise
    except UlisseError:
        if name:
            raise
        return [DEFAULT], {}  # there is no program
    scheme = "https" if shown["tls_ca"] else "http"
    flags = ["--context", name] if name else []
    try:
        members = json.loads(program.call(["cluster", "--json", "--timeout", "5s", *flags]))["members"]
        at = [(m["http_address"], m["grpc_address"]) for m in members if m["http_address"]]
    except UlisseError:
        at = [(f":{HTTP_PORT}", c) for c in shown["coordinators"]]
    addresses = []
    for address, beside in at:
        host, port = address.rpartition(":")[0], address.rpartition(":")[2]
        if host in ("", "0.0.0.0", "[::]"):  # it listens on all: the host is that of its other port
            host = beside.rpartition(":")[0]
        addresses.append(f"{scheme}://{host}:{port}")
    return addresses or [DEFAULT], shown


def submit(
    spec: Specification,
    data: Any = None,
    *,
    cluster: Where = None,
    priority: int = 0,
    client_id: Optional[str] = None,
) -> ClusterJob:
    """Submit a job to a cluster and return it; `Job.watch` follows it. The arguments are those of
    `Cluster.submit`; ``cluster`` is as in `connect`."""
    return connect(cluster).submit(spec, data, priority=priority, client_id=client_id)


def jobs(
    name: Optional[str] = None,
    states: Sequence[str] = (),
    *,
    limit: int = 100,
    cluster: Where = None,
) -> list[ClusterJob]:
    """Return the jobs of a cluster, newest first. The arguments are those of `Cluster.jobs`; ``cluster`` is
    as in `connect`."""
    return connect(cluster).jobs(name, states, limit=limit)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """An API sends nobody elsewhere: a page that asks browsers to sign in does."""

    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        return None


class Cluster:
    """A cluster, by the HTTP ports of some of its coordinators. Any of them may be lost meanwhile."""

    def __init__(
        self,
        addresses: Sequence[str],
        token: Optional[str] = None,
        namespace: Optional[str] = None,
        tls_ca: Optional[str] = None,
        tls_cert: Optional[str] = None,
        tls_key: Optional[str] = None,
    ) -> None:
        if not addresses:
            raise BadInput("no coordinator's address is given")
        for a in addresses:
            if not a.startswith(("http://", "https://")):
                raise BadInput(f"the coordinator's address {a!r}: give http://host:port or https://host:port")
            host = urllib.parse.urlsplit(a).hostname or ""
            if token and a.startswith("http://") and host not in ("localhost", "::1") and not host.startswith("127."):
                raise BadInput(f"a token goes over TLS or to this machine only: {a} is neither")
        self.addresses = [a.rstrip("/") for a in addresses]
        self.namespace = namespace
        self._token = token
        self._files = (tls_ca, tls_cert, tls_key)
        self._opener = self._open()

    def _open(self) -> urllib.request.OpenerDirector:
        ca, cert, key = self._files
        handlers: list[urllib.request.BaseHandler] = [_NoRedirect()]
        if any(a.startswith("https://") for a in self.addresses):
            try:
                tls = ssl.create_default_context(cafile=ca)
                if cert:
                    tls.load_cert_chain(cert, key)
            except OSError as error:
                raise BadInput(f"the certificates: {error.strerror or error}") from None
            handlers.append(urllib.request.HTTPSHandler(context=tls))
        return urllib.request.build_opener(*handlers)

    # A certificate is a file and stays one; a token is a secret and is not written anywhere.
    def __getstate__(self) -> dict[str, Any]:
        return {"addresses": self.addresses, "namespace": self.namespace, "_files": self._files}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._token = os.environ.get("ULISSE_TOKEN")
        self._opener = self._open()

    def __repr__(self) -> str:
        return f"<Cluster {', '.join(self.addresses)}>"

    # Requests.

    def request(
        self,
        method: str,
        path: str,
        body: Union[None, dict[str, Any], IO[bytes]] = None,
        size: int = 0,
        repeat: bool = True,
    ) -> http.client.HTTPResponse:
        """Send a request to whichever coordinator answers, a dict as JSON, and return the answer.

        One that must not be done twice is sent once: repeat is False then.
        """
        deadline = time.monotonic() + PATIENCE
        pause = 0.1
        while True:
            for address in list(self.addresses):
                try:
                    return self._once(address, method, path, body, size)
                except Unreachable as error:
                    if not repeat:
                        raise
                    why = error
                self.addresses.append(self.addresses.pop(0))  # the next is asked first from here on
            if not isinstance(why, _Busy) or time.monotonic() > deadline:
                raise why
            time.sleep(pause)
            pause = min(2.0, 2 * pause)

    def _once(self, address: str, method: str, path: str, body: Union[None, dict[str, Any], IO[bytes]], size: int) -> http.client.HTTPResponse:
        data: Any = body
        headers = {"Accept": "application/json"}
        if isinstance(body, dict):
            data = json.dumps(body).encode("utf-8")
            headers["Content-Type"] = "application/json"
        elif body is not None:
            body.seek(0)
            headers.update({"Content-Length": str(size), "Content-Type": "application/octet-stream"})
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        if self.namespace:
            headers["Ulisse-Namespace"] = self.namespace
        try:
            answer = self._opener.open(urllib.request.Request(address + path, data, headers, method=method), timeout=CALL_TIME)
        except urllib.error.HTTPError as error:
            raise _refused(address, error) from None
        except urllib.error.URLError as error:
            raise _silent(address, error.reason) from None
        except (OSError, http.client.HTTPException) as error:
            raise _silent(address, error) from None
        assert isinstance(answer, http.client.HTTPResponse)
        return answer

    def call(
        self,
        method: str,
        path: str,
        body: Union[None, dict[str, Any], IO[bytes]] = None,
        size: int = 0,
        repeat: bool = True,
    ) -> dict[str, Any]:
        """Send a request of the JSON API and return what it is answered with. The arguments are those of
        `request`."""
        with self.request(method, path, body, size, repeat) as answer:
            try:
                found: dict[str, Any] = json.loads(_whole(self.addresses[0], answer))
            except ValueError:
                raise Unreachable(f"{self.addresses[0]} does not speak the JSON API of ulisse") from None
        return found

    def stream(self, method: str, path: str, body: Optional[dict[str, Any]] = None) -> Iterator[dict[str, Any]]:
        """Send a request that is answered with a stream, and yield its messages."""
        with self.request(method, path, body) as answer:
            try:
                for line in answer:
                    message = json.loads(line)
                    if "error" in message:
                        raise _error(message["error"])
                    yield message["result"]
            except (OSError, http.client.HTTPException, ValueError) as error:
                if isinstance(error, UlisseError):
                    raise
                raise _silent(self.addresses[0], error) from None

    # Jobs.

    def upload(self, data: Any) -> str:
        """Bring a table (a DataFrame, a mapping of columns, or the path of a CSV or Parquet file) to the cluster
        and return its address, the SHA-256 of its bytes. It costs little if the cluster has it."""
        if isinstance(data, (str, os.PathLike)):
            try:
                with open(data, "rb") as f:
                    return str(self.call("PUT", "/v1/data", f, os.path.getsize(data))["sha256"])
            except OSError as error:
                if isinstance(error, UlisseError):
                    raise
                raise BadInput(f"cannot read the data: {os.fspath(data)}: {error.strerror}") from None
        content = Table.of(data, "data").encode()
        return str(self.call("PUT", "/v1/data", io.BytesIO(content), len(content))["sha256"])

    def submit(
        self,
        spec: Specification,
        data: Any = None,
        *,
        priority: int = 0,
        client_id: Optional[str] = None,
    ) -> ClusterJob:
        """Submit a job and return it; `Job.watch` follows it.

        Parameters
        ----------
        spec : dict, path or str
            The specification: a dict, the path of a file, or the text of one (YAML or JSON).
        data : table or path, optional
            A DataFrame, an Arrow table, a mapping of columns, or the path of a CSV or Parquet file, which is
            uploaded. By default the file that a specification in a dict or a JSON file names, if it is here;
            what workers read by themselves (a URL) stays where it is.
        priority : int
            Jobs of higher priority go first.
        client_id : str, optional
            Submitting twice with the same makes one job.
        """
        text, generated = text_of(spec)
        if data is None:
            data = _named(spec, text)
        request: dict[str, Any] = {"spec": text, "client_id": client_id or secrets.token_hex(12), "priority": priority}
        if data is not None:
            request["data"] = self.upload(data)
        try:
            return ClusterJob(self, self.call("POST", "/v1/jobs", request))
        except BadSpecification as error:
            if not generated:
                raise
            raise from_program(2, f"ulisse: {error}", True) from None

    def job(self, job: str) -> ClusterJob:
        """Return the job of an id, or the newest of a name."""
        try:
            return ClusterJob(self, self.call("GET", f"/v1/jobs/{urllib.parse.quote(job, safe='')}"))
        except NotFound:
            named = [j for j in self.jobs(job) if j.name == job]
            if not named:
                raise NotFound(f"there is no job {job!r}: jobs() lists those that there are") from None
            return named[0]

    def jobs(self, name: Optional[str] = None, states: Sequence[str] = (), *, limit: int = 100) -> list[ClusterJob]:
        """Return jobs, newest first.

        Parameters
        ----------
        name : str, optional
            Only jobs whose name contains this, or matches it if it has one of ``* ? [``.
        states : sequence of str
            Only jobs in these states, as in `Status.state`.
        limit : int
            At most so many.
        """
        query = [("states", f"JOB_STATE_{s.upper()}") for s in states]
        query += [("name", name)] if name else []
        found: list[ClusterJob] = []
        token = ""
        while len(found) < limit:
            page = self.call("GET", "/v1/jobs?" + urllib.parse.urlencode([*query, ("page_size", str(limit - len(found))), ("page_token", token)]))
            found += [ClusterJob(self, j) for j in page["jobs"]]
            token = page.get("next_page_token", "")
            if not token:
                break
        return found[:limit]

    def workers(self) -> Any:
        """Return the workers, a DataFrame if pandas is installed, else a list of dicts."""
        workers = self.call("GET", "/v1/workers")["workers"]
        return _frame([{("name" if k == "id" else k): v for k, v in w.items()} for w in workers])


def _predictions(said: list[dict[str, Any]], quantiles: int, known: bool) -> Predictions:
    """Return the predictions of rows as they were sent; known: with the log densities of their targets."""
    return Predictions(
        np.array([float(r["mean"]) for r in said]),
        np.array([float(r["sd"]) for r in said]),
        np.array([[float(q) for q in r["quantiles"]] for r in said]).reshape(len(said), quantiles),
        np.array([float(r["log_density"]) for r in said]) if known else None,
        np.array([[float(c["probability"]) for c in r["classes"]] for r in said]) if said and said[0].get("classes") else None,
        _functions(said),
    )


def _functions(said: list[dict[str, Any]]) -> Optional[dict[str, tuple[Floats, Floats]]]:
    """Return what was sent of several latent functions, by name."""
    names = [str(f["name"]) for f in said[0].get("functions") or []] if said else []
    if not names:
        return None
    values = np.array([[(float(f["mean"]), float(f["sd"])) for f in r["functions"]] for r in said])
    return {name: (values[:, k, 0], values[:, k, 1]) for k, name in enumerate(names)}


class ClusterJob(Job):
    """A job in a cluster. It goes on when Python ends."""

    def __init__(self, cluster: Cluster, job: dict[str, Any]) -> None:
        super().__init__()
        self.cluster = cluster
        self.id = str(job["id"])
        self.name = str(job["name"])
        self._job = job

    def _call(self, method: str, rest: str, body: Optional[dict[str, Any]] = None) -> dict[str, Any]:
        return self.cluster.call(method, f"/v1/jobs/{self.id}{rest}", body)

    def refresh(self) -> ClusterJob:
        """Ask the cluster how the job is going."""
        self._job = self._call("GET", "")
        return self

    @property
    def status(self) -> Status:
        """How the job is going."""
        if not _status(self._job).ended:
            self.refresh()
        return _status(self._job)

    def _follow(self) -> Iterator[Status]:
        while True:
            try:
                for self._job in self.cluster.stream("GET", f"/v1/jobs/{self.id}:watch"):
                    yield _status(self._job)
            except Unreachable:
                self.refresh()  # by another coordinator; it raises if there is none
            if self.ended:
                return
            time.sleep(0.2)

    def _summary(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self._call("GET", "/summary")["json"])
        return found

    @property
    def provisional(self) -> Any:
        """What is known before there are draws: nothing that a cluster tells yet; None."""
        return None

    def _npz(self) -> bytes:
        with self.cluster.request("GET", f"/v1/jobs/{self.id}/export?format=npz") as answer:
            return _whole(self.cluster.addresses[0], answer)

    @property
    def data(self) -> dict[str, Any]:
        """How the table was read: names of columns and levels, scales."""
        data = self._job.get("data") or {}
        if not data.get("inputs"):
            data = self.refresh()._job.get("data") or {}
        if not data.get("inputs"):
            raise UlisseError(f"job {self.name} has not read its data yet ({self.status.state}): watch() waits for it")
        levels = data.get("levels") or []
        found: dict[str, Any] = {**data, "levels": [level.get("names") for level in levels]}
        return found

    def _predict(self, rows: Table, quantiles: Sequence[float], latent: bool, draws: Optional[int]) -> Predictions:
        target = self.info[1]
        points = self._points(rows)
        y = self._coded(rows, target, self.data.get("classes")) if target in rows.names else None
        if y is not None and not np.isfinite(y).all():
            y = None
        batches = [slice(i, i + BATCH) for i in range(0, len(points), BATCH)]

        def batch(at: slice) -> dict[str, Any]:
            request: dict[str, Any] = {"quantiles": list(quantiles)}
            if y is not None:
                request["targets"] = y[at].tolist()
            return self._ask(points[at], latent, draws, request)

        with ThreadPoolExecutor(LANES) as lanes:
            answers = list(lanes.map(batch, batches))
        if len({a["draws_sha256"] for a in answers}) > 1:
            raise UlisseError(f"job {self.name} has drawn more in the meantime: predict again")
        return _predictions([r for a in answers for r in a["rows"]], len(quantiles), y is not None)

    def _paths(self, rows: Table, n: int, seed: int, latent: bool, draws: Optional[int]) -> Floats:
        said = self._ask(self._points(rows), latent, draws, {"paths": n, "seed": seed})["rows"]
        drawn = np.array([[float(v) for v in r["paths"]] for r in said]).T
        functions = len(said[0].get("functions") or [])
        return drawn.reshape(n, functions, len(said)).swapaxes(1, 2) if functions else drawn

    def _covariance(self, rows: Table, latent: bool, draws: Optional[int]) -> tuple[Predictions, Floats]:
        said = self._ask(self._points(rows), latent, draws, {"covariance": True})["rows"]
        return _predictions(said, 0, False), np.array([[float(v) for v in r["covariance"]] for r in said])

    def _coded(self, rows: Table, name: str, levels: Optional[Sequence[str]]) -> Floats:
        """Return a column as numbers: levels by their places."""
        return codes(rows.column(name), levels, f"the column {name}") if levels else rows.select([name]).matrix()[:, 0]

    def _points(self, rows: Table) -> list[dict[str, Any]]:
        """Return the rows as the API takes them: inputs as numbers, and what is said of each."""
        data = self.data
        levels = data["levels"] or [None] * len(data["inputs"])
        x = np.column_stack([self._coded(rows, n, at) for n, at in zip(data["inputs"], levels)])
        points: list[dict[str, Any]] = [{"inputs": r} for r in x.tolist()]
        if data.get("offset"):
            for point, value in zip(points, rows.select([data["offset"]]).matrix()[:, 0].tolist()):
                point["offset"] = value
        noise = data.get("noise") or {}
        if all(name in rows.names for name in (noise.get("column"), noise.get("by")) if name):  # else it is not asked for
            for field, name in (("known", noise.get("column")), ("weight", noise.get("weights")), ("level", noise.get("by"))):
                if name not in rows.names:
                    continue
                values = self._coded(rows, name, noise["levels"] if field == "level" else None).tolist()
                if field == "level":
                    values = [noise["levels"][int(k)] if k == k else "" for k in values]
                for point, value in zip(points, values):
                    point.setdefault("noise", {})[field] = value
        return points

    def _ask(self, points: list[dict[str, Any]], latent: bool, draws: Optional[int], more: dict[str, Any]) -> dict[str, Any]:
        """Return the answer to a request to predict rows."""
        if len(points) > MOST:
            raise BadInput(f"X has {len(points)} rows, of which a cluster predicts {MOST} together at most: ask for fewer")
        request = {"rows": points, "latent": latent, **more}
        if draws:
            request["draws"] = draws
        for message in self.cluster.stream("POST", f"/v1/jobs/{self.id}:predict", request):
            if message.get("rows"):
                return message
        raise Unreachable(f"the prediction from job {self.name} ended without an answer: ask again")

    def pause(self) -> ClusterJob:
        """Stop the chains at their next checkpoint; `resume` lets them continue."""
        self._job = self._call("POST", ":pause", {})
        return self

    def resume(self) -> ClusterJob:
        """Let a job that was paused continue, or try again one that failed. It does not wait: `watch` does."""
        self._job = self._call("POST", ":resume", {})
        return self

    def cancel(self) -> ClusterJob:
        """End the job. Its draws are kept."""
        self._job = self._call("POST", ":cancel", {})
        return self

    def extend(self, draws: int) -> ClusterJob:
        """Let the job make so many further draws of each chain. It does not wait: `watch` does."""
        self._job = self.cluster.call("POST", f"/v1/jobs/{self.id}:extend", {"draws": draws}, repeat=False)
        self._groups = None
        return self

    def delete(self) -> None:
        """Remove the job, which must have ended, with its draws."""
        self._call("DELETE", "")

    def logs(self) -> Iterator[dict[str, Any]]:
        """Yield the lines of the log, each as a dict."""
        for line in self.cluster.stream("GET", f"/v1/jobs/{self.id}/logs"):
            try:
                told = json.loads(line["text"])
            except ValueError:
                told = None
            if not isinstance(told, dict):
                told = {"msg": line["text"], "chain": line["chain"]}
            yield {"time": line["time"], "worker": line["worker"], **told}

    def __getstate__(self) -> dict[str, Any]:
        self.status  # so that it need not be asked for
        if self.ended and self._groups is None:
            try:
                self._draws()
            except UlisseError:
                pass  # it has none
        return dict(self.__dict__)


def _status(job: dict[str, Any]) -> Status:
    """Return the status that a job's JSON tells."""
    p = job.get("progress") or {}
    chains = p.get("chains") or []
    health = job.get("health") or {}
    return Status(
        str(job["state"]).replace("JOB_STATE_", "").lower(),
        min((int(c["warmup"]) for c in chains), default=0),
        min((int(c["draws"]) for c in chains), default=0),
        int(p.get("draws") or 0),
        _positive(p.get("rhat")),
        _positive(p.get("ess")),
        float(p.get("active_seconds") or 0.0),
        str(job.get("message") or health.get("message") or ""),
    )


def _positive(x: Any) -> Optional[float]:
    try:
        value = float(x)
    except (TypeError, ValueError):
        return None
    return value if value > 0 and value != float("inf") else None


def _named(spec: Specification, text: str) -> Optional[str]:
    """Return the path of the table that a specification in JSON names, if it is a file here."""
    try:
        path = json.loads(text).get("data", {}).get("path")
    except (ValueError, AttributeError):
        path = _yaml_path(text)
    if not isinstance(path, str) or "://" in path:
        return None
    beside = Path() if isinstance(spec, dict) or "\n" in str(spec) else Path(spec).parent
    return str(beside / path)


def _yaml_path(text: str) -> Any:
    try:
        import yaml
    except ImportError:
        if "synthetic:" in text:
            return None
        raise BadInput("the specification is YAML, and the package yaml is not installed: give the table with data=") from None
    try:
        return yaml.safe_load(text)["data"].get("path")
    except (yaml.YAMLError, AttributeError, KeyError, TypeError):
        return None  # the cluster says what is wrong with it


class _Busy(Unreachable):
    """The cluster answers that it cannot just now."""


def _silent(address: str, why: Any) -> Unreachable:
    if isinstance(why, (socket.timeout, TimeoutError)):
        return Unreachable(f"no answer from {address} within {CALL_TIME:.0f} s")
    if isinstance(why, ssl.SSLCertVerificationError):
        return Unreachable(f"{address} shows a certificate that is not to be trusted ({why.verify_message}): give its authority with tls_ca")
    if isinstance(why, ssl.SSLError):
        return Unreachable(f"{address}: TLS did not come about ({why.reason}): give certificates with tls_ca, tls_cert and tls_key")
    if isinstance(why, OSError) and why.strerror:
        return Unreachable(f"no answer from {address}: {why.strerror.lower()}")
    if isinstance(why, (http.client.HTTPException, ValueError)):
        return Unreachable(f"the answer of {address} broke off")
    return Unreachable(f"no answer from {address}: {why}")


def _whole(address: str, answer: http.client.HTTPResponse) -> bytes:
    """Return all of an answer, or say that it broke off."""
    try:
        return answer.read()
    except (OSError, http.client.HTTPException) as error:
        raise _silent(address, error) from None


def _refused(address: str, error: urllib.error.HTTPError) -> UlisseError:
    """Return the error that an answer stands for."""
    try:
        body = json.loads(error.read())
        return _error(body.get("error") or body)  # the first is of a stream
    except (OSError, http.client.HTTPException, ValueError, TypeError, KeyError, AttributeError):
        if error.code in (301, 302, 303, 307, 401, 403):
            return PermissionDenied(f"{address} asks who you are: give a token, or a certificate with tls_cert and tls_key")
        return Unreachable(f"{address} does not speak the JSON API of ulisse (HTTP {error.code})")


# The codes of gRPC that errors of the API carry.
_INVALID, _DEADLINE, _MISSING, _DENIED, _EXHAUSTED, _OUT_OF_RANGE, _UNAVAILABLE, _ANONYMOUS = 3, 4, 5, 7, 8, 11, 14, 16


def _error(body: dict[str, Any]) -> UlisseError:
    code, message = int(body["code"]), str(body["message"])
    violations = [v for d in body.get("details") or [] for v in d.get("field_violations") or []]
    if code in (_DENIED, _ANONYMOUS):
        return PermissionDenied(message)
    slow_down = code == _EXHAUSTED and any("retry_delay" in d for d in body.get("details") or [])
    if code in (_UNAVAILABLE, _DEADLINE) or slow_down:
        return _Busy(message)
    if code == _INVALID and violations and str(violations[0].get("field", "")).startswith("spec"):
        found = from_program(2, f"ulisse: {message}", False)
        field = str(violations[0]["field"])[len("spec") :].lstrip(".")
        if isinstance(found, BadSpecification):
            return BadSpecification(message, field or found.field, found.line, found.column)
        return BadSpecification(message, field or None)
    if code in (_INVALID, _OUT_OF_RANGE):
        return BadInput(message)
    return NotFound(message) if code == _MISSING else UlisseError(message)


