"""The wheels and the source distribution."""

import base64
import csv
import hashlib
import io
import os
import re
import stat
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

HERE = Path(__file__).parents[1]
sys.path.insert(0, str(HERE))

import backend  # noqa: E402
import ulisse  # noqa: E402
from ulisse import program  # noqa: E402


def build(out, *args):
    done = subprocess.run([sys.executable, str(HERE / "build"), "--out", str(out), *args], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return dict(reversed(line.split()) for line in done.stdout.splitlines())


def test_valid(tmp_path):
    """By the specification of binary distributions."""
    fake = tmp_path / "fake"
    fake.write_bytes(b"\x7fELF" + bytes(10**5))
    hashes = build(tmp_path / "a", *[a for p in backend.PLATFORMS for a in ("--platform", f"{'/'.join(p)}={fake}")])
    again = build(tmp_path / "b", *[a for p in backend.PLATFORMS for a in ("--platform", f"{'/'.join(p)}={fake}")])
    assert hashes == again and len(hashes) == 7
    for name in hashes:
        if not name.endswith(".whl"):
            continue
        dist, version, *tag = name[: -len(".whl")].split("-")
        info = f"{dist}-{version}.dist-info"
        with zipfile.ZipFile(tmp_path / "a" / name) as z:
            assert z.testzip() is None
            record = {r[0]: r[1:] for r in csv.reader(io.StringIO(z.read(f"{info}/RECORD").decode()))}
            assert set(record) == set(z.namelist()) and record[f"{info}/RECORD"] == ["", ""]
            for n, (digest, size) in record.items():
                if digest:
                    content = z.read(n)
                    assert digest == "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
                    assert int(size) == len(content)
            wheel = z.read(f"{info}/WHEEL").decode().splitlines()
            assert "Wheel-Version: 1.0" in wheel and "Root-Is-Purelib: false" in wheel
            assert [line[len("Tag: ") :] for line in wheel if line.startswith("Tag: ")] == [f"py3-none-{t}" for t in tag[2].split(".")]
            exe = "ulisse/bin/ulisse" + (".exe" if "-win_" in name else "")
            assert z.read(exe) == fake.read_bytes() and stat.S_IMODE(z.getinfo(exe).external_attr >> 16) == 0o755
            assert {"ulisse/__init__.py", "ulisse/py.typed", f"{info}/METADATA", f"{info}/entry_points.txt"} <= set(record)
            assert not any("__pycache__" in n or "tests/" in n for n in record)


def test_tags_are_known():
    tags = pytest.importorskip("packaging.tags")
    utils = pytest.importorskip("packaging.utils")
    known = {str(t) for t in tags.sys_tags()}
    for (system, machine), tag in backend.PLATFORMS.items():
        name, version, _, parsed = utils.parse_wheel_filename(f"ulisse-{backend.version()}-py3-none-{tag}.whl")
        assert name == "ulisse" and str(version) == ulisse.__version__
        here = system == sys.platform and machine == {"x86_64": "amd64", "aarch64": "arm64"}.get(os.uname().machine)
        assert bool(known & {str(t) for t in parsed}) == here


def pip(*args):
    done = subprocess.run([sys.executable, "-m", "pip", "--disable-pip-version-check", *args], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def has_pip():
    if subprocess.run([sys.executable, "-m", "pip", "--version"], capture_output=True).returncode != 0:
        pytest.skip("needs pip (Debian: python3-pip)")


@pytest.mark.skipif(sys.platform != "linux", reason="it installs the wheel for Linux")
def test_install(tmp_path, has_pip):
    """A wheel installs without a network, and brings the program."""
    machine = {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine]
    build(tmp_path / "dist", "--platform", f"linux/{machine}={program.find()}", "--no-sdist")
    (wheel,) = (tmp_path / "dist").iterdir()
    pip("install", "--no-index", "--no-deps", "--target", str(tmp_path / "site"), str(wheel))
    env = {k: v for k, v in os.environ.items() if k not in ("ULISSE_BINARY", "PYTHONPATH")}
    env.update(PYTHONPATH=str(tmp_path / "site"), PATH="/usr/bin:/bin")
    say = "import ulisse, ulisse.program as p; print(ulisse.__file__, p.find(), p.version(), sep='\\n')"
    done = subprocess.run([sys.executable, "-c", say], env=env, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    file, found, version = done.stdout.splitlines()
    assert file.startswith(str(tmp_path / "site")) and found == str(tmp_path / "site" / "ulisse" / "bin" / "ulisse")
    assert version.startswith("ulisse ")
    command = [str(tmp_path / "site" / "bin" / "ulisse"), "version"]
    assert subprocess.run(command, env=env, capture_output=True, text=True).stdout.strip() == version
    assert subprocess.run([sys.executable, "-m", "ulisse", "version"], env=env, cwd=tmp_path, capture_output=True, text=True).stdout.strip() == version


def test_source_distribution(tmp_path, has_pip):
    hashes = build(tmp_path, "--platform", f"linux/amd64={__file__}")
    (name,) = (n for n in hashes if n.endswith(".tar.gz"))
    with tarfile.open(tmp_path / name) as tar:
        names = tar.getnames()
    assert {f"ulisse-{backend.version()}/{n}" for n in ("pyproject.toml", "PKG-INFO", "LICENSE", "ulisse/gp.py", "backend.py")} <= set(names)
    pip("install", "--no-index", "--no-deps", "--target", str(tmp_path / "site"), str(tmp_path / name))
    assert (tmp_path / "site" / "ulisse" / "py.typed").is_file()
    assert not (tmp_path / "site" / "bin").exists()  # it has no program, and so no command
    meta = next((tmp_path / "site").glob("ulisse-*.dist-info/METADATA")).read_text()
    assert "Requires-Dist: numpy\n" in meta and "Requires-Python: >=3.9\n" in meta and "Provides-Extra: all" in meta


def test_project_is_what_toml_says():
    tomllib = pytest.importorskip("tomllib")
    said = tomllib.loads((HERE / "pyproject.toml").read_text())["project"]
    assert said.pop("dynamic") == ["version"]
    said["license"] = said["license"]["text"]
    assert {k: v for k, v in backend.project().items() if k != "dynamic"} == said


def test_one_version():
    """The package has the program's version, as Python spells it."""
    text = (HERE.parent / "internal" / "version" / "version.go").read_text()
    (version,) = re.findall(r'Version\s*= "([^"]+)"', text)
    assert ulisse.__version__ == backend.spelt(version)


@pytest.mark.parametrize("release, want", [("1.2.0", "1.2.0"), ("1.2.0-rc.1", "1.2.0rc1"), ("1.2.0-beta2", "1.2.0b2"), ("0.1.0-dev", "0.1.0.dev0"), ("0.1.0.dev0", "0.1.0.dev0")])
def test_versions(release, want):
    assert backend.spelt(release) == want
    version = pytest.importorskip("packaging.version")
    assert str(version.Version(want)) == want
