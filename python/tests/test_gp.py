"""The estimator."""

import os
import pickle
import threading
import time
import warnings

import numpy as np
import pytest

import ulisse
from conftest import columns, gp
from test_local import interrupt


@pytest.fixture(scope="module")
def fitted():
    data = columns()
    X = np.column_stack([data["time"], data["dose"]])
    return gp(ard=True).fit(X, data["response"]), X, data["response"]


def test_fit_of_arrays(fitted, done):
    m, X, y = fitted
    assert m.converged_ and m.n_features_in_ == 2 and not hasattr(m, "feature_names_in_") and m.target_ == "y"
    mean, sd = m.predict(X, return_std=True)
    # The same data, specification and seed as the run in a table with names: the same draws.
    assert m.job_._summary()["draws_sha256"] == done._summary()["draws_sha256"]
    assert mean.tobytes() == done.predict(X).mean.tobytes() == m.predict(X).tobytes()
    assert m.score(X, y) == pytest.approx(1 - np.sum((y - mean) ** 2) / np.sum((y - y.mean()) ** 2), abs=1e-12) and m.score(X, y) > 0.9
    q = m.predict_quantiles(X, [0.05, 0.5, 0.95])
    assert q.shape == (60, 3) and ((q[:, 0] < mean) & (mean < q[:, 2])).all()
    assert m.predict_quantiles(X[:2], 0.5).shape == (2, 1)
    assert m.sample_y(X[:3], 4).shape == (3, 4) and m.sample_y(X[:3], 4).tobytes() == m.sample_y(X[:3], 4, random_state=0).tobytes()
    means, cov = m.predict(X[:5], return_cov=True)
    np.testing.assert_allclose(means, mean[:5], atol=1e-9)
    np.testing.assert_allclose(np.sqrt(np.diag(cov)), sd[:5], rtol=2e-4)
    with pytest.raises(ulisse.BadInput, match="at most one of return_std and return_cov"):
        m.predict(X, return_std=True, return_cov=True)
    assert m.log_score(X, y) == done.predict({"time": X[:, 0], "dose": X[:, 1], "response": y}).log_density.mean()
    assert (m.predict(X, return_std=True, latent=True)[1] < sd).all()


def test_names_of_columns(frame):
    m = gp(target="response").fit(frame)
    assert list(m.feature_names_in_) == ["time", "dose"] and m.n_features_in_ == 2
    swapped = frame[["response", "dose", "time"]].assign(other=1.0)  # by name, where the table held the target
    assert m.predict(swapped).tobytes() == m.predict(frame[["time", "dose"]]).tobytes()
    assert m.score(frame) == m.score(frame, frame["response"]) > 0.9
    assert m.log_score(frame) == m.log_score(frame, frame["response"])
    assert m.predict(frame[["time", "dose"]].to_numpy()).tobytes() == m.predict(frame).tobytes()
    some = gp(target="response", exclude=["dose"]).fit(frame)
    assert list(some.feature_names_in_) == ["time"]
    other = gp(target="response", inputs=["time"]).fit(frame)
    assert other.predict(frame).tobytes() == some.predict(frame).tobytes()


def test_table_in_a_file(tmp_path, frame):
    path = tmp_path / "t.csv"
    frame.to_csv(path, index=False, float_format="%.17g")
    m = gp(target="response").fit(path)
    assert list(m.feature_names_in_) == ["time", "dose"]
    assert m.predict(frame).tobytes() == gp(target="response").fit(frame).predict(frame).tobytes()
    for bad in (lambda: gp().fit(path), lambda: gp(target="response").fit(path, frame["response"])):
        with pytest.raises(ulisse.BadInput):
            bad()


