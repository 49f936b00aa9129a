"""Runs on this machine."""

import csv
import gc
import glob
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import numpy as np
import pytest

import ulisse
from conftest import QUICK, columns, specification


def draws_in(folder):
    """The draws that the program wrote, by name: chains × draws."""
    chains = []
    for path in sorted(glob.glob(os.path.join(folder, "draws", "*.csv"))):
        with open(path) as f:
            header, *rows = [r for r in csv.reader(f) if r and not r[0].startswith("#")]
        chains.append(np.array(rows, dtype=float))
    return {name: np.stack([c[:, k] for c in chains]) for k, name in enumerate(header)}


def test_results(done, data):
    truth = draws_in(done.folder)
    post = done._draws()["posterior"]
    assert post.dims["noise_sd"] == ["chain", "draw"] and list(post["input"]) == ["time", "dose"]
    vectors = 0
    for name, x in post.items():
        if post.dims[name] == ["chain", "draw"]:
            assert x.tobytes() == truth[name].tobytes(), name
        elif post.dims[name] == ["chain", "draw", "input"]:
            vectors += 1
            for k in range(2):  # CmdStan's own names of elements
                column = f"{name}.{k + 1}" if f"{name}.{k + 1}" in truth else f"{name}.{post['input'][k]}"
                assert x[:, :, k].tobytes() == truth[column].tobytes(), name
    assert vectors > 0
    assert done._draws()["observed_data"]["y"].shape == (60,)
    sum = done.summary()
    pd = pytest.importorskip("pandas")
    assert isinstance(sum, pd.DataFrame)
    assert sum.loc["noise_sd", "mean"] == pytest.approx(truth["noise_sd"].mean(), rel=1e-12)
    assert done.draws()["noise_sd"].to_numpy().tobytes() == truth["noise_sd"].tobytes()
    assert done.info == (["time", "dose"], "response")
    assert any(line["msg"] == "gradient" for line in done.logs())
    assert done.status.draws == 20 and done.status.wanted == 20 and done.ended


def test_xarray(done):
    pytest.importorskip("xarray")
    post = done.posterior
    assert post.posterior["noise_sd"].dims == ("chain", "draw")
    vector = next(v for v in post.posterior.data_vars.values() if "input" in v.dims)
    assert vector.sel(input="dose").shape == (2, 20)
    assert post.posterior.attrs["ulisse_name"] == "small"
    assert set(post) >= {"posterior", "sample_stats", "observed_data", "constant_data"}


def test_arviz(done, monkeypatch):
    """ArviZ before 1 is handed groups by name, from 1 on a tree of xarray; Debian has neither."""
    xarray = pytest.importorskip("xarray")
    import types

    old = types.ModuleType("arviz")
    old.InferenceData = lambda **groups: ("idata", groups)
    monkeypatch.setitem(sys.modules, "arviz", old)
    kind, groups = done.posterior
    assert kind == "idata" and isinstance(groups["posterior"], xarray.Dataset)
    monkeypatch.setitem(sys.modules, "arviz", types.ModuleType("arviz"))
    monkeypatch.setattr(xarray, "DataTree", types.SimpleNamespace(from_dict=lambda groups: ("tree", groups)), raising=False)
    kind, groups = done.posterior
    assert kind == "tree" and "sample_stats" in groups


