"""Jobs in a cluster, over HTTP."""

import json
import pickle
import subprocess
import threading
import time
import warnings
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

import ulisse
from conftest import QUICK, columns, gp, specification
from ulisse import cluster as _cluster
from ulisse import program


@pytest.fixture(scope="module")
def job(dev):
    j = ulisse.submit(specification(), columns(), cluster=dev.url)
    assert j.watch(progress=False).converged
    return j


def test_the_draws_are_those_of_this_machine(job, done):
    here, there = done._draws()["posterior"], job._draws()["posterior"]
    assert list(here) == list(there)
    for name, x in here.items():
        assert x.tobytes() == there[name].tobytes(), name
    assert there.attrs["ulisse_job"] == job.id
    assert job._summary()["draws_sha256"] == done._summary()["draws_sha256"]
    assert list(job.summary().index) == list(done.summary().index)
    assert job.info == done.info and job.status.draws == 20 and job.name == "small"


def test_predictions_are_those_of_this_machine(job, done):
    new = columns(300, seed=2)  # more than a batch
    here, there = done.predict(new, [0.1, 0.5]), job.predict(new, [0.1, 0.5])
    for k in ("mean", "sd", "quantiles", "log_density"):
        np.testing.assert_array_equal(getattr(here, k), getattr(there, k))
    bare = {"dose": new["dose"], "time": new["time"]}
    assert job.sample(bare, 6, seed=4).tobytes() == done.sample(bare, 6, seed=4).tobytes()
    assert job.covariance(bare, latent=True)[1].tobytes() == done.covariance(bare, latent=True)[1].tobytes()
    with pytest.raises(ulisse.BadInput, match="1025 rows, of which a cluster predicts 1024 together"):
        job.sample(np.zeros((1025, 2)))
    p = job.predict(bare, [], latent=True, draws=7)
    assert p.log_density is None and p.quantiles.shape == (300, 0)
    assert p.mean.tobytes() == done.predict(bare, [], latent=True, draws=7).mean.tobytes()
    with pytest.raises(ulisse.BadInput, match="the column dose does not hold numbers"):
        job.predict({"time": [1.0], "dose": ["much"]})


def test_estimator(dev, data, done):
    X = np.column_stack([data["time"], data["dose"]])
    m = gp(ard=True, cluster=dev.url).fit(X, data["response"])
    assert m.predict(X).tobytes() == done.predict(X).mean.tobytes()
    other = pickle.loads(pickle.dumps(m))
    assert other._job()._groups is not None and other.predict(X).tobytes() == m.predict(X).tobytes()
    from_name = gp(ard=True, cluster=[dev.url]).fit(X, data["response"])
    assert from_name.job_.id != m.job_.id


LONG = {"stop": {"rhat": 1.0001, "ess": 1e9, "max_draws": 10**6}}


def test_what_is_said_of_rows_goes_to_a_cluster(dev):
    rng = np.random.default_rng(4)
    t, n = rng.uniform(0, 10, 40), 40
    table = {"t": t, "plot": np.array([3, 7] * 20), "wet": np.where(np.sin(t) > 0, "yes", "no"), "known": rng.normal(size=n)}
    classes = gp(kernel="rbf(t) * hamming(plot)", categories=["plot"], target="wet", likelihood="bernoulli", offset="known")
    table2 = {"t": t, "y": np.sin(t) + rng.normal(0, 0.2, n), "error": rng.uniform(0.1, 0.3, n), "plot": table["plot"], "w": rng.integers(1, 5, n)}
    noisy = gp(target="y", noise={"column": "error", "by": "plot"}, weights="w")
    for m, rows in ((classes, table), (noisy, table2)):
        here = m.fit(rows)._predict(rows, {}, [0.5])
        bare = {k: v for k, v in rows.items() if k not in ("error", "w")}
        latent, paths = m.predict(bare, latent=True), m.sample_y(rows, 3)
        there = m.set_params(cluster=dev.url).fit(rows)._predict(rows, {}, [0.5])
        for k in ("mean", "sd", "quantiles", "log_density"):
            np.testing.assert_array_equal(getattr(here, k), getattr(there, k))
        assert m.predict(bare, latent=True).tobytes() == latent.tobytes() and m.sample_y(rows, 3).tobytes() == paths.tobytes()
    with pytest.raises(ulisse.BadInput, match="the column plot has a value that is none of 3, 7"):
        classes.predict({**table, "plot": table["plot"] + 1})


