"""What holds for the code itself."""

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parents[1]


def test_types():
    if shutil.which("mypy") is None:
        pytest.skip("needs mypy (Debian: mypy)")
    done = subprocess.run(["mypy", "--strict"], cwd=HERE, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("path", sorted([*(HERE / "ulisse").glob("*.py"), HERE / "backend.py"]), ids=lambda p: p.name)
def test_syntax_of_python_3_9(path):
    ast.parse(path.read_text(), feature_version=(3, 9))


def test_import_is_light():
    """scikit-learn and pandas take a second to load: not before they are needed."""
    code = f"import sys; sys.path.insert(0, {str(HERE)!r}); import ulisse; print(sorted(set(sys.modules) & {{'sklearn', 'pandas', 'xarray', 'matplotlib'}}))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"


def test_everything_public_is_described():
    import inspect

    import ulisse

    for name in ulisse.__all__:
        thing = getattr(ulisse, name)
        assert inspect.getdoc(thing), name
        if inspect.isclass(thing):
            for member, value in vars(thing).items():
                if not member.startswith("_") and (inspect.isfunction(value) or isinstance(value, property)):
                    assert inspect.getdoc(value), f"{name}.{member}"
