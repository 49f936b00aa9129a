"""What scikit-learn asks of an estimator."""

import warnings

import numpy as np
import pytest

pytest.importorskip("sklearn")

from sklearn import clone  # noqa: E402
from sklearn.exceptions import NotFittedError  # noqa: E402
from sklearn.model_selection import GridSearchCV, cross_val_score  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import StandardScaler  # noqa: E402
from sklearn.utils import estimator_checks  # noqa: E402

import ulisse  # noqa: E402
from conftest import columns, gp  # noqa: E402


def quickest():
    return gp(kernel="rbf", draws=10, max_time=60, spec={"sampler": {"warmup": 10}})


# All of them: none is expected to fail.
@estimator_checks.parametrize_with_checks([quickest()])
def test_check_estimator(estimator, check):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check(estimator)


@pytest.mark.parametrize("name", ["check_dataframe_column_names_consistency", "check_n_features_in_after_fitting"])
def test_more_checks(name):
    """scikit-learn holds its own estimators to these."""
    getattr(estimator_checks, name)("GaussianProcess", quickest())


def test_clone(frame):
    m = gp(ard=True, target="response", priors={"sigma": "gamma(2,1)"}).fit(frame)
    other = clone(m)
    assert other.get_params() == m.get_params() and not hasattr(other, "job_")
    with pytest.raises(NotFittedError):
        other.predict(frame)


def test_pipelines_and_searches():
    data = columns(80)
    X, y = np.column_stack([data["time"], data["dose"]]), data["response"]
    pipe = make_pipeline(StandardScaler(), gp())
    assert pipe.fit(X, y).score(X, y) > 0.9
    scores = cross_val_score(pipe, X, y, cv=2)
    assert scores.shape == (2,) and (scores > 0.5).all()
    search = GridSearchCV(gp(), {"kernel": ["rbf", "matern12"]}, cv=2, n_jobs=2).fit(X, y)
    assert search.best_params_["kernel"] in ("rbf", "matern12") and search.best_score_ > 0.5
    assert isinstance(search.best_estimator_, ulisse.GaussianProcess) and search.predict(X[:2]).shape == (2,)


def test_search_over_frames(frame):
    X, y = frame[["time", "dose"]], frame["response"]
    scores = cross_val_score(gp(), X, y, cv=2, scoring=lambda m, X, y: m.log_score(X, y))
    assert np.isfinite(scores).all()