def test_parameters_reach_the_program(data, frame):
    m = gp(
        ard=True, target="response", priors={"sigma": "gamma(2,1)"}, seed=5, max_time=90, chains=np.int64(3),
        spec={"sampler": {"warmup": 20, "method": "fisher"}, "solver": {"tolerance": 1e-4}},
    ).fit(frame)
    text = (m.job_.folder / "spec.yaml").read_text()
    for line in ("kernel: matern52", "ard: true", "sigma: gamma(2,1)", "seed: 5", "max_time: 1m30s", "chains: 3", "warmup: 20", "tolerance: \"0.0001\""):
        assert line in text or line.replace('"', "") in text, text
    for name, value, field in (("mean", "no such mean", "model.mean"), ("noise", {"column": "time", "as": "none"}, "model.noise.as"), ("kernel", "rbff", "model.kernel")):
        with pytest.raises(ulisse.BadSpecification) as e:
            gp(target="response").set_params(**{name: value}).fit(frame)
        assert e.value.field == field
    import datetime

    assert ulisse.GaussianProcess(max_time=datetime.timedelta(hours=1)).specification()["stop"]["max_time"] == "3600s"
    with pytest.raises(ulisse.BadInput, match="max_time"):
        ulisse.GaussianProcess(max_time=-1).specification()