def test_several_functions_come_from_a_cluster(dev):
    rng = np.random.default_rng(4)
    t = rng.uniform(0, 10, 30)
    y = np.sin(t) + rng.normal(0, 0.1 + 0.03 * t)
    table = {"t": t, "y": y, "kind": np.array(["oak", "ash", "elm"])[np.digitize(y, [-0.5, 0.5])]}
    rows = {"t": t[:4]}
    for m in (gp(inputs=["t"], target="kind", likelihood="categorical"), gp(inputs=["t"], target="y", likelihood="heteroscedastic")):
        asked = [lambda m=m: m.predict(rows), lambda m=m: m.predict(rows, latent=True, return_std=True), lambda m=m: m.sample_y(rows, 3),
                 lambda m=m: m.sample_y(rows, 3, latent=True), lambda m=m: m.log_score(table)]
        m.fit(table)
        here, found = [ask() for ask in asked], m._predict(table, {}, [0.5], latent=True)
        m.set_params(cluster=dev.url).fit(table)
        for before, after in zip(here, [ask() for ask in asked]):
            np.testing.assert_array_equal(after, before)
        there = m._predict(table, {}, [0.5], latent=True)
        for k in ("mean", "sd", "quantiles", "probabilities"):
            np.testing.assert_array_equal(getattr(there, k), getattr(found, k))
        assert there.functions.keys() == found.functions.keys() and len(there.functions) in (1, 3)


def test_steering(dev, data):
    c = ulisse.connect(dev.url)
    job = c.submit({**specification(), **LONG, "name": "long"}, data)
    assert c.submit({**specification(), **LONG, "name": "long"}, data, client_id="once").id == c.submit(
        {**specification(), **LONG, "name": "long"}, data, client_id="once").id
    dev.until(lambda: job.status.draws > 0)
    assert job.summary() is not None and job.status.state == "sampling"
    first = job._draws()["posterior"]["draw"].size  # of a job that goes on
    assert first > 0
    assert job.pause().status.state == "paused"
    assert job.resume().status.state in ("queued", "preparing", "warmup", "sampling")
    found = c.jobs("long", states=["sampling", "queued", "warmup", "preparing"])
    assert {j.id for j in found} >= {job.id} and c.job("long").name == "long" and c.job(job.id).id == job.id
    for j in c.jobs("long"):
        j.cancel()
    with pytest.raises(ulisse.JobFailed, match="long was cancelled"):
        job.watch(progress=False)
    assert any(line.get("msg") == "gradient" and line["worker"] for line in job.logs())
    assert "worker-1" in list(c.workers().index)
    job.delete()
    with pytest.raises(ulisse.NotFound):
        c.job(job.id)
    with pytest.raises(ulisse.NotFound, match="there is no job 'nobody'"):
        c.job("nobody")
    assert [j.id for j in ulisse.jobs(limit=1, cluster=dev.url)] == [c.jobs()[0].id]


def test_extend(dev, data):
    job = ulisse.submit(specification(), data, cluster=dev.url).watch(progress=False)
    before = job._draws()["posterior"]["noise_sd"]
    job.extend(10).watch(progress=False)
    after = job._draws()["posterior"]["noise_sd"]
    assert after.shape[1] >= 30 and after[:, :20].tobytes() == before.tobytes()


def test_unconverged(dev, data):
    spec = {**specification(), "stop": {**QUICK["stop"], "rhat": 1.0001, "ess": 1e6}}
    with pytest.warns(ulisse.NotConverged, match="small has not converged: it ended by max_draws"):
        ulisse.submit(spec, data, cluster=dev.url).watch(progress=False)


def test_watch_shows(dev, data, capsys):
    ulisse.submit({**specification(), "name": "shown"}, data, cluster=dev.url).watch()
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("shown: ") and lines[-1].startswith("shown: converged  20 of 20 draws a chain  R-hat ")