def mixture(job, data, new):
    """The mean, sd and log density at new rows by dense algebra, averaged over all draws: matern52 with a tau for
    each input."""
    names = ["time", "dose"]
    scale = {k: (data[k].mean(), data[k].std()) for k in [*names, "response"]}
    z = np.column_stack([(data[k] - scale[k][0]) / scale[k][1] for k in names])
    s = np.column_stack([(new[k] - scale[k][0]) / scale[k][1] for k in names])
    y = (data["response"] - scale["response"][0]) / scale["response"][1]
    d = job._draws()["posterior"]
    width = scale["response"][1]
    noise = (d["noise_sd"] / width) ** 2
    signal = (d["signal_sd"] / width) ** 2 if "signal_sd" in d else d["sigma"]
    length = d["lengthscale"] / [scale[k][1] for k in names]

    def cov(a, b, sigma, tau):
        # tau = 1/(2 l^2), so that the scaled distance is sqrt(5) r = sqrt(10 sum tau (x-x')^2)
        r = np.sqrt(10 * ((a[:, None, :] - b[None, :, :]) ** 2 @ tau))
        return sigma * (1 + r + r**2 / 3) * np.exp(-r)

    means, vars = [], []
    for c in range(2):
        for t in range(len(d["draw"])):
            sigma, tau, lam = signal[c, t], 1 / (2 * length[c, t] ** 2), noise[c, t]
            k = cov(z, z, sigma, tau) + lam * np.eye(len(z))
            ks = cov(s, z, sigma, tau)
            means.append(ks @ np.linalg.solve(k, y))
            vars.append(sigma + lam - np.einsum("ij,ji->i", ks, np.linalg.solve(k, ks.T)))
    means, vars = np.array(means), np.array(vars)
    mean = means.mean(0)
    sd = np.sqrt((vars + means**2).mean(0) - mean**2)
    centre, width = scale["response"]
    at = (new["response"] - centre) / width
    density = np.log((np.exp(-0.5 * (at - means) ** 2 / vars) / np.sqrt(2 * np.pi * vars)).mean(0)) - np.log(width)
    return centre + width * mean, width * sd, density


def test_predictions_against_dense_algebra(done, data):
    new = {k: v[:5] + 0.1 for k, v in columns(seed=2).items()}
    p = done.predict(new, quantiles=[0.1, 0.9], draws=40)
    mean, sd, density = mixture(done, data, new)
    # 1e-2 of an sd: the program's solves are to a tolerance
    np.testing.assert_allclose(p.mean, mean, atol=1e-2 * sd.min())
    np.testing.assert_allclose(p.sd, sd, rtol=2e-3)
    assert p.quantiles.shape == (5, 2) and (p.quantiles[:, 0] < p.mean).all()
    np.testing.assert_allclose(p.log_density, density, atol=1e-2)  # the table holds the target
    latent = done.predict(new, latent=True, draws=40)
    assert (latent.sd < p.sd).all()
    bare = np.column_stack([new["time"], new["dose"]])
    again = done.predict(bare, draws=40)
    assert again.mean.tobytes() == p.mean.tobytes() and again.log_density is None
    swapped = done.predict({"other": np.zeros(5), "dose": new["dose"], "time": new["time"]}, draws=40)
    assert swapped.mean.tobytes() == p.mean.tobytes()
    with pytest.raises(ulisse.BadInput, match="X has no column dose: it has time"):
        done.predict({"time": new["time"]})
    with pytest.raises(ulisse.BadInput, match="3 columns, but the run has 2 inputs: time, dose"):
        done.predict(np.zeros((2, 3)))
    with pytest.raises(ulisse.BadInput, match='^row 2, column "dose"'):
        done.predict({"time": [1.0, 2.0], "dose": [1.0, np.nan]})
    with pytest.raises(ulisse.BadInput, match="2 is not a probability"):
        done.predict(bare, quantiles=[2])


def test_samples_follow_the_prediction(done):
    x = np.array([[1.0, 0.5], [1.1, 0.5], [30.0, 5.0]])
    p = done.predict(x, quantiles=[0.025, 0.25, 0.5, 0.75, 0.975])
    n = 20000
    y = done.sample(x, n, seed=3)
    assert y.shape == (3, n)
    # The part of the samples below a quantile: within 4.5 standard errors, a false alarm in 10^4 runs of these 15.
    for k, q in enumerate([0.025, 0.25, 0.5, 0.75, 0.975]):
        below = (y < p.quantiles[:, [k]]).mean(axis=1)
        assert (abs(below - q) < 4.5 * np.sqrt(q * (1 - q) / n)).all()
    assert y.tobytes() == done.sample(x, n, seed=3).tobytes() != done.sample(x, n).tobytes()
    assert done.sample(x[::-1], 5, seed=3)[::-1].tolist() == y[:, :5].tolist()


