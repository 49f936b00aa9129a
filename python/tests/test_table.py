"""Tables go to the program as they are."""

import csv
import io

import numpy as np
import pytest

from ulisse import BadInput
from ulisse.table import Table


def read(data):
    return list(csv.reader(io.StringIO(Table.of(data).csv().decode())))


def test_floats_are_exact():
    rng = np.random.default_rng(1)
    x = np.concatenate([rng.normal(size=200) * 10.0 ** rng.integers(-300, 300, 200), [0.1, -0.0, 5e-324, 1.7976931348623157e308]])
    rows = read({"x": x, "single": np.float32(rng.normal(size=len(x)))})
    assert rows[0] == ["x", "single"]
    back = np.array([[float(v) for v in r] for r in rows[1:]])
    assert back[:, 0].tobytes() == x.tobytes()


def test_types_are_respected():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({
        "whole": pd.array([2**53 + 1, None, 3], dtype="Int64"),
        "int": [2**60, 2, 3],
        "flag": [True, False, True],
        "maybe": pd.array([True, None, False], dtype="boolean"),
        "text": ['a,"b"', None, "ü"],
        "season": pd.Categorical(["wet", "dry", "wet"]),
        "when": pd.to_datetime(["2024-01-01", None, "2024-01-02T03:00:00"]),
        "float": [1.5, np.nan, 3],
    })
    header, *rows = read(frame)
    cells = dict(zip(header, zip(*rows)))
    assert cells["int"] == (str(2**60), "2", "3")
    assert cells["flag"] == ("1", "0", "1")
    assert cells["text"] == ('a,"b"', "", "ü")
    assert cells["season"] == ("wet", "dry", "wet")
    assert [v[:19] for v in cells["when"]] == ["2024-01-01T00:00:00", "", "2024-01-02T03:00:00"]
    assert cells["float"] == ("1.5", "", "3.0")
    assert cells["whole"] == (str(2**53 + 1), "", "3")
    assert [float(v) if v else None for v in cells["maybe"]] == [1.0, None, 0.0]


def test_forms():
    x = np.arange(6.0).reshape(3, 2)
    want = [["x1", "x2"], ["0.0", "1.0"], ["2.0", "3.0"], ["4.0", "5.0"]]
    assert read(x) == read(x.tolist()) == read(np.asfortranarray(x)) == want
    assert read(np.array([(1, 2.5)], dtype=[("a", int), ("b", float)])) == [["a", "b"], ["1", "2.5"]]
    pd = pytest.importorskip("pandas")
    assert read(pd.DataFrame(x)) == want  # columns that nobody named
    assert not Table.of(pd.DataFrame(x)).named and Table.of(pd.DataFrame(x, columns=["a", "b"])).named


def test_parquet_keeps_types():
    pq = pytest.importorskip("pyarrow.parquet")
    t = pq.read_table(io.BytesIO(Table.of({"x": np.array([0.1, 2.0]), "k": np.array([1, 2]), "s": np.array(["a", "b"], dtype=object)}).encode()))
    assert [str(c.type) for c in t.columns] == ["double", "int64", "string"]


@pytest.mark.parametrize(
    "bad, said",
    [
        ([[1.0, np.nan]], "NaN"),
        ([[1.0, np.inf]], "infinity"),
        ([1.0, 2.0], "Expected 2D array, got 1D array"),
        ([["a", "b"]], "does not hold numbers"),
        ([[1j, 2]], "Complex data not supported"),
        (np.empty((0, 2)), "0 sample"),
        ({"a": [1, 2], "b": [1]}, "not of one length"),
        ({"a": [[1, 2]]}, "a column has 2 dimensions"),
    ],
)
def test_refused(bad, said):
    with pytest.raises(BadInput, match=said):
        Table.of(bad)


def test_columns_of_one_name():
    pd = pytest.importorskip("pandas")
    with pytest.raises(BadInput, match="more than one column called a"):
        Table.of(pd.DataFrame([[1, 2]], columns=["a", "a"]))