def test_files(dev, tmp_path, data):
    from ulisse.table import Table

    (tmp_path / "t.csv").write_bytes(Table.of(data).csv())
    spec = specification()
    spec["data"]["path"] = "t.csv"
    (tmp_path / "s.json").write_text(json.dumps(spec))
    c = ulisse.connect(dev.url)
    assert c.submit(tmp_path / "s.json").watch(progress=False).converged
    assert c.submit(json.dumps(spec, indent=1), tmp_path / "t.csv").watch(progress=False).converged
    with pytest.raises(ulisse.BadInput, match="cannot read the data"):
        c.submit(tmp_path / "s.json", tmp_path / "nowhere.csv")
    made = {**QUICK, "name": "made", "data": {"synthetic": {"n": 50, "d": 2, "sigma": 1, "tau": 1, "lambda": 0.1}}}
    assert c.submit(made).watch(progress=False).converged


@pytest.mark.parametrize("as_text", [False, True])
def test_bad_specification(dev, data, as_text):
    spec = {**specification(), "model": {"kernel": "rbff"}}
    with pytest.raises(ulisse.BadSpecification, match='there is no covariance "rbff"') as e:
        ulisse.submit(json.dumps(spec, indent=1) if as_text else spec, data, cluster=dev.url)
    assert e.value.field == "model.kernel"
    assert str(e.value).startswith("line 8, column 13: model.kernel: " if as_text else "model.kernel: ")
    assert e.value.line == (8 if as_text else None)


def test_another_coordinator_answers(dev):
    c = ulisse.connect(["http://127.0.0.1:1", dev.url])
    assert isinstance(c.jobs(), list) and c.addresses[0] == dev.url
    with pytest.raises(ulisse.Unreachable, match="no answer from http://127.0.0.1:1: connection refused"):
        ulisse.connect("http://127.0.0.1:1").jobs()


def test_contexts(dev, dev_tls, monkeypatch):
    """Those of the command line."""
    files = [f"--{k.replace('_', '-')}={v}" for k, v in dev_tls.tls.items()]
    program.call(["context", "add", "lab", dev_tls.at["grpc"], *files])
    program.call(["context", "add", "plain", dev.at["grpc"]])
    for name in (None, "lab"):  # the first is the current one
        c = ulisse.connect(name)
        assert c.addresses == [dev_tls.url] and len(c.workers()) == 1
    assert ulisse.connect("plain").addresses == [dev.url]
    with pytest.raises(ulisse.BadInput, match='there is no context "home"'):
        ulisse.connect("home")
    monkeypatch.setenv("ULISSE_COORDINATORS", dev.at["grpc"])
    assert ulisse.connect().addresses == [dev.url]
    monkeypatch.setenv("ULISSE", "http://127.0.0.1:9")
    assert ulisse.connect().addresses == ["http://127.0.0.1:9"]


def test_tls(dev_tls, data, done):
    c = ulisse.connect(dev_tls.url, **dev_tls.tls)
    job = c.submit(specification(), data).watch(progress=False)
    assert job._draws()["posterior"]["noise_sd"].tobytes() == done._draws()["posterior"]["noise_sd"].tobytes()
    assert pickle.loads(pickle.dumps(job)).refresh().converged  # certificates are files
    with pytest.raises(ulisse.Unreachable, match="certificate that is not to be trusted.*tls_ca"):
        ulisse.connect(dev_tls.url).jobs()
    with pytest.raises(ulisse.UlisseError, match="who you are|certificate"):
        ulisse.connect(dev_tls.url, tls_ca=dev_tls.tls["tls_ca"]).jobs()
    with pytest.raises(ulisse.Unreachable):
        ulisse.connect(dev_tls.url.replace("https", "http")).jobs()
    with pytest.raises(ulisse.BadInput, match="the certificates"):
        ulisse.connect(dev_tls.url, tls_ca="nowhere.crt")


