"""GaussianProcess: the posterior of a Gaussian process as an estimator of scikit-learn."""

from __future__ import annotations

import os
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, Callable, Iterable, Mapping, Optional, Sequence, Union, cast

import numpy as np
from numpy.typing import NDArray

from . import plots
from ._base import Base, NotFitted
from .cluster import Cluster, connect
from .errors import BadInput
from .job import Job, Predictions, duration
from .local import run
from .table import Table, codes, row_values, target as _target

__all__ = ["GaussianProcess"]

Floats = NDArray[np.float64]

ROLES = ("noise", "weights", "offset", "trials")  # what can be said of each row beside its inputs


class GaussianProcess(Base):
    """Regression by a Gaussian process, with the full posterior of its covariance parameters.

    Parameters that are None are left to the program; docs/job-spec.md has its defaults and says what
    each field may hold.

    Parameters
    ----------
    kernel : str, optional
        The covariance function: ``"rbf"``, ``"matern12"``, ``"matern32"``, ``"matern52"``, or an expression
        that the program knows.
    ard : bool, optional
        One length-scale for each input, rather than one for all.
    target : str, optional
        The column to predict. It is needed where `fit` is given a table without ``y``.
    inputs, exclude : list of str, optional
        The columns to learn from, or not to; by default all but the target.
    likelihood : str, optional
        How targets come from the latent function: ``"gaussian"``, ``"student-t"``, ``"laplace"``, ``"quantile"``,
        ``"bernoulli"`` (two classes), ``"ordinal"`` (three or more classes in order), ``"categorical"`` (classes without an order),
        ``"binomial"`` (successes in ``trials``), ``"poisson"`` and ``"negative-binomial"`` (counts), ``"stochastic-volatility"`` (targets about zero
        of standard deviation e^f), ``"heteroscedastic"`` and ``"twinned"`` (numbers whose noise, or whose outliers, are a function of the inputs),
        ``"noisy-labels"`` (two classes, some labels wrong).
    link : str, optional
        Of ``"bernoulli"``: ``"logit"`` or ``"probit"``.
    level : float, optional
        Of ``"quantile"``: the one that is learnt.
    df : float, optional
        Of ``"student-t"``: its degrees of freedom. They are a parameter if they have a prior, ``{"df": "gamma(2,0.1)"}``.
    mean : str, optional
        ``"constant"``, ``"linear"``, or ``"linear(x, y)"`` over some inputs.
    noise : str or dict, optional
        The column with the standard deviation of each row's noise, as far as it is known; or ``model.noise`` of the
        specification, as in ``{"by": "station"}``.
    weights, offset, trials : str, optional
        The columns with the weight of each row, with what is known of the latent function there, and with the number of
        trials. Like noise they can be arrays instead: those are given to `fit`, and with rows to predict.
    target_transform : str, optional
        Learn the ``"log"``, ``"logit"`` or ``"yeo-johnson"`` of the target: ``data.transform`` of the specification.
    categories : list of str, optional
        The inputs whose values are names.
    levels : dict of lists of str, optional
        The names of a category in their order; and, under ``"ordinal"``, of the classes of the target, which are needed unless
        they are numbers. Under ``"categorical"`` they may name classes that no row is of.
    priors : dict of str, optional
        The priors of parameters, as in ``{"sigma": "gamma(1,1)"}``.
    chains, draws : int, optional
        Chains, and draws of each before the run may end as converged.
    seed : int, optional
        Draws are a function of data, specification and seed.
    max_time : str, float or timedelta, optional
        The run ends after this time, converged or not. A number is of seconds.
    rhat, ess : float, optional
        The run has converged when every parameter's R-hat is at most, and its effective sample size at
        least, so much.
    spec : dict, optional
        Any other field of the specification, as in ``{"sampler": {"method": "exact"}}``. It goes before the
        other parameters.
    cluster : str, list of str or Cluster, optional
        Run there: the address of a coordinator's HTTP port, or the name of a context (see `ulisse.connect`).
        By default on this machine.
    folder : path, optional
        Keep the results of a run on this machine in this folder. By default they go with the object.
    threads : int, optional
        Compute on so many cores of this machine. By default on all.
    progress : bool, optional
        Show how `fit` is going. By default in notebooks and on terminals.
    warm_start : bool
        Let `fit` continue a run that was interrupted, if it is of the same data and parameters.

    Attributes
    ----------
    job_ : Job
        The run: its status, warnings, logs, and what else can be done with it.
    converged_ : bool
        Whether its chains agree.
    n_features_in_ : int
    feature_names_in_ : array of str
        The names of the inputs, where they have names.
    target_ : str
        The name of the target.
    """

    def __init__(
        self,
        kernel: Optional[str] = None,
        *,
        ard: Optional[bool] = None,
        target: Optional[str] = None,
        inputs: Optional[Sequence[str]] = None,
        exclude: Optional[Sequence[str]] = None,
        likelihood: Optional[str] = None,
        link: Optional[str] = None,
        level: Optional[float] = None,
        df: Optional[float] = None,
        mean: Optional[str] = None,
        noise: Union[None, str, dict[str, Any]] = None,
        weights: Optional[str] = None,
        offset: Optional[str] = None,
        trials: Optional[str] = None,
        target_transform: Optional[str] = None,
        categories: Optional[Sequence[str]] = None,
        levels: Optional[Mapping[str, Sequence[str]]] = None,
        priors: Optional[dict[str, Any]] = None,
        chains: Optional[int] = None,
        draws: Optional[int] = None,
        seed: Optional[int] = None,
        max_time: Union[str, float, timedelta, None] = None,
        rhat: Optional[float] = None,
        ess: Optional[float] = None,
        spec: Optional[dict[str, Any]] = None,
        cluster: Union[None, str, Sequence[str], Cluster] = None,
        folder: Union[str, os.PathLike[str], None] = None,
        threads: Optional[int] = None,
        progress: Optional[bool] = None,
        warm_start: bool = False,
    ) -> None:
        self.kernel = kernel
        self.ard = ard
        self.target = target
        self.inputs = inputs
        self.exclude = exclude
        self.likelihood = likelihood
        self.link = link
        self.level = level
        self.df = df
        self.mean = mean
        self.noise = noise
        self.weights = weights
        self.offset = offset
        self.trials = trials
        self.target_transform = target_transform
        self.categories = categories
        self.levels = levels
        self.priors = priors
        self.chains = chains
        self.draws = draws
        self.seed = seed
        self.max_time = max_time
        self.rhat = rhat
        self.ess = ess
        self.spec = spec
        self.cluster = cluster
        self.folder = folder
        self.threads = threads
        self.progress = progress
        self.warm_start = warm_start

    # Fitting.

    def fit(self, X: Any, y: Any = None, wait: bool = True, **columns: Any) -> GaussianProcess:
        """Draw from the posterior given data.

        A KeyboardInterrupt stops a run on this machine with all that it has done kept: `resume` continues it. A
        job in a cluster goes on; `resume` follows it again.

        Parameters
        ----------
        X : table, array or path
            The inputs; or a table with the target among its columns, or the path of such a table (CSV,
            Parquet, Arrow or NPZ), which ``target`` names.
        y : array of shape (rows,), optional
            The values of the target.
        wait : bool
            Wait for the end. Else `provisional` and ``job_`` tell how it is going, and `resume` waits.
        **columns : arrays of shape (rows,)
            ``noise``, ``weights``, ``offset`` or ``trials`` of the rows, where no column of X has them.

        Warns
        -----
        NotConverged
            if the run ended before its chains agreed.
        """
        data = self._take(X, y, columns)
        self._begin(data)
        return self._finish() if wait else self

    def _begin(self, data: Union[Table, str]) -> None:
        spec = self.specification()
        self.target_ = spec["data"]["target"]
        key = (spec, data if isinstance(data, str) else data.csv(), self.cluster, self.threads)
        job: Optional[Job] = getattr(self, "job_", None)
        if self.warm_start and job is not None and getattr(self, "_key", None) == key and not job.ended:
            if job.status.state == "paused":
                job.resume()
            return
        self._key = key if self.warm_start else None
        if self.cluster is not None:
            self.job_: Job = connect(self.cluster).submit(spec, data)
        else:
            self.job_ = run(spec, data, folder=self.folder, threads=self.threads)

    def _finish(self) -> GaussianProcess:
        self.job_.watch(self.progress)
        self.converged_ = self.job_.converged
        names = self.job_.info[0]
        if not hasattr(self, "n_features_in_"):  # of a path
            self.n_features_in_ = len(names)
            self.feature_names_in_ = np.array(names, dtype=object)
        return self

    def resume(self) -> GaussianProcess:
        """Continue a fit that was interrupted, and wait for its end."""
        job = self._job()
        if job.status.state == "paused":
            job.resume()
        return self._finish()

    def extend(self, draws: int) -> GaussianProcess:
        """Draw so many more of each chain, and wait for the end."""
        self._job().extend(draws)
        return self._finish()

    def specification(self) -> dict[str, Any]:
        """Return the specification that the parameters stand for, without what is left to the program."""
        target = getattr(self, "_target_name", None) or self.target or "y"
        named = self._columns()
        noise = dict(self.noise) if isinstance(self.noise, dict) else {}
        spec: dict[str, Any] = {
            "name": "gp",
            "data": {
                "path": "table", "target": target, "inputs": _list(self.inputs), "exclude": _list(self.exclude),
                "categories": _list(self.categories), "levels": self._levels(), "transform": self.target_transform,
                "weights": named.get("weights"), "offset": named.get("offset"), "trials": named.get("trials"),
            },
            "model": {
                "kernel": self.kernel, "ard": self.ard, "likelihood": self.likelihood, "link": self.link, "level": self.level,
                "df": self.df, "mean": self.mean, "noise": {**noise, "column": named.get("noise")}, "priors": self.priors,
            },
            "sampler": {"chains": _whole(self.chains), "draws": _whole(self.draws)},
            "stop": {"max_time": duration(self.max_time), "rhat": self.rhat, "ess": self.ess},
            "seed": _whole(self.seed),
        }
        return _merged(_known(spec), self.spec or {})

    def _levels(self) -> Optional[dict[str, list[str]]]:
        return {name: [str(level) for level in levels] for name, levels in self.levels.items()} if self.levels else None

    def _columns(self) -> dict[str, str]:
        """Return the names of the columns with what is said of each row, by role: those that the parameters name, and
        those of the arrays of the last fit."""
        noise = self.noise.get("column") if isinstance(self.noise, dict) else self.noise
        said = {"noise": noise, "weights": self.weights, "offset": self.offset, "trials": self.trials}
        for role, name in said.items():
            if name is not None and not isinstance(name, str):
                raise BadInput(f"{role}: name a column of the table here, or give the values to fit: fit(X, y, {role}=…)")
        return {role: name for role, name in {**said, **getattr(self, "_arrays", {})}.items() if name is not None}

    def _take(self, X: Any, y: Any, columns: Mapping[str, Any]) -> Union[Table, str]:
        """Check what is to be learnt from, and note its names."""
        for name in ("n_features_in_", "feature_names_in_"):
            self.__dict__.pop(name, None)
        self._arrays: dict[str, str] = {}
        columns = _given(columns)
        if self.target is not None and not isinstance(self.target, str):
            raise BadInput("target: name one column: each target has an estimator of its own")
        self._names: Optional[list[str]] = None
        self._by_name = y is None
        if isinstance(X, (str, os.PathLike)):
            if y is not None:
                raise BadInput("y: a table in a file holds its target: give its name with target=")
            if self.target is None:
                raise BadInput("target: name the column of the table to predict")
            self._note_kind(None)
            if columns:
                raise BadInput(f"{', '.join(columns)}: of a table in a file name the column, as a parameter of {type(self).__name__}")
            self._target_name = self.target
            return os.fspath(X)
        table = Table.of(X)
        if y is None:
            if self.target is None:
                raise BadInput("fit requires y to be passed, but the target y is None; or name a column of the table with target=")
            self._note_kind(table.column(self.target))
            self._target_name = self.target
            data = table
            noise = self.noise if isinstance(self.noise, dict) else {}
            others = {self.target, noise.get("by"), *self._columns().values()}
            features = [n for n in table.names if n not in others]
        else:
            values = _target(y, table.rows, self._of_classes())
            self._note_kind(values)
            if table.rows < 2:
                raise BadInput("Found array with 1 sample(s) (n_samples=1) while a minimum of 2 is required: one row says nothing of a covariance")
            said = self.target or getattr(y, "name", None)
            name = said if isinstance(said, str) else "y"
            while name in table.names:
                name += "_"
            self._target_name = name
            data = table.plus(name, values)
            features = table.names
        for role, given in columns.items():
            if role in self._columns():
                raise BadInput(f"{role}: the parameter names a column already: give that or the values")
            name = role
            while name in data.names:
                name += "_"
            data = data.plus(name, row_values(given, role, table.rows))
            self._arrays[role] = name
        if self.inputs is not None:
            features = list(self.inputs)
        if self.exclude is not None:
            features = [n for n in features if n not in set(self.exclude)]
        self._names = list(table.names) if y is not None else features
        self.n_features_in_ = len(self._names)
        if table.named:
            self.feature_names_in_ = np.array(self._names, dtype=object)
        return data

    def _note_kind(self, y: Optional[NDArray[Any]]) -> None:
        """Note the type of targets that are numbers: classes are told as such."""
        self._kind: Optional[np.dtype[Any]] = y.dtype if y is not None and y.dtype.kind in "fiub" else None

    # Predicting.

    def _job(self) -> Job:
        job: Optional[Job] = getattr(self, "job_", None)
        if job is None:
            raise NotFitted(f"This {type(self).__name__} instance is not fitted yet. Call 'fit' first.")
        return job

    def _rows(self, X: Any, columns: Mapping[str, Any], latent: bool = False) -> Table:
        """Return the rows as a table with the names of the inputs, and with what is said of each."""
        rows = self._named_rows(X)
        known = self._columns()
        for role, given in _given(columns).items():
            if role not in known:
                raise BadInput(f"{role}: fit was given none")
            values = row_values(given, role, rows.rows)
            rows = rows.select([n for n in rows.names if n != known[role]]).plus(known[role], values)
        for role in ["offset"] if latent else ["offset", "noise"]:
            if role in known and known[role] not in rows.names:
                raise BadInput(f"{role}: fit had one of each row: give those of the rows to predict, in a column {known[role]} or by {role}=")
        return rows

    def _named_rows(self, X: Any) -> Table:
        self._job()
        table = Table.of(X)
        if not self._by_name:
            self._same_names(table)
        if table.named and hasattr(self, "feature_names_in_"):
            return table
        if len(table.names) != self.n_features_in_:
            raise BadInput(
                f"X has {len(table.names)} features, but {type(self).__name__} is expecting {self.n_features_in_} features as input"
            )
        names = self._names if self._names is not None else list(self.feature_names_in_)
        return Table(list(names), table.columns, True)

    def _same_names(self, table: Table) -> None:
        """Refuse other names than those of fit, in scikit-learn's words."""
        known = getattr(self, "feature_names_in_", None)
        if known is None or not table.named:
            self._warn_of_names(known is not None, table.named)
            return
        if list(known) == table.names:
            return
        said = "The feature names should match those that were passed during fit.\n"
        unseen = sorted(set(table.names) - set(known))
        missing = sorted(set(known) - set(table.names))
        if unseen:
            said += "Feature names unseen at fit time:\n" + "".join(f"- {n}\n" for n in unseen)
        if missing:
            said += "Feature names seen at fit time, yet now missing:\n" + "".join(f"- {n}\n" for n in missing)
        if not unseen and not missing:
            said += "Feature names must be in the same order as they were in fit.\n"
        raise BadInput(said)

    def _warn_of_names(self, fitted: bool, given: bool) -> None:
        import warnings

        name = type(self).__name__
        if given and not fitted:
            warnings.warn(f"X has feature names, but {name} was fitted without feature names", stacklevel=4)
        if fitted and not given:
            warnings.warn(f"X does not have valid feature names, but {name} was fitted with feature names", stacklevel=4)

    def _predict(
        self, X: Any, columns: Mapping[str, Any], quantiles: Sequence[float] = (), latent: bool = False, y: Any = None
    ) -> Predictions:
        rows = self._rows(X, columns, latent)
        if self.target_ in rows.names:
            rows = rows.select([n for n in rows.names if n != self.target_])
        if y is not None:
            rows = rows.plus(self.target_, _target(y, rows.rows, self._of_classes()))
        return self._job().predict(rows, quantiles, latent)

    def predict(self, X: Any, return_std: bool = False, return_cov: bool = False, latent: bool = False, **columns: Any) -> Any:
        """Predict the target at rows, averaged over the draws.

        Parameters
        ----------
        X : table or array
        return_std : bool
            Return standard deviations too.
        return_cov : bool
            Return the joint covariance of the rows too; at most one of the two.
        latent : bool
            Predict the latent function, without the noise. Of numbers the mean is the same. Of classes without an order predict the function of each
            class: arrays of shape (rows, classes).
        **columns : arrays of shape (rows,)
            ``noise``, ``weights``, ``offset`` or ``trials`` of the rows, as `fit` had them. All that predicts takes them.

        Returns
        -------
        mean : array of shape (rows,)
            Of two classes the probability of the second, of classes in order the expected place, from 0, of counts the expected count; of classes
            without an order the likeliest class, which has no std.
        std : array of shape (rows,)
            if ``return_std``: of the target, the noise and the uncertainty of the parameters included.
        cov : array of shape (rows, rows)
            if ``return_cov``: alike. Its diagonal has the squares of the standard deviations.
        """
        if return_cov:
            if return_std:
                raise BadInput("at most one of return_std and return_cov can be asked for")
            if self._unordered():
                raise BadInput("return_cov: classes without an order have none: ask for predict_proba, or for draws (sample_y)")
            found, cov = self._job().covariance(self._rows(X, columns, latent), latent)
            return found.mean, cov
        if self._unordered() and return_std and not latent:
            raise BadInput("return_std: classes without an order have none: ask for predict_proba, or for the functions with latent=True")
        p = self._predict(X, columns, latent=latent)
        mean, sd = p.mean, p.sd
        if self._unordered() and latent:
            assert p.functions is not None
            mean, sd = (np.column_stack([f[k] for f in p.functions.values()]) for k in (0, 1))
        elif self._unordered():
            assert p.probabilities is not None
            return self.classes_[p.probabilities.argmax(axis=1)]
        return (mean, sd) if return_std else mean

    @property
    def predict_noise(self) -> Callable[..., Any]:
        """Under ``likelihood="heteroscedastic"``: return the standard deviation of the noise at rows, an array of shape (rows,), averaged over the
        draws, and with ``return_std`` how surely it is known. The arguments are the rows, ``return_std`` and what is said of each row, as for `predict`."""
        if self._likelihood() != "heteroscedastic":
            raise AttributeError("predict_noise is of noise that is a function: likelihood=\"heteroscedastic\"")

        def predict_noise(X: Any, return_std: bool = False, **columns: Any) -> Any:
            p = self._predict(X, columns, latent=True)
            assert p.functions is not None
            mean, sd = p.functions["noise_sd"]
            return (mean, sd) if return_std else mean

        return predict_noise

    def predict_quantiles(
        self, X: Any, quantiles: Iterable[float] = (0.05, 0.5, 0.95), latent: bool = False, **columns: Any
    ) -> Floats:
        """Return quantiles of the prediction, an array of shape (rows, quantiles)."""
        if self._unordered():
            raise BadInput("quantiles: classes without an order have none: ask for predict_proba")
        probabilities = [float(q) for q in np.atleast_1d(np.asarray(quantiles, dtype=np.float64))]
        return self._predict(X, columns, probabilities, latent).quantiles

    def _likelihood(self) -> Any:
        return _merged({"model": {"likelihood": self.likelihood}}, self.spec or {})["model"].get("likelihood")

    def _of_classes(self) -> bool:
        return self._likelihood() in ("bernoulli", "noisy-labels", "ordinal", "categorical")

    def _unordered(self) -> bool:
        return bool(self._likelihood() == "categorical")

    @property
    def predict_proba(self) -> Callable[..., Floats]:
        """Under ``likelihood="bernoulli"``, ``"noisy-labels"``, ``"ordinal"`` and ``"categorical"``: return the probabilities of the classes at rows, an array of shape
        (rows, classes), in the order of ``classes_``. The arguments are the rows and what is said of each, as for `predict`."""
        if not self._of_classes():
            raise AttributeError("predict_proba is of classes: likelihood=\"bernoulli\", \"noisy-labels\", \"ordinal\" or \"categorical\"")

        def predict_proba(X: Any, **columns: Any) -> Floats:
            p = self._predict(X, columns)
            return p.probabilities if p.probabilities is not None else np.column_stack([1 - p.mean, p.mean])

        return predict_proba

    @property
    def classes_(self) -> NDArray[Any]:
        """Under ``likelihood="bernoulli"`` and ``"noisy-labels"``: the classes, 0 and 1 or their names; under ``"ordinal"`` their names in order; under ``"categorical"`` the
        classes as `fit` had them, numbers in the order of their size and names in that of the alphabet, or as ``levels`` has them."""
        if not self._of_classes() or getattr(self, "job_", None) is None:
            raise AttributeError("classes_ are those of a fit of classes: likelihood=\"bernoulli\", \"noisy-labels\", \"ordinal\" or \"categorical\"")
        names = self._job().data.get("classes") or [0, 1]
        kind = getattr(self, "_kind", None)
        if self._unordered() and kind is not None:
            return np.array(names, dtype=np.float64).astype(kind)
        return np.array(names)

    def sample_y(
        self, X: Any, n_samples: int = 1, random_state: Optional[int] = 0, latent: bool = False, **columns: Any
    ) -> NDArray[Any]:
        """Draw values of the target at the rows together, an array of shape (rows, n_samples).

        A column is a joint draw: one function from the posterior, with the noise of each row or if ``latent``
        without: then a sample path. Of classes without an order it has classes, and if ``latent`` the functions of all classes, an array of shape
        (rows, n_samples, classes).
        """
        rows = self._rows(X, columns, latent)
        drawn = self._job().sample(rows, n_samples, random_state, latent)
        return self.classes_[drawn.astype(np.intp)] if self._unordered() and not latent else drawn

    def score(self, X: Any, y: Any = None, sample_weight: Any = None, **columns: Any) -> float:
        """Return R² of the mean prediction; of classes without an order the share of rows whose class is the likeliest one. Without y the table has
        the target among its columns."""
        mean = self.predict(X, **columns)
        if y is None:
            y = Table.of(X).column(self.target_)
        names = self._job().data.get("classes")
        if self._unordered() and names:
            right = codes(np.asarray(y), names, "y") == codes(mean, names, "y")
            return float(np.average(right, weights=sample_weight))
        if names:
            y = codes(np.asarray(y), names, "y")
        predicted = SimpleNamespace(predict=lambda X: mean)
        return float(Base.score(cast(Base, predicted), X, y, sample_weight))

    def log_score(self, X: Any, y: Any = None, **columns: Any) -> float:
        """Return the mean log density of the prediction at the targets. Without y the table has the target
        among its columns. It tells more than R²: whether the uncertainty is right, too."""
        self._job()
        if y is None:
            y = Table.of(X).column(self.target_)
        density = self._predict(X, columns, y=y).log_density
        assert density is not None
        return float(np.mean(density))

    # Results.

    @property
    def posterior(self) -> Any:
        """The draws, as `Job.posterior`: ArviZ's InferenceData where ArviZ is installed."""
        return self._job().posterior

    def summary(self) -> Any:
        """Return a row for each quantity, as `Job.summary`."""
        return self._job().summary()

    @property
    def provisional(self) -> Any:
        """What is known of the posterior before there are draws, as `Job.provisional`."""
        return self._job().provisional

    # Pictures.

    def plot_posterior(self, var_names: Optional[Sequence[str]] = None, **kwargs: Any) -> Any:
        """Draw the marginal posteriors: by ArviZ, with its arguments, else by Matplotlib."""
        return plots.posterior(self._job(), var_names, **kwargs)

    def plot_trace(self, var_names: Optional[Sequence[str]] = None, **kwargs: Any) -> Any:
        """Draw the traces of the chains: by ArviZ, with its arguments, else by Matplotlib."""
        return plots.trace(self._job(), var_names, **kwargs)

    def plot_predictions(
        self, X: Any, y: Any = None, over: Optional[str] = None, ax: Any = None, latent: bool = False, **columns: Any
    ) -> Any:
        """Draw predictions, with their central 90 % interval.

        Over one input they are a line with a band, of classes without an order a line for the probability of each; else, with y, predicted is drawn
        against observed.

        Parameters
        ----------
        X : table or array
        y : array, optional
            What was observed there.
        over : str, optional
            The input to draw over. By default the only one.
        ax : matplotlib.axes.Axes, optional
        """
        rows = self._named_rows(X)
        p = self._predict(X, columns, (0.05, 0.5, 0.95), latent)
        return plots.predictions(rows, p, y, over, self.target_, ax, self.classes_.tolist() if self._unordered() else None)

    # scikit-learn.

    def _more_tags(self) -> dict[str, Any]:
        return {"requires_y": True}

    def __getstate__(self) -> dict[str, Any]:
        own = getattr(super(), "__getstate__", None)
        state = own() if own is not None else self.__dict__
        return dict(state, _key=None)


def _given(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is said of rows, without what is None."""
    for role in columns:
        if role not in ROLES:
            raise TypeError(f"got an unexpected argument {role!r}: of rows there are {', '.join(ROLES)}")
    return {role: values for role, values in columns.items() if values is not None}


def _list(names: Optional[Sequence[str]]) -> Optional[list[str]]:
    return None if names is None else [str(n) for n in names]


def _whole(n: Optional[int]) -> Optional[int]:
    """Return a whole number of Python: searches hand in those of NumPy."""
    return None if n is None else int(n)


def _known(spec: dict[str, Any]) -> dict[str, Any]:
    """Return a specification without the fields that are None and the parts that are empty."""
    out: dict[str, Any] = {}
    for key, value in spec.items():
        if isinstance(value, dict) and key != "priors":
            value = _known(value) or None
        if value is not None:
            out[key] = value.item() if isinstance(value, np.generic) else value
    return out


def _merged(spec: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    out = dict(spec)
    for key, value in more.items():
        both = isinstance(value, dict) and isinstance(out.get(key), dict)
        out[key] = _merged(out[key], value) if both else value
    return out
