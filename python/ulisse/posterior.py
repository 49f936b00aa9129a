"""Draws, in the form that ArviZ gives them, as far as the packages for it are there."""

from __future__ import annotations

import io
import json
from typing import Any, Dict

import numpy as np
from numpy.typing import NDArray

__all__ = ["Arrays", "Groups", "read_npz"]


class Groups(Dict[str, Any]):
    """The groups of a posterior where ArviZ is not installed: ``posterior``, ``sample_stats``,
    ``observed_data``, ``constant_data``, ``posterior_predictive``. They are items and attributes, as those
    of ArviZ's InferenceData are."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"there is no group {name}: there are {', '.join(self)}") from None

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self]


class Arrays(Dict[str, "NDArray[Any]"]):
    """The arrays of a group where xarray is not installed, with the names of their dimensions."""

    def __init__(self, arrays: dict[str, NDArray[Any]], dims: dict[str, list[str]], attrs: dict[str, Any]) -> None:
        super().__init__(arrays)
        self.dims = dims
        self.attrs = attrs

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (dict(self), self.dims, self.attrs)


def read_npz(data: bytes) -> Groups:
    """Return the groups that the program wrote as NPZ."""
    with np.load(io.BytesIO(data)) as z:
        attrs = json.loads(str(z["metadata"]))
        dims = json.loads(str(z["dims"]))
        groups = Groups()
        for file in z.files:  # in the order of the program's outputs
            group, _, name = file.rpartition("/")
            group = group or "posterior"
            if file not in ("metadata", "dims"):
                groups.setdefault(group, Arrays({}, dims[group], attrs[group]))[name] = z[file]
    return groups


def inference_data(groups: Groups) -> Any:
    """Return the groups as ArviZ's InferenceData (a tree of xarray from ArviZ 1 on), else as xarray's
    Datasets, else as they are."""
    try:
        import xarray
    except ImportError:
        return groups
    sets = {name: _dataset(xarray, group) for name, group in groups.items()}
    try:
        import arviz
    except ImportError:
        return Groups(sets)
    if hasattr(arviz, "InferenceData"):
        return arviz.InferenceData(**sets)
    tree: Any = xarray  # of releases that know trees
    return tree.DataTree.from_dict(sets)


def _dataset(xarray: Any, group: Arrays) -> Any:
    coords = {name: a for name, a in group.items() if group.dims[name] == [name]}
    data = {name: (group.dims[name], a) for name, a in group.items() if name not in coords}
    return xarray.Dataset(data, coords, group.attrs)


def columns(groups: Groups) -> dict[str, NDArray[Any]]:
    """Return the posterior's draws one below the other: a column for each number, those of vectors by
    the names of what they are over."""
    post = groups["posterior"]
    out: dict[str, NDArray[Any]] = {}
    chains, draws = len(post["chain"]), len(post["draw"])
    out["chain"] = np.repeat(post["chain"], draws)
    out["draw"] = np.tile(post["draw"], chains)
    for name, a in post.items():
        over = post.dims[name][2:]
        if post.dims[name][:2] != ["chain", "draw"]:
            continue
        flat = a.reshape(chains * draws, -1)
        for k, at in enumerate(np.ndindex(*a.shape[2:])):
            labels = [str(post[d][i]) if d in post else str(i + 1) for d, i in zip(over, at)]
            out[f"{name}[{','.join(labels)}]" if labels else name] = flat[:, k]
    return out
