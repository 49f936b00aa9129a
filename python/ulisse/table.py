"""Tables: what users hold, and the bytes that the program reads."""

from __future__ import annotations

import csv
import datetime
import io
import os
from typing import Any, Iterable, Optional, Sequence, Union

import numpy as np
from numpy.typing import NDArray

from .errors import BadInput

__all__ = ["Table"]

Column = NDArray[Any]


class Table:
    """Named columns of equal length.

    named says that the names are the user's, not made here for an array.
    """

    def __init__(self, names: list[str], columns: list[Column], named: bool) -> None:
        self.names = names
        self.columns = columns
        self.named = named

    @classmethod
    def of(cls, data: Any, what: str = "X") -> Table:
        """Return the table that a user means.

        data may be a DataFrame (pandas, Polars), an Arrow table, a mapping of columns, a
        structured array, or an array of numbers of two dimensions.
        """
        if isinstance(data, Table):
            return data
        if hasattr(data, "toarray") and hasattr(data, "nnz"):
            raise TypeError(
                f"A sparse matrix was passed, but dense data is required for {what}. "
                "Use X.toarray() to convert to a dense array."
            )
        if hasattr(data, "column_names") and hasattr(data, "column"):  # Arrow
            names = [str(n) for n in data.column_names]
            columns = [_column(data.column(i).to_numpy()) for i in range(len(names))]
            return cls._checked(names, columns, what)
        if hasattr(data, "columns") and hasattr(data, "__getitem__"):  # pandas, Polars
            keys = list(data.columns)
            cls._once(keys, what)
            columns = [_column(data[k]) for k in keys]
            named = all(isinstance(k, str) for k in keys)
            if not named:  # pandas counts columns that nobody named
                return cls(_numbered(len(keys)), [_plain(c, what) for c in columns], False)
            return cls._checked([str(k) for k in keys], columns, what)
        if isinstance(data, dict):
            return cls._checked([str(k) for k in data], [_column(v) for v in data.values()], what)
        if getattr(getattr(data, "dtype", None), "names", None):
            return cls._checked(list(data.dtype.names), [_column(data[k]) for k in data.dtype.names], what)
        x = _numbers(data, what)
        return cls(_numbered(x.shape[1]), [x[:, k] for k in range(x.shape[1])], False)

    @classmethod
    def _once(cls, names: list[Any], what: str) -> None:
        twice = sorted({str(n) for n in names if names.count(n) > 1})
        if twice:
            raise BadInput(f"{what} has more than one column called {', '.join(twice)}: rename them")

    @classmethod
    def _checked(cls, names: list[str], columns: list[Column], what: str) -> Table:
        cls._once(names, what)
        if len({len(c) for c in columns}) > 1:
            raise BadInput(f"the columns of {what} are not of one length")
        return cls(names, columns, True)

    @property
    def rows(self) -> int:
        """The number of rows."""
        return len(self.columns[0]) if self.columns else 0

    def select(self, names: Iterable[str], what: str = "X") -> Table:
        """Return the columns of these names, in their order."""
        names = list(names)
        missing = [n for n in names if n not in self.names]
        if missing:
            raise BadInput(f"{what} has no column {', '.join(missing)}: it has {', '.join(self.names)}")
        return Table(names, [self.columns[self.names.index(n)] for n in names], self.named)

    def column(self, name: str) -> Column:
        """Return the column of this name."""
        return self.select([name]).columns[0]

    def plus(self, name: str, column: Column) -> Table:
        """Return the table with one more column."""
        return Table([*self.names, name], [*self.columns, column], self.named)

    def matrix(self) -> NDArray[np.float64]:
        """Return the numbers, rows by columns. Columns of other things are refused."""
        for name, c in zip(self.names, self.columns):
            if c.dtype.kind not in "fiub":
                raise BadInput(f"the column {name} does not hold numbers")
        return np.column_stack([c.astype(np.float64) for c in self.columns])

    def encode(self) -> bytes:
        """Return the table as Parquet where pyarrow is installed, else as CSV.

        Both keep numbers to the last bit: CSV has the shortest decimals that read back
        as the same float64.
        """
        try:
            import pyarrow as pa
            import pyarrow.parquet as pq
        except ImportError:
            return self.csv()
        out = io.BytesIO()
        columns = [pa.array(_parquet(c), from_pandas=True) for c in self.columns]
        pq.write_table(pa.table(dict(zip(self.names, columns))), out)
        return out.getvalue()

    def csv(self) -> bytes:
        """Return the table as CSV."""
        out = io.StringIO(newline="")
        write = csv.writer(out, lineterminator="\n")
        write.writerow(self.names)
        write.writerows(zip(*(_texts(c) for c in self.columns)))
        return out.getvalue().encode("utf-8")


def _numbered(n: int) -> list[str]:
    return [f"x{k + 1}" for k in range(n)]


def _column(values: Any) -> Column:
    """Return one column as an array of one dimension."""
    dtype = getattr(values, "dtype", None)
    if type(dtype).__module__.startswith("pandas") and hasattr(values, "to_numpy"):
        kind = getattr(dtype, "kind", "O")
        if kind in "iufb" and not values.isna().any():  # nullable types
            return np.asarray(values.to_numpy(dtype=np.dtype(kind + ("1" if kind == "b" else "8"))))
        values = values.astype(object)  # categories, texts, times with a zone
    c = np.asarray(values)
    if c.ndim != 1:
        raise BadInput(f"a column has {c.ndim} dimensions: give one of each column")
    if np.iscomplexobj(c):
        raise BadInput("Complex data not supported: give real numbers")
    return c


