"""Builds the package: wheels and the source distribution, by nothing but the standard library.

It is the build backend that pyproject.toml names (PEP 517), so that `pip install .` works without a
network, and `build` makes the wheels for all platforms with it. What it writes is a function of what it reads:
files in order, times fixed (SOURCE_DATE_EPOCH, else 1980), permissions set.
"""

from __future__ import annotations

import base64
import hashlib
import io
import os
import re
import sys
import tarfile
import time
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent

# The tags of the platforms. The program is static, so that it asks nothing of a C library; macOS 12 is the
# oldest that Go 1.26 runs on.
PLATFORMS = {
    ("linux", "amd64"): "manylinux_2_17_x86_64.manylinux2014_x86_64.musllinux_1_1_x86_64",
    ("linux", "arm64"): "manylinux_2_17_aarch64.manylinux2014_aarch64.musllinux_1_1_aarch64",
    ("darwin", "amd64"): "macosx_12_0_x86_64",
    ("darwin", "arm64"): "macosx_12_0_arm64",
    ("windows", "amd64"): "win_amd64",
    ("windows", "arm64"): "win_arm64",
}


def project() -> dict[str, object]:
    """Return the table project of pyproject.toml. Python 3.9 and 3.10 have no reader of TOML; the file is ours,
    and says what it says in simple forms."""
    text = (HERE / "pyproject.toml").read_text(encoding="utf-8")
    table: dict[str, object] = {}
    for section in ("project", "project.optional-dependencies", "project.scripts"):
        found = re.search(rf"^\[{re.escape(section)}\]\n(.*?)(?=^\[|\Z)", text, re.MULTILINE | re.DOTALL)
        assert found, section
        body = re.sub(r"\n\s+|\n(?=\])", " ", found[1])
        values = {}
        for key, value in re.findall(r'^([\w-]+) = (.+)$', body, re.MULTILINE):
            strings = re.findall(r'"([^"]*)"', value)
            values[key] = strings if value.startswith("[") else strings[0]
        if section == "project":
            table.update(values)
        else:
            table[section.split(".")[1]] = values
    return table


def version() -> str:
    """Return the version of the package: that of the program, as Python spells it."""
    found = re.search(r'^__version__ = "([^"]+)"$', (HERE / "ulisse" / "__init__.py").read_text(encoding="utf-8"), re.MULTILINE)
    assert found
    return spelt(found[1])


def spelt(release: str) -> str:
    """Return a version of the program as Python spells it (PEP 440): 1.2.0-rc.1 is 1.2.0rc1, 1.2.0-dev is 1.2.0.dev0."""
    found = re.fullmatch(r"(\d+(?:\.\d+)*)(?:-(alpha|beta|rc|dev)(?:\.?(\d+))?)?", release)
    if found is None:  # it may be spelt so already
        return release
    base, stage, number = found.groups()
    return base + {None: "", "alpha": "a", "beta": "b", "rc": "rc", "dev": ".dev"}[stage] + ((number or "0") if stage else "")


def metadata() -> str:
    """Return the metadata of the package (core metadata 2.1)."""
    p = project()
    lines = ["Metadata-Version: 2.1", f"Name: {p['name']}", f"Version: {version()}", f"Summary: {p['description']}"]
    lines += [f"License: {p['license']}", f"Keywords: {','.join(p['keywords'])}", f"Requires-Python: {p['requires-python']}"]
    lines += [f"Classifier: {c}" for c in p["classifiers"]]
    lines += [f"Requires-Dist: {d}" for d in p["dependencies"]]
    for extra, needs in p["optional-dependencies"].items():
        lines += [f"Provides-Extra: {extra}"] + [f"Requires-Dist: {d}; extra == '{extra}'" for d in needs]
    lines += ["Description-Content-Type: text/markdown", "", (HERE / "README.md").read_text(encoding="utf-8")]
    return "\n".join(lines)


def moment() -> tuple[int, int, int, int, int, int]:
    """Return the time that all files of an archive get. A zip knows none before 1980."""
    t = time.gmtime(max(int(os.environ.get("SOURCE_DATE_EPOCH", "315532800")), 315532800))
    return t[0], t[1], t[2], t[3], t[4], t[5]


