"""How a run is shown."""

import io
import sys
import types

import ulisse
from ulisse import progress
from ulisse.progress import Lines, Status, Terminal


def test_status():
    s = Status("sampling", 20, 250, 500, 1.0123, 321.4, 75, "")
    assert str(s) == "sampling  250 of 500 draws a chain  R-hat 1.012  ESS 321  1:15"
    assert s.fraction == 0.5 and not s.ended and Status("failed").ended
    assert str(Status("queued", message="waits for workers")) == "queued  0:00  waits for workers"
    assert str(Status("warmup", 7, seconds=3661)) == "warmup  7 iterations  1:01:01"
    assert Status("sampling", 0, 700, 500).fraction == 1


def test_lines():
    out = io.StringIO()
    lines = Lines(out)
    for s in [Status("queued"), Status("queued"), Status("sampling"), Status("sampling", draws=3)]:
        lines.show("a", s)
    assert [line.split()[1] for line in out.getvalue().splitlines()] == ["queued", "sampling"]


def test_terminal():
    out = io.StringIO()
    t = Terminal(out)
    t.show("a", Status("sampling", 20, 250, 500, message="a long message"))
    t.show("a", Status("sampling", 20, 500, 500))
    t.close()
    first, second = out.getvalue().strip("\r\n").split("\r")
    assert f"[{'=' * 12}{' ' * 12}]" in first and f"[{'=' * 24}]" in second
    assert len(second) == len(first) and out.getvalue().endswith("\n")  # nothing of the longer line is left


def test_notebook(monkeypatch):
    shown = []
    handle = types.SimpleNamespace(update=lambda content: shown.append(content))
    page = types.ModuleType("IPython.display")
    page.HTML = lambda text: text
    page.display = lambda content, display_id: (shown.append(content), handle)[1]
    python = types.ModuleType("IPython")
    python.get_ipython = lambda: types.SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", python)
    monkeypatch.setitem(sys.modules, "IPython.display", page)
    d = progress.display(None)
    assert isinstance(d, progress.Notebook) and isinstance(progress.display(False), progress.Silent)
    d.show("<a>", Status("sampling", 20, 250, 500, 1.01, 300, 5))
    d.show("<a>", Status("converged", 20, 500, 500, 1.01, 300, 5))
    assert len(shown) == 2 and 'value="0.500"' in shown[0] and "&lt;a&gt;" in shown[0] and "R-hat 1.010" in shown[1]


def test_where(monkeypatch):
    out = io.StringIO()
    monkeypatch.setattr(sys, "stderr", out)
    assert isinstance(progress.display(None), progress.Silent) and isinstance(progress.display(True), Lines)
    out.isatty = lambda: True
    assert isinstance(progress.display(None), Terminal)


def test_jobs_show_themselves(done):
    assert repr(done).startswith("<LocalJob small (") and "converged" in repr(done)
    assert done._repr_html_().startswith("<div><b>small</b>")
    assert ulisse.__version__