def test_samples_are_joint(done):
    x = np.column_stack([np.linspace(2, 4, 9), np.full(9, 0.5)])
    found, cov = done.covariance(x)
    assert found.quantiles.shape == (9, 0) and cov.shape == (9, 9) and (cov == cov.T).all()
    np.testing.assert_allclose(np.sqrt(np.diag(cov)), done.predict(x).sd, rtol=2e-4)
    np.testing.assert_allclose(found.mean, done.predict(x).mean, atol=1e-9)
    latent, n = done.covariance(x, latent=True)[1], 20000
    assert np.allclose(latent - np.diag(np.diag(latent)), cov - np.diag(np.diag(cov))) and (np.diag(latent) < np.diag(cov)).all()
    # A covariance of n samples is off by 5 of its standard errors, were they normal, once in 10^4 runs of these 45.
    sampled = np.cov(done.sample(x, n, seed=1, latent=True))
    error = np.sqrt((np.outer(np.diag(latent), np.diag(latent)) + latent**2) / n)
    assert (abs(sampled - latent) < 5 * error).all() and latent[0, 1] > 5 * error[0, 1]
    for bad in ({"n": 0}, {"seed": -1}, {"seed": 2**64}):
        with pytest.raises(ulisse.BadInput):
            done.sample(x, **bad)
    with pytest.raises(ulisse.BadInput, match="4096 different rows at most"):
        done.sample(np.column_stack([np.arange(5000.0), np.zeros(5000)]))


def test_pickle(done):
    other = pickle.loads(pickle.dumps(done))
    x = np.array([[1.0, 0.5]])
    assert other.folder != done.folder and other.converged
    assert other.predict(x).mean.tobytes() == done.predict(x).mean.tobytes()
    assert other._draws()["posterior"]["noise_sd"].tobytes() == done._draws()["posterior"]["noise_sd"].tobytes()
    assert other.name == "small" and other.status.draws == 20


def test_pickle_of_a_path(tmp_path, spec, data):
    from ulisse.table import Table

    table = tmp_path / "my 'odd' table.csv"
    table.write_bytes(Table.of(data).csv())
    job = ulisse.run(spec, table, threads=1).watch(progress=False)
    x = np.array([[1.0, 0.5]])
    want = job.predict(x).mean
    text = pickle.dumps(job)
    table.unlink()
    assert pickle.loads(text).predict(x).mean.tobytes() == want.tobytes()


def test_nothing_is_left(spec, data):
    job = ulisse.run({**spec, "stop": {"max_time": "10m", "ess": 1e9, "max_draws": 10**6}}, data, threads=1)
    folder, process = job.folder, job._child.process
    assert folder.is_dir() and process.poll() is None
    del job
    gc.collect()
    assert process.poll() is not None and not folder.exists()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks")
def test_forks_leave_it_alone(done):
    """joblib and multiprocessing fork: what their processes throw away is still the parent's."""
    pid = os.fork()
    if pid == 0:
        done._held.let_go()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0 and (done.folder / "result.json").is_file()


def test_folder(tmp_path, spec, data):
    job = ulisse.run(spec, data, folder=tmp_path / "kept", threads=1).watch(progress=False)
    x = np.array([[1.0, 0.5]])
    want = job.predict(x).mean
    del job
    gc.collect()
    again = ulisse.load(tmp_path / "kept")
    assert again.converged and again.predict(x).mean.tobytes() == want.tobytes() and again.name == "small"
    with pytest.raises(ulisse.BadInput, match="is not empty"):
        ulisse.run(spec, data, folder=tmp_path / "kept")
    with pytest.raises(ulisse.BadInput, match="not the folder of a run"):
        ulisse.load(tmp_path)


