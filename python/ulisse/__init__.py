"""ulisse: the full posterior of an exact Gaussian process, on large data.

    import ulisse
    gp = ulisse.GaussianProcess(kernel="matern52", ard=True, target="cnt").fit(df)
    gp.summary()
    gp.posterior
    gp.predict(new, return_std=True)

`GaussianProcess` is an estimator of scikit-learn. `run` begins a run on this machine, `submit` a job in a
cluster; both return a `Job`. `connect` and `jobs` look at a cluster, `load` at the folder of a run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .cluster import Cluster, ClusterJob, connect, jobs, submit
from .errors import (
    BadInput,
    BadSpecification,
    JobFailed,
    NotConverged,
    NotFound,
    PermissionDenied,
    UlisseError,
    Unreachable,
)
from .job import Job, Predictions
from .local import LocalJob, load, run
from .progress import Status

if TYPE_CHECKING:
    from .gp import GaussianProcess

__version__ = "0.1.0.dev0"

__all__ = [
    "BadInput",
    "BadSpecification",
    "Cluster",
    "ClusterJob",
    "GaussianProcess",
    "Job",
    "JobFailed",
    "LocalJob",
    "NotConverged",
    "NotFound",
    "PermissionDenied",
    "Predictions",
    "Status",
    "UlisseError",
    "Unreachable",
    "connect",
    "jobs",
    "load",
    "run",
    "submit",
]


def __getattr__(name: str) -> Any:
    if name == "GaussianProcess":  # it loads scikit-learn, which takes a second
        from .gp import GaussianProcess

        return GaussianProcess
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), "GaussianProcess"])
