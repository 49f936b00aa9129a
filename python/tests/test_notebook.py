"""The worked analysis does what it says."""

import importlib.util
import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

HERE = Path(__file__).parents[1]
NOTEBOOK = HERE.parent / "docs" / "notebooks" / "yield.ipynb"


@pytest.fixture
def packages():
    for name in ("pandas", "xarray", "matplotlib", "sklearn"):
        pytest.importorskip(name)


def test_in_a_kernel(packages, monkeypatch, tmp_path):
    """As Jupyter does it, with what a notebook shows of a fit."""
    nbformat = pytest.importorskip("nbformat")
    client = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    monkeypatch.setenv("PYTHONPATH", str(HERE))
    monkeypatch.setenv("PYDEVD_DISABLE_FILE_VALIDATION", "1")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    monkeypatch.delenv("MPLBACKEND", raising=False)
    nb = nbformat.read(NOTEBOOK, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        client.NotebookClient(nb, timeout=300, kernel_name="python3").execute()
    outputs = [o for cell in nb.cells for o in cell.get("outputs", [])]
    bars = [o["data"]["text/html"] for o in outputs if "<progress" in o.get("data", {}).get("text/html", "")]
    assert len(bars) == 4 and all("converged" in b for b in bars)
    assert sum("image/png" in o.get("data", {}) for o in outputs) == 2
    assert not any(o.get("name") == "stderr" for o in outputs)


def test_as_a_script(packages, tmp_path):
    """Where there is no Jupyter: the first cells, up to the predictions."""
    if importlib.util.find_spec("nbclient") and importlib.util.find_spec("ipykernel"):
        pytest.skip("a kernel ran them all")

    cells = ["".join(c["source"]) for c in json.loads(NOTEBOOK.read_text())["cells"] if c["cell_type"] == "code"]
    script = "\n".join(cells[:5]) + "\nassert gp.converged_\n"
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(HERE)}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_outputs_are_there():
    cells = [c for c in json.loads(NOTEBOOK.read_text())["cells"] if c["cell_type"] == "code"]
    assert all(c["execution_count"] for c in cells) and sum(bool(c["outputs"]) for c in cells) >= 6