def _plain(c: Column, what: str) -> Column:
    """Return a column of an array: it can be nothing but finite numbers."""
    return _numbers(c.reshape(-1, 1), what)[:, 0]


def _numbers(data: Any, what: str) -> NDArray[Any]:
    """Return an array of two dimensions of finite numbers. The words are those that users
    of scikit-learn know."""
    x = np.asarray(data)
    if np.iscomplexobj(x):
        raise BadInput(f"Complex data not supported: {what} has to hold real numbers")
    if x.dtype.kind == "O":
        try:
            x = x.astype(np.float64)
        except (TypeError, ValueError) as error:
            if "must be a string or a" in str(error):  # scikit-learn's own kind of error
                raise TypeError(f"{what} does not hold numbers: argument must be a string or a number") from None
            raise BadInput(f"{what} does not hold numbers: name its columns in a DataFrame, and its types are kept") from None
    elif x.dtype.kind not in "fiub":
        raise BadInput(f"{what} does not hold numbers: name its columns in a DataFrame, and its types are kept")
    if x.ndim != 2:
        raise BadInput(
            f"Expected 2D array, got {x.ndim}D array instead: Reshape your data either using "
            f"{what}.reshape(-1, 1) if it has a single feature or {what}.reshape(1, -1) if it is a single sample."
        )
    if x.shape[0] == 0:
        raise BadInput(f"Found array with 0 sample(s) (shape={x.shape}) while a minimum of 1 is required: {what} has no rows")
    if x.shape[1] == 0:
        raise BadInput(f"Found array with 0 feature(s) (shape={x.shape}) while a minimum of 1 is required: {what} has no columns")
    finite(x, what)
    return x


def finite(x: NDArray[Any], what: str) -> None:
    """Refuse numbers that are none."""
    if x.dtype.kind == "f" and not np.isfinite(x).all():
        kind = "NaN" if np.isnan(x).any() else "infinity"
        raise BadInput(f"Input {what} contains {kind}: drop those rows, or fill them in")


def row_values(values: Any, what: str, rows: int) -> Column:
    """Return what is said of so many rows: a finite number of each."""
    if isinstance(values, str):
        raise BadInput(f"{what}: give an array here; the name of a column is a parameter of the estimator")
    c = _column(values)
    if len(c) != rows:
        raise BadInput(f"{what}: there are {len(c)} values for {rows} rows")
    return _plain(c, what)


def codes(c: Column, names: Sequence[str], what: str) -> NDArray[np.float64]:
    """Return the places, from 0, of the values of a column among the names of a category's levels; NaN of a missing one."""
    places = {name: float(k) for k, name in enumerate(names)}
    places[""] = places.get("", float("nan"))
    found = [places.get(t, places.get(t[:-2] if t.endswith(".0") else t)) for t in _texts(_column(c))]
    if None in found:
        raise BadInput(f"{what} has a value that is none of {', '.join(names)}")
    return np.array(found, dtype=np.float64)


def target(y: Any, rows: int, names: bool = False) -> Column:
    """Return the values of a target for so many rows; names: it may be texts, which are the names of classes."""
    t = np.asarray(y)
    if t.dtype == object and names and t.ndim == 1:
        t = _column(y)
    if t.ndim == 2 and t.shape[1] == 1:
        try:
            from sklearn.exceptions import DataConversionWarning as Told
        except ImportError:
            Told = UserWarning
        import warnings

        warnings.warn(
            "A column-vector y was passed when a 1d array was expected. Please change the shape of y "
            "to (n_samples,), for example using ravel().",
            Told,
            stacklevel=4,
        )
        t = t.ravel()
    if t.ndim != 1:
        raise BadInput(f"y should be a 1d array, got an array of shape {t.shape} instead: there is one target")
    if not names or t.dtype.kind in "fiub":
        t = _plain(t, "y")
    if len(t) != rows:
        raise BadInput(f"Found input variables with inconsistent numbers of samples: X has {rows} rows, y has {len(t)}")
    return t


def _texts(c: Column) -> list[str]:
    """Return the cells of a column. Missing values are empty."""
    kind = c.dtype.kind
    if kind == "b":
        return ["1" if v else "0" for v in c.tolist()]
    if kind in "iu":
        return [str(v) for v in c.tolist()]
    if kind == "f":
        return ["" if v != v else repr(v) for v in c.astype(np.float64).tolist()]
    if kind == "M":
        return ["" if v == "NaT" else v for v in np.datetime_as_string(c).tolist()]
    return [_text(v) for v in c.tolist()]


def _missing(v: object) -> bool:
    return v is None or str(v) in ("<NA>", "NaT") or v != v


def _text(v: Union[None, bool, float, str, object]) -> str:
    if _missing(v):
        return ""
    if isinstance(v, (bool, np.bool_)):
        return "1" if v else "0"
    if isinstance(v, (float, np.floating)):
        return repr(float(v))
    if isinstance(v, (datetime.date, datetime.datetime)):
        return v.isoformat()
    return str(v)


def _parquet(c: Column) -> Any:
    """Return what Arrow is to make a column of: numbers and times keep their types, other things
    are texts."""
    if c.dtype.kind == "b":
        return c.astype(np.int8)
    if c.dtype.kind in "iuf":
        return c
    if c.dtype.kind == "O" and all(_missing(v) or isinstance(v, (int, float, np.number)) for v in c.tolist()):
        return [None if _missing(v) else v for v in c.tolist()]
    return [text or None for text in _texts(c)]


def data_bytes(path: Union[str, os.PathLike[str]]) -> Optional[bytes]:
    """Return the bytes of a table in a file, None if it cannot be read."""
    try:
        with open(path, "rb") as f:
            return f.read()
    except OSError:
        return None