ENDLESS = {"rhat": 1.0001, "ess": 1e6, "max_draws": 400, "max_time": "5m"}


def interrupt(job):
    while job.status.draws < 20 and not job.ended:
        time.sleep(0.005)
    os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.skipif(os.name == "nt", reason="a console's interrupt reaches all of its processes")
def test_interrupt_and_resume(spec, data):
    """Ctrl-C stops a run that goes on later, to the draws that it would have had."""
    spec = {**spec, "stop": ENDLESS}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ulisse.NotConverged)
        whole = ulisse.run(spec, data, threads=1).watch(progress=False)
    job = ulisse.run(spec, data, threads=1)

    with pytest.raises(KeyboardInterrupt):
        thread = threading.Thread(target=interrupt, args=(job,))
        thread.start()
        job.watch(progress=False)
    thread.join()
    assert job._child.process.poll() == 130 and job.status.state == "paused"
    assert "noise_sd" in job.summary().index  # what is there so far
    job.resume()
    with pytest.warns(ulisse.NotConverged, match="it ended by max_draws"):
        job.watch(progress=False)
    assert job._summary()["draws_sha256"] == whole._summary()["draws_sha256"]
    assert draws_in(job.folder)["noise_sd"].tobytes() == draws_in(whole.folder)["noise_sd"].tobytes()


def test_pause_cancel(spec, data):
    job = ulisse.run({**spec, "stop": {**ENDLESS, "max_draws": 10**6}}, data, threads=1)
    assert job.pause().status.state == "paused"
    assert job.resume().status.state in ("preparing", "warmup", "sampling")
    job.cancel()
    with pytest.raises(ulisse.JobFailed, match="small was cancelled"):
        job.watch(progress=False)


