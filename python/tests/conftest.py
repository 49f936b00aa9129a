"""What the tests have in common: the program, small data, and clusters on this machine."""

import json
import os
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
os.environ.setdefault("MPLBACKEND", "Agg")

import ulisse  # noqa: E402
from ulisse import program  # noqa: E402

# A run of a second. Its limits are so wide that it ends after the first look.
QUICK = {"sampler": {"chains": 2, "draws": 20, "warmup": 20}, "stop": {"rhat": 3, "ess": 1, "max_draws": 40}}


def pytest_report_header():
    try:
        return f"ulisse: {program.version()}"
    except ulisse.UlisseError as error:
        return f"ulisse: {error}"


@pytest.fixture(autouse=True)
def alone(monkeypatch, tmp_path):
    """Nobody's contexts, tokens and clusters."""
    for name in list(os.environ):
        if name.startswith("ULISSE_TLS_") or name in ("ULISSE", "ULISSE_TOKEN", "ULISSE_COORDINATORS", "ULISSE_CONTEXT", "ULISSE_NAMESPACE"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("ULISSE_CONFIG", str(tmp_path / "contexts.yaml"))


def columns(n=60, seed=1):
    rng = np.random.default_rng(seed)
    time, dose = rng.uniform(0, 10, n), rng.random(n)
    return {"time": time, "dose": dose, "response": np.sin(time) + dose + rng.normal(0, 0.2, n)}


@pytest.fixture
def data():
    return columns()


@pytest.fixture
def frame(data):
    return pytest.importorskip("pandas").DataFrame(data)


def specification(**model):
    return {
        "name": "small",
        "data": {"path": "table", "target": "response"},
        "model": {"kernel": "matern52", "ard": True, **model},
        **QUICK,
    }


@pytest.fixture
def spec():
    return specification()


@pytest.fixture(scope="session")
def done():
    """A run that is over. Tests leave it as it is."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        job = ulisse.run(specification(), columns(), threads=1).watch(progress=False)
    assert job.converged
    return job


def gp(**params):
    """An estimator that is fitted in a second."""
    base = {"kernel": "matern52", "chains": 2, "draws": 20, "rhat": 3, "ess": 1, "threads": 1, "spec": {"sampler": {"warmup": 20}}}
    return ulisse.GaussianProcess(**{**base, **params})


class Dev:
    """A cluster on this machine, by ulisse dev."""

    def __init__(self, folder, *args):
        self.folder = folder
        self.log = open(folder / "dev.log", "wb")
        self.process = subprocess.Popen(
            [program.find(), "dev", "--auth", "none", "--workers", "1", "--cores", "1", "--dir", str(folder / "dev"), *args],
            stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, start_new_session=True,
        )
        deadline = time.monotonic() + 180
        while not all((folder / "dev" / name).is_file() for name in ("env", "processes.json")):
            assert self.process.poll() is None and time.monotonic() < deadline, (folder / "dev.log").read_text()
            time.sleep(0.05)
        with open(folder / "dev" / "processes.json") as f:
            self.at = next(p["addresses"] for p in json.load(f) if p["role"] == "coordinator")
        self.env = {}
        for line in (folder / "dev" / "env").read_text().splitlines():
            key, _, value = line.removeprefix("export ").partition("=")
            self.env[key] = value.strip("'\"")

    @property
    def url(self):
        return ("https://" if "ULISSE_TLS_CA" in self.env else "http://") + self.at["http"]

    @property
    def tls(self):
        return {k.lower().removeprefix("ulisse_"): v for k, v in self.env.items() if k.startswith("ULISSE_TLS_")}

    def until(self, ready):
        deadline = time.monotonic() + 180
        while True:
            try:
                if ready():
                    return
            except ulisse.UlisseError:
                pass
            assert time.monotonic() < deadline, (self.folder / "dev.log").read_text()
            time.sleep(0.1)

    def close(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(30)
        finally:
            self.process.kill()
            self.process.wait()
            self.log.close()


@pytest.fixture(scope="session")
def dev(tmp_path_factory):
    cluster = Dev(tmp_path_factory.mktemp("plain"))
    try:
        cluster.until(lambda: len(ulisse.connect(cluster.url).call("GET", "/v1/workers")["workers"]) == 1)
        yield cluster
    finally:
        cluster.close()


@pytest.fixture(scope="session")
def dev_tls(tmp_path_factory):
    cluster = Dev(tmp_path_factory.mktemp("tls"), "--tls")
    try:
        cluster.until(lambda: len(ulisse.connect(cluster.url, **cluster.tls).call("GET", "/v1/workers")["workers"]) == 1)
        yield cluster
    finally:
        cluster.close()


