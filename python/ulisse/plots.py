"""Pictures: thin over ArviZ and Matplotlib."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Optional, Sequence

import numpy as np

from .errors import BadInput, UlisseError
from .posterior import Arrays, columns
from .table import Table

if TYPE_CHECKING:
    from .job import Job, Predictions

__all__ = ["posterior", "predictions", "trace"]


def _pyplot() -> Any:
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        raise UlisseError("pictures take Matplotlib: install it") from None
    return plt


def _arviz() -> Any:
    try:
        import arviz
    except ImportError:
        return None
    return arviz


def _chosen(job: Job, var_names: Optional[Sequence[str]]) -> dict[str, Any]:
    """Return the quantities to draw, by name: the draws over chains."""
    groups = job._draws()
    group: Arrays = groups["posterior"]
    names = list(var_names) if var_names is not None else [n for n in group if not n.startswith("log_")]
    out = {}
    for label, flat in columns(groups).items():
        if label not in ("chain", "draw") and (label in names or label.partition("[")[0] in names):
            out[label] = flat.reshape(len(group["chain"]), -1)
    if not out:
        raise BadInput(f"var_names: there is no quantity {', '.join(names)}: there are {', '.join(group)}")
    return out


def posterior(job: Job, var_names: Optional[Sequence[str]] = None, **kwargs: Any) -> Any:
    """Draw the marginal posteriors."""
    az = _arviz()
    if az is not None:
        return az.plot_posterior(job.posterior, var_names=var_names, **kwargs)
    plt = _pyplot()
    chosen = _chosen(job, var_names)
    wide = min(4, len(chosen))
    high = -(-len(chosen) // wide)
    fig, axes = plt.subplots(high, wide, figsize=(3.2 * wide, 2.4 * high), squeeze=False, layout="constrained")
    for ax, (name, x) in zip(axes.flat, chosen.items()):
        ax.hist(x.ravel(), bins="auto", density=True, color="C0", alpha=0.6)
        ax.axvline(float(np.mean(x)), color="k", lw=1)
        ax.set(title=name, yticks=[])
    for ax in axes.flat[len(chosen) :]:
        ax.set_axis_off()
    return axes


def trace(job: Job, var_names: Optional[Sequence[str]] = None, **kwargs: Any) -> Any:
    """Draw the traces of the chains."""
    az = _arviz()
    if az is not None:
        return az.plot_trace(job.posterior, var_names=var_names, **kwargs)
    plt = _pyplot()
    chosen = _chosen(job, var_names)
    fig, axes = plt.subplots(len(chosen), 1, figsize=(8, 1.4 * len(chosen)), squeeze=False, sharex=True, layout="constrained")
    for ax, (name, x) in zip(axes.flat, chosen.items()):
        ax.plot(x.T, lw=0.6)
        ax.set_ylabel(name, rotation=0, ha="right")
    axes.flat[-1].set_xlabel("draw")
    return axes


def predictions(
    rows: Table, p: Predictions, y: Any, over: Optional[str], target: str, ax: Any, classes: Optional[Sequence[Any]] = None
) -> Any:
    """Draw predictions with their central 90 % interval; of the given classes, which have no order, the probability of each."""
    plt = _pyplot()
    if over is None and len(rows.names) == 1:
        over = rows.names[0]
    if over is None and (y is None or classes is not None):
        raise BadInput(f"over: name an input to draw over ({', '.join(rows.names)}), or give y to compare with")
    if ax is None:
        ax = plt.subplots(layout="constrained")[1]
    if over is not None and classes is not None:
        assert p.probabilities is not None
        x = rows.select([over]).matrix()[:, 0]
        order = np.argsort(x)
        for name, share in zip(classes, p.probabilities.T):
            ax.plot(x[order], share[order], label=str(name))
        ax.set(xlabel=over, ylabel=f"probability of {target}", ylim=(0, 1))
        ax.legend()
        return ax
    low, middle, high = p.quantiles.T
    if over is None:
        y = np.asarray(y, dtype=np.float64)
        ax.errorbar(y, middle, [middle - low, high - middle], fmt=".", lw=0.6, label="median and 90 %")
        ax.axline((float(y.mean()), float(y.mean())), slope=1, color="k", lw=1)
        ax.set(xlabel=f"observed {target}", ylabel=f"predicted {target}")
        return ax
    x = rows.select([over]).matrix()[:, 0]
    order = np.argsort(x)
    ax.fill_between(x[order], low[order], high[order], alpha=0.3, lw=0, label="90 %")
    ax.plot(x[order], middle[order], label="median")
    if y is not None:
        ax.plot(x, np.asarray(y, dtype=np.float64), "k.", ms=4, label="observed")
    ax.set(xlabel=over, ylabel=target)
    ax.legend()
    return ax