def sources() -> list[tuple[str, bytes]]:
    """Return the files of the package, by their names in it."""
    root = HERE / "ulisse"
    found = [p for p in root.rglob("*") if p.suffix == ".py" or p.name == "py.typed"]
    return sorted((p.relative_to(HERE).as_posix(), p.read_bytes()) for p in found)


def write_wheel(folder: str, tag: str, binary: bytes | None = None, exe: str = "ulisse") -> str:
    """Write a wheel, with the program in it if one is given, and return its name.

    A wheel with the program installs the command ulisse, too.
    """
    p = project()
    name = f"{p['name']}-{version()}"
    info = f"{name}.dist-info"
    files = [(n, content, 0o644) for n, content in sources()]
    if binary is not None:
        files.append((f"ulisse/bin/{exe}", binary, 0o755))
        scripts = "".join(f"{k} = {v}\n" for k, v in p["scripts"].items())
        files.append((f"{info}/entry_points.txt", f"[console_scripts]\n{scripts}".encode(), 0o644))
    tags = "".join(f"Tag: py3-none-{one}\n" for one in tag.split("."))
    pure = "true" if binary is None else "false"
    files += [
        (f"{info}/METADATA", metadata().encode(), 0o644),
        (f"{info}/WHEEL", f"Wheel-Version: 1.0\nGenerator: ulisse backend\nRoot-Is-Purelib: {pure}\n{tags}".encode(), 0o644),
        (f"{info}/LICENSE", (HERE / "LICENSE").read_bytes(), 0o644),
    ]
    record = "".join(f"{n},{digest(content)},{len(content)}\n" for n, content, _ in files) + f"{info}/RECORD,,\n"
    files.append((f"{info}/RECORD", record.encode(), 0o644))
    wheel = f"{name}-py3-none-{tag}.whl"
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as z:
        for n, content, mode in files:
            entry = zipfile.ZipInfo(n, moment())
            entry.create_system = 3  # permissions are those of Unix
            entry.external_attr = (0o100000 | mode) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            z.writestr(entry, content)
    put(Path(folder) / wheel, out.getvalue())
    return wheel


def digest(content: bytes) -> str:
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


def put(path: Path, content: bytes) -> None:
    """Write a file, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    tmp = path.with_name(f".{path.name}.tmp")
    tmp.write_bytes(content)
    os.replace(tmp, path)


def write_sdist(folder: str) -> str:
    """Write the source distribution and return its name. The program is not in it: it is written in Go."""
    import gzip

    name = f"{project()['name']}-{version()}"
    files = sources() + [(n, (HERE / n).read_bytes()) for n in ("pyproject.toml", "README.md", "LICENSE", "backend.py")]
    files.append(("PKG-INFO", metadata().encode()))
    files += sorted((p.relative_to(HERE).as_posix(), p.read_bytes()) for p in (HERE / "tests").glob("*.py"))
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for n, content in files:
            entry = tarfile.TarInfo(f"{name}/{n}")
            entry.size, entry.mode = len(content), 0o644
            entry.mtime = int(os.environ.get("SOURCE_DATE_EPOCH", "315532800"))
            tar.addfile(entry, io.BytesIO(content))
    put(Path(folder) / f"{name}.tar.gz", gzip.compress(out.getvalue(), 9, mtime=0))
    return f"{name}.tar.gz"


# The hooks of PEP 517. The wheel of `pip install .` has no program: it uses $ULISSE_BINARY, or the PATH.


def get_requires_for_build_wheel(config_settings=None):  # type: ignore[no-untyped-def]
    return []


get_requires_for_build_sdist = get_requires_for_build_wheel


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):  # type: ignore[no-untyped-def]
    return write_wheel(wheel_directory, "any")


def build_sdist(sdist_directory, config_settings=None):  # type: ignore[no-untyped-def]
    return write_sdist(sdist_directory)


if sys.version_info < (3, 9):
    raise SystemExit("ulisse takes Python 3.9 or later")
