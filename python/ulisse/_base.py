"""The base of an estimator: scikit-learn's where it is installed, else as much of it as is needed."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:

    class Base:
        """What both bases have."""

        def get_params(self, deep: bool = True) -> dict[str, Any]: ...

        def set_params(self, **params: Any) -> Base: ...

        def score(self, X: Any, y: Any, sample_weight: Any = None) -> float: ...

    class NotFitted(ValueError):
        """The estimator has no results yet."""

else:
    try:
        from sklearn.base import BaseEstimator, RegressorMixin
        from sklearn.exceptions import NotFittedError as NotFitted

        class Base(RegressorMixin, BaseEstimator):
            pass

    except ImportError:

        class NotFitted(ValueError, AttributeError):
            pass

        class Base:
            _estimator_type = "regressor"

            @classmethod
            def _names(cls) -> list[str]:
                return [p for p in inspect.signature(cls.__init__).parameters if p != "self"]

            def get_params(self, deep: bool = True) -> dict[str, Any]:
                return {name: getattr(self, name) for name in self._names()}

            def set_params(self, **params: Any) -> Base:
                for name, value in params.items():
                    if name not in self._names():
                        raise ValueError(f"{type(self).__name__} has no parameter {name!r}: it has {', '.join(self._names())}")
                    setattr(self, name, value)
                return self

            def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
                y = np.asarray(y, dtype=np.float64)
                w = np.ones(len(y)) if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
                left = float(np.sum(w * (y - self.predict(X)) ** 2))
                return 1.0 - left / float(np.sum(w * (y - np.average(y, weights=w)) ** 2))

            def __repr__(self) -> str:
                default = {n: p.default for n, p in inspect.signature(type(self).__init__).parameters.items()}
                said = [f"{n}={v!r}" for n, v in self.get_params().items() if v is not default[n] and v != default[n]]
                return f"{type(self).__name__}({', '.join(said)})"


__all__ = ["Base", "NotFitted"]