def rows_with(n=40):
    rng = np.random.default_rng(3)
    t = rng.uniform(0, 10, n)
    return {
        "t": t, "y": np.sin(t) + rng.normal(0, 0.2, n), "station": np.array(["north", "south"] * (n // 2)), "error": rng.uniform(0.1, 0.3, n),
        "repeats": rng.integers(1, 5, n), "known": rng.normal(size=n),
    }


def test_what_is_said_of_rows():
    """Noise, weights and an offset: by columns and by arrays the run is that of the specification that says so."""
    table = rows_with()
    by_name = gp(target="y", noise={"column": "error", "by": "station"}, weights="repeats", offset="known", inputs=["t"])
    spec = by_name.specification()
    assert spec["data"] == {"path": "table", "target": "y", "inputs": ["t"], "weights": "repeats", "offset": "known"}
    assert spec["model"] == {"kernel": "matern52", "noise": {"column": "error", "by": "station"}}
    by_name.fit(table)
    said = {"noise": table["error"], "weights": table["repeats"], "offset": table["known"]}
    by_array = gp(noise={"by": "station"}, inputs=["t"])
    X = {"t": table["t"], "station": table["station"], "offset": table["t"]}  # an input that has the name of an argument
    by_array.fit(X, table["y"], **said)
    assert by_array.job_._summary()["draws_sha256"] == by_name.job_._summary()["draws_sha256"]
    mean, sd = by_name.predict(table, return_std=True)
    same = by_array.predict(X, return_std=True, **said)
    assert same[0].tobytes() == mean.tobytes() and same[1].tobytes() == sd.tobytes()
    assert by_array.log_score(X, table["y"], **said) == by_name.log_score(table)
    assert by_name.predict(table, offset=table["known"] + 1) == pytest.approx(mean + 1, abs=1e-9)
    noisier = by_name.predict(table, return_std=True, noise=2 * table["error"])[1]
    assert noisier**2 - sd**2 == pytest.approx(3 * table["error"] ** 2, rel=1e-4)  # solves are to a relative error of 1e-4
    # The latent function needs no noise.
    few = {"t": table["t"][:5], "known": table["known"][:5]}
    assert by_name.predict(few, latent=True) == pytest.approx(mean[:5], abs=1e-9)
    with pytest.raises(ulisse.BadInput, match="noise: fit had one of each row: .* in a column error or by noise="):
        by_name.predict(few)
    with pytest.raises(ulisse.BadInput, match="trials: fit was given none"):
        by_name.predict(table, trials=table["repeats"])
    bare = by_name.job_  # a run knows what its rows need
    assert bare.predict(table).mean.tobytes() == mean.tobytes()
    with pytest.raises(ulisse.BadInput, match="X has no column known"):
        bare.predict({"t": table["t"]}, latent=True)


def test_classes():
    table = rows_with()
    words = np.array(["dry", "wet"], dtype=object)[(table["y"] > 0).astype(int)]
    m = gp(likelihood="bernoulli", link="probit").fit(table["t"][:, None], words)
    assert m.job_.folder.joinpath("spec.yaml").read_text().count("link: probit") == 1
    assert list(m.classes_) == ["dry", "wet"]
    p = m.predict_proba(table["t"][:, None])
    assert p.shape == (40, 2) and p.sum(axis=1) == pytest.approx(1) and p[:, 1].tobytes() == m.predict(table["t"][:, None]).tobytes()
    wet = words == "wet"
    assert m.log_score(table["t"][:, None], words) == pytest.approx(np.mean(np.log(np.where(wet, p[:, 1], p[:, 0]))), abs=1e-12)
    assert m.score(table["t"][:, None], words) == pytest.approx(1 - np.sum((wet - p[:, 1]) ** 2) / np.sum((wet - wet.mean()) ** 2), abs=1e-12)
    with pytest.raises(ulisse.BadInput, match="y has a value that is none of dry, wet"):
        m.score(table["t"][:, None], ["damp"] * 40)
    assert not hasattr(gp(), "predict_proba") and not hasattr(gp(likelihood="bernoulli"), "classes_")


def test_ordered_classes():
    table = rows_with()
    grades = np.array(["low", "mid", "high"], dtype=object)[np.digitize(table["y"], [-0.5, 0.5])]
    with pytest.raises(ulisse.UlisseError, match="whose order is not told"):
        gp(likelihood="ordinal").fit(table["t"][:, None], grades)
    m = gp(likelihood="ordinal", levels={"y": ["low", "mid", "high"]}).fit(table["t"][:, None], grades)
    assert list(m.classes_) == ["low", "mid", "high"]
    p = m.predict_proba(table["t"][:, None])
    assert p.shape == (40, 3) and p.sum(axis=1) == pytest.approx(1) and m.predict(table["t"][:, None]) == pytest.approx(p @ [0, 1, 2])
    seen = p[np.arange(40), np.digitize(table["y"], [-0.5, 0.5])]
    assert m.log_score(table["t"][:, None], grades) == pytest.approx(np.mean(np.log(seen)), abs=1e-12)
    assert "gap[mid]" in str(m.summary())


def test_classes_without_an_order():
    table = rows_with()
    X = table["t"][:, None]
    kinds = np.array(["oak", "ash", "elm"], dtype=object)[np.digitize(table["y"], [-0.5, 0.5])]
    m = gp(likelihood="categorical").fit(X, kinds)
    assert list(m.classes_) == ["ash", "elm", "oak"]
    p = m.predict_proba(X)
    assert p.shape == (40, 3) and p.sum(axis=1) == pytest.approx(1)
    labels = m.predict(X)
    assert (labels == m.classes_[p.argmax(axis=1)]).all() and m.score(X, kinds) == np.mean(labels == kinds) > 0.4
    seen = p[np.arange(40), [list(m.classes_).index(k) for k in kinds]]
    assert m.log_score(X, kinds) == pytest.approx(np.mean(np.log(seen)), abs=1e-12)
    functions, sd = m.predict(X[:2], latent=True, return_std=True)
    assert functions.shape == sd.shape == (2, 3) and (sd > 0).all()
    drawn = m.sample_y(X[:2], 5)
    assert drawn.shape == (2, 5) and set(drawn.ravel()) <= set(m.classes_)
    assert m.sample_y(X[:2], 5, latent=True).shape == (2, 5, 3)
    for call in (lambda: m.predict(X, return_std=True), lambda: m.predict(X, return_cov=True), lambda: m.predict_quantiles(X)):
        with pytest.raises(ulisse.BadInput, match="classes without an order have none"):
            call()
    numbers = gp(likelihood="categorical").fit(X, np.digitize(table["y"], [-0.5, 0.5]) + 1)
    assert numbers.classes_.dtype.kind == "i" and list(numbers.classes_) == [1, 2, 3] and set(numbers.predict(X)) <= {1, 2, 3}
    assert list(pickle.loads(pickle.dumps(numbers)).predict(X)) == list(numbers.predict(X))


def test_noise_that_is_a_function():
    table = rows_with()
    X = table["t"][:, None]
    m = gp(likelihood="heteroscedastic").fit(X, table["y"])
    mean, sd = m.predict(X, return_std=True)
    alone, own = m.predict(X, return_std=True, latent=True)
    noise, unsure = m.predict_noise(X, return_std=True)
    assert alone == pytest.approx(mean, abs=1e-9)
    # Var(y) = Var(f) + E(noise variance), and E(s²) = (E s)² + Var(s).
    assert sd**2 - own**2 == pytest.approx(noise**2 + unsure**2, rel=1e-4)
    assert not hasattr(gp(), "predict_noise")
    paths = m.sample_y(X[:3], 4, latent=True)
    assert paths.shape == (3, 4, 2) and (paths[:, :, 1] > 0).all()


def test_trials():
    table = rows_with()
    trials = table["repeats"] + 3
    m = gp(likelihood="binomial").fit(table["t"][:, None], np.round(trials * (table["y"] > 0) * 0.9), trials=trials)
    share = m.predict(table["t"][:, None])  # of one trial
    assert ((0 < share) & (share < 1)).all()
    assert m.predict(table["t"][:, None], trials=trials) == pytest.approx(trials * share, rel=1e-9)


def test_fields_of_the_model():
    m = ulisse.GaussianProcess(likelihood="quantile", level=np.float64(0.9), df=5, target_transform="log", categories=("a",), trials="n")
    spec = m.specification()
    assert spec["model"] == {"likelihood": "quantile", "level": 0.9, "df": 5}
    assert spec["data"] == {"path": "table", "target": "y", "categories": ["a"], "transform": "log", "trials": "n"}


@pytest.mark.parametrize(
    "params, columns, said",
    [
        ({"weights": np.ones(3)}, {}, "weights: name a column of the table here, or give the values to fit"),
        ({"noise": np.ones(3)}, {}, "noise: name a column of the table here"),
        ({}, {"offset": np.ones(4)}, "offset: there are 4 values for 3 rows"),
        ({}, {"offset": [1, np.nan, 2]}, "Input offset contains NaN"),
        ({}, {"trials": ["a", "b", "c"]}, "trials does not hold numbers"),
        ({}, {"noise": "x"}, "noise: give an array here"),
        ({"noise": {"column": "e"}}, {"noise": np.ones(3)}, "noise: the parameter names a column already"),
        ({"target": ["a", "b"]}, {}, "target: name one column: each target has an estimator of its own"),
        ({"spec": {"data": {"target": ["a", "b"]}}}, {}, "data.target: name one column: each target has a run of its own"),
    ],
)
def test_refused_of_rows(params, columns, said):
    with pytest.raises(ulisse.BadInput, match=said):
        gp(**params).fit(np.arange(3.0)[:, None], [1.0, 2, 4], **columns)


def test_refused_of_files(tmp_path):
    with pytest.raises(ulisse.BadInput, match="weights: of a table in a file name the column"):
        gp(target="y").fit(tmp_path / "t.csv", weights=np.ones(3))
    with pytest.raises(TypeError, match="unexpected argument 'sample_weight': of rows there are noise, weights, offset, trials"):
        gp().fit([[1.0], [2.0]], [1.0, 2.0], sample_weight=[1, 1])


def test_target_named_as_an_input(frame):
    m = gp().fit(frame[["time", "dose"]].rename(columns={"dose": "y"}), frame["response"].to_numpy())
    assert m.target_ == "y_"


def test_pickle(fitted):
    m, X, _ = fitted
    other = pickle.loads(pickle.dumps(m))
    assert other.predict(X).tobytes() == m.predict(X).tobytes()
    assert other.job_._draws()["posterior"]["noise_sd"].tobytes() == m.job_._draws()["posterior"]["noise_sd"].tobytes()
    assert other.get_params() == m.get_params() and other.converged_


@pytest.mark.skipif(os.name == "nt", reason="a console's interrupt reaches all of its processes")
def test_interrupt(frame):
    m = gp(target="response", rhat=1.0001, ess=1e6, warm_start=True, spec={"sampler": {"warmup": 20}, "stop": {"max_draws": 300}})
    begun = threading.Event()
    take = m._begin
    m._begin = lambda data: (take(data), begun.set())
    thread = threading.Thread(target=lambda: (begun.wait(), interrupt(m.job_)))
    with pytest.raises(KeyboardInterrupt):
        thread.start()
        m.fit(frame)
    thread.join()
    first = m.job_
    assert first.status.state == "paused" and m.provisional is None or "note" in m.provisional.attrs
    del m._begin
    with pytest.warns(ulisse.NotConverged):
        m.fit(frame)  # warm_start: the same data and parameters
    assert m.job_ is first and not m.converged_
    with pytest.warns(ulisse.NotConverged):
        m.fit(frame.iloc[:50])
    assert m.job_ is not first
    with pytest.warns(ulisse.NotConverged):
        m.resume()  # of one that is over: its results again


def test_looking_while_it_runs(frame):
    m = gp(target="response", rhat=1.0001, ess=1e6, spec={"sampler": {"warmup": 20}, "stop": {"max_draws": 400}}).fit(frame, wait=False)
    while m.provisional is None and not m.job_.ended:
        time.sleep(0.005)
    assert "noise_sd" in m.provisional.index and m.job_.status.state != "queued"
    with pytest.warns(ulisse.NotConverged):
        m.resume()
    assert m.predict(frame).shape == (60,)


def test_stopped_by_somebody(frame):
    m = gp(target="response", rhat=1.0001, ess=1e6, max_time=60, spec={"stop": {"max_draws": 10**6}}).fit(frame, wait=False)
    m.job_._child.process.terminate()
    m.job_._child.process.wait()
    with pytest.raises(ulisse.JobFailed, match="gp was stopped: resume\\(\\) continues it"):
        m._finish()


def test_not_fitted():
    for call in (lambda m: m.predict([[1.0]]), lambda m: m.posterior, lambda m: m.resume(), lambda m: m.score([[1.0]], [1.0])):
        with pytest.raises(ValueError, match="not fitted"):
            call(ulisse.GaussianProcess())


def test_plots(fitted, frame):
    plt = pytest.importorskip("matplotlib.pyplot")
    m, X, y = fitted
    axes = m.plot_posterior()
    titles = [a.get_title() for a in axes.flat if a.get_title()]
    assert "noise_sd" in titles and not any(t.startswith("log_") for t in titles) and any("[" in t for t in titles)
    assert len(m.plot_trace(["noise_sd"]).flat) == 1
    lines = m.plot_trace(["noise_sd"])[0, 0].get_lines()
    assert lines[1].get_ydata().tobytes() == m.job_._draws()["posterior"]["noise_sd"][1].tobytes()
    ax = m.plot_predictions(X, y)
    assert ax.get_xlabel() == "observed y"
    one = gp(target="response", inputs=["time"]).fit(frame)
    ax = one.plot_predictions(frame[["time"]], frame["response"])
    assert ax.get_xlabel() == "time" and ax.get_ylabel() == "response"
    x, middle = ax.get_lines()[0].get_data()
    assert (np.diff(x) >= 0).all() and len(middle) == 60
    with pytest.raises(ulisse.BadInput, match="name an input to draw over"):
        m.plot_predictions(X)
    with pytest.raises(ulisse.BadInput, match="there is no quantity nothing"):
        m.plot_posterior(["nothing"])
    plt.close("all")


def test_arviz_draws_the_pictures(fitted, monkeypatch):
    import sys
    import types

    pytest.importorskip("xarray")
    az = types.ModuleType("arviz")
    az.InferenceData = lambda **groups: groups
    az.plot_posterior = lambda data, var_names=None, **kw: (sorted(data), var_names, kw)
    monkeypatch.setitem(sys.modules, "arviz", az)
    groups, names, more = fitted[0].plot_posterior(["noise_sd"], hdi_prob=0.9)
    assert "posterior" in groups and names == ["noise_sd"] and more == {"hdi_prob": 0.9}


def test_progress(frame, capsys):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gp(target="response").fit(frame)
    assert capsys.readouterr().err == ""  # there is no terminal
    gp(target="response", progress=True).fit(frame)
    said = capsys.readouterr().err.splitlines()
    assert said[-1].startswith("gp: converged  20 of 20 draws a chain") and len(said) > 1