def test_tokens(tmp_path_factory, data):
    """Users who say who they are, and may not do everything."""
    folder = tmp_path_factory.mktemp("tokens")
    process = subprocess.Popen(
        [program.find(), "coordinator", "--id", "a", "--dir", str(folder / "a"), "--auth", "tokens", "--metrics", "",
         "--listen", "127.0.0.1:0", "--raft", "127.0.0.1:0", "--http", "127.0.0.1:0", "--disk-reserve", "1"],
        stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True, text=True,
    )
    try:
        for line in process.stderr:
            if "coordinator ready" in line:
                url = "http://" + line.split(" http=")[1].split()[0]
                grpc = line.split(" grpc=")[1].split()[0]
                break
        threading.Thread(target=process.stderr.read, daemon=True).start()
        deadline = time.monotonic() + 180
        while not (folder / "a" / "admin-token").is_file():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        admin = (folder / "a" / "admin-token").read_text().strip()
        made = program.call(["tokens", "create", "eve", "--role", "viewer", "--for", "default", "--json", "--coordinators", grpc,
                             "--token-file", str(folder / "a" / "admin-token")])
        viewer = json.loads(made)["secret"]
        assert ulisse.connect(url, token=admin).jobs() == []
        assert ulisse.connect(url, token=viewer).jobs() == []
        with pytest.raises(ulisse.PermissionDenied, match="role submitter"):
            ulisse.connect(url, token=viewer).submit(specification(), data)
        with pytest.raises(ulisse.PermissionDenied, match="token"):
            ulisse.connect(url).jobs()
        with pytest.raises(ulisse.PermissionDenied):
            ulisse.connect(url, token="uls_wrong").jobs()
        c = ulisse.connect(url, token=admin)
        assert b"uls_" not in pickle.dumps(c)
        job = c.submit(specification(), data)
        assert job.status.state == "queued"  # nobody computes
    finally:
        process.terminate()
        process.wait(30)
        process.stderr.close()
    with pytest.raises(ulisse.BadInput, match="a token goes over TLS"):
        ulisse.connect("http://10.0.0.1:7002", token="x")


class Strange(BaseHTTPRequestHandler):
    """A server that is no coordinator, or one in trouble."""

    def log_message(self, *args):
        pass

    def do_GET(self):
        kind = self.path.strip("/").split("/")[-1].split("?")[0]
        if kind == "jobs":
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"<html>hello</html>")
        elif kind == "broken:watch":
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"result": {"state": "JOB_STATE_SAMP')
        elif kind == "workers":
            self.server.asked += 1
            text = json.dumps({"workers": [{"id": "w"}]} if self.server.asked > 2 else {"code": 14, "message": "there is no leader", "details": []}).encode()
            self.send_response(200 if self.server.asked > 2 else 503)
            self.end_headers()
            self.wfile.write(text)
        elif kind == "members":
            self.send_response(302)
            self.send_header("Location", "/login")
            self.end_headers()
        else:
            self.send_error(404)


def test_strange_servers():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Strange)
    server.asked = 0
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        c = ulisse.connect(f"http://127.0.0.1:{server.server_port}")
        with pytest.raises(ulisse.Unreachable, match="does not speak the JSON API of ulisse"):
            c.jobs()
        with pytest.raises(ulisse.Unreachable, match=r"HTTP 404"):
            c.call("GET", "/v1/nothing")
        with pytest.raises(ulisse.PermissionDenied, match="asks who you are"):
            c.call("GET", "/v1/cluster/members")
        with pytest.raises(ulisse.Unreachable, match="broke off"):
            list(c.stream("GET", "/v1/jobs/broken:watch"))
        assert len(c.workers()) == 1 and server.asked == 3  # no leader at first
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    with pytest.raises(ulisse.BadInput, match="give http://host:port"):
        ulisse.connect(["lab:7002"])


@pytest.mark.parametrize(
    "body, kind",
    [
        ({"code": 3, "message": "m"}, ulisse.BadInput),
        ({"code": 5, "message": "m"}, ulisse.NotFound),
        ({"code": 7, "message": "m"}, ulisse.PermissionDenied),
        ({"code": 16, "message": "m"}, ulisse.PermissionDenied),
        ({"code": 14, "message": "m"}, ulisse.Unreachable),
        ({"code": 8, "message": "m"}, ulisse.UlisseError),
        ({"code": 9, "message": "m"}, ulisse.UlisseError),
        ({"code": 3, "message": "m", "details": [{"field_violations": [{"field": "spec.seed"}]}]}, ulisse.BadSpecification),
    ],
)
def test_errors_of_the_api(body, kind):
    error = _cluster._error(body)
    assert isinstance(error, kind) and str(error) == "m"
    if kind is ulisse.UlisseError:
        assert type(error) is kind


def test_silent_warnings(job):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        repr(job), job._repr_html_(), repr(job.cluster)