def test_stops_with_python(tmp_path):
    """A program that ends, or is told to end, takes its run with it."""
    code = f"""
import sys; sys.path[:0] = {[str(Path(__file__).parent), str(Path(__file__).parents[1])]!r}
import ulisse, conftest
job = ulisse.run({{**conftest.specification(), "stop": {ENDLESS!r}}}, conftest.columns(), folder={str(tmp_path / "run")!r}, threads=1)
print(job._child.process.pid, flush=True)
sys.exit("the end")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert "the end" in done.stderr, done.stderr
    with pytest.raises(ProcessLookupError):
        os.kill(int(done.stdout), 0)
    assert ulisse.load(tmp_path / "run").status.state == "paused"


@pytest.mark.parametrize(
    "change, error, field, said",
    [
        ({"model": {"kernel": "rbff"}}, ulisse.BadSpecification, "model.kernel", '"rbff"'),
        ({"model": {"frequency": 1}}, ulisse.BadSpecification, "model.frequency", "unknown field"),
        ({"sampler": {"chains": -1}}, ulisse.BadSpecification, "sampler.chains", ""),
        ({"name": ""}, ulisse.BadSpecification, "name", "a job needs a name"),
        ({"data": {"path": "t", "target": "respons"}}, ulisse.BadInput, None, "respons"),
    ],
)
def test_bad_specifications(spec, data, change, error, field, said):
    with pytest.raises(error) as e:
        ulisse.run({**spec, **change}, data)
    assert said in str(e.value) and ".json" not in str(e.value) and "line" not in str(e.value)
    assert isinstance(e.value, ValueError)
    if field:
        assert e.value.field == field and e.value.line is None
        copy = pickle.loads(pickle.dumps(e.value))
        assert (str(copy), copy.field) == (str(e.value), field)


def test_place_in_a_text(tmp_path, data):
    text = "name: a\ndata: {path: t, target: response}\nmodel:\n  kernel: rbff\n"
    for spec in (text, tmp_path / "s.yaml"):
        if isinstance(spec, Path):
            spec.write_text(text)
        with pytest.raises(ulisse.BadSpecification) as e:
            ulisse.run(spec, data)
        assert (e.value.field, e.value.line, e.value.column) == ("model.kernel", 4, 11)
        assert str(e.value).startswith("line 4" if isinstance(spec, str) else f"{spec}: line 4, column 11: model.kernel: ")
    with pytest.raises(ulisse.BadInput, match="cannot read the specification"):
        ulisse.run("nowhere.yaml", data)


def test_bad_table(spec, data):
    with pytest.raises(ulisse.BadInput, match='^row 3, column "dose"'):
        ulisse.run(spec, {**data, "dose": np.array([1.0, 2.0, np.nan] + [3.0] * 57)})
    with pytest.raises(ulisse.BadInput, match='^the table: there is no column "response"'):
        ulisse.run(spec, {"a": data["time"], "b": data["dose"]})
    with pytest.raises(ulisse.BadInput):
        ulisse.run(spec, "nowhere.csv")


def test_too_short(data, spec):
    spec = {**spec, "stop": {**QUICK["stop"], "rhat": 1.0001, "ess": 1e6}}
    with pytest.warns(ulisse.NotConverged, match="small has not converged: it ended by max_draws") as seen:
        job = ulisse.run(spec, data, threads=1).watch(progress=False)
    assert len(seen) == 1 and job.status.state == "unconverged" and job.warnings
    assert job.summary() is not None


def test_provisional(spec, data):
    job = ulisse.run({**spec, "stop": ENDLESS}, data, threads=1)
    try:
        deadline = time.monotonic() + 180
        while job.provisional is None:
            assert time.monotonic() < deadline and not job.ended
            time.sleep(0.01)
        table = job.provisional
        assert "provisional" in table.attrs["note"] and "noise_sd" in table.index
    finally:
        job.pause()


def test_no_program(monkeypatch, spec, data):
    monkeypatch.setenv("ULISSE_BINARY", "/nowhere/ulisse")
    with pytest.raises(ulisse.UlisseError, match="ULISSE_BINARY names /nowhere/ulisse, which is not there"):
        ulisse.run(spec, data)
    monkeypatch.delenv("ULISSE_BINARY")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ulisse.UlisseError, match="there is no program ulisse: install a wheel"):
        ulisse.run(spec, data)


def test_without_the_optional_packages(data):
    """NumPy alone will do."""
    code = f"""
import sys; sys.path[:0] = {[str(Path(__file__).parent), str(Path(__file__).parents[1])]!r}
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("pandas", "xarray", "arviz", "sklearn", "matplotlib", "pyarrow", "scipy", "yaml", "IPython", "pytest"):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Missing())
import numpy as np
import ulisse
rng = np.random.default_rng(1)
X = rng.normal(size=(40, 2)); y = X[:, 0] + 0.1 * rng.normal(size=40)
gp = ulisse.GaussianProcess(kernel="rbf", chains=2, draws=20, rhat=3, ess=1, threads=1, spec={{"sampler": {{"warmup": 20}}}})
assert "kernel='rbf'" in repr(gp) and gp.get_params()["chains"] == 2 and gp.set_params(seed=2) is gp
try: gp.predict(X)
except ValueError as e: assert "not fitted" in str(e)
else: assert False
gp.fit(X, y)
assert gp.score(X, y) > 0.9
assert isinstance(gp.summary(), list) and gp.summary()[0]["name"]
post = gp.posterior.posterior
assert post["noise_sd"].shape == (2, 20) and post.dims["noise_sd"] == ["chain", "draw"]
assert set(gp.job_.draws()) > {{"chain", "draw", "noise_sd"}}
try: gp.plot_posterior()
except ulisse.UlisseError as e: assert "Matplotlib" in str(e)
else: assert False
print("good")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.stdout == "good\n", done.stderr
