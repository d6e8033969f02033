"""What is shipped: everything of the checkout in the source distribution, the package and nothing else in the wheel."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import robodyn

ROOT = Path(__file__).resolve().parents[2]
NAME = f"robodyn-{robodyn.__version__}"
pytestmark = pytest.mark.matrix


def checkout() -> list[str]:
    """The files that belong to the project: those that git knows, or all where this is no checkout."""
    git = shutil.which("git")
    if git is None or not (ROOT / ".git").exists():
        pytest.skip("this is no checkout of git")
    listed = subprocess.run([git, "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    return [name for name in listed.decode().split("\0") if name and (ROOT / name).is_file()]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of both files, built from a copy of the checkout without a network."""
    pytest.importorskip("build")
    copy, out = tmp_path_factory.mktemp("copy"), tmp_path_factory.mktemp("dist")
    for name in checkout():
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, copy / name)
    command = [sys.executable, "-m", "build", "--no-isolation", "--skip-dependency-check", "-o", str(out), str(copy)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return out


def test_the_source_distribution_is_the_checkout(built: Path) -> None:
    with tarfile.open(built / f"{NAME}.tar.gz") as archive:
        found = {Path(name).relative_to(NAME).as_posix() for name in archive.getnames() if name != NAME}
    assert set(checkout()) - found == set()
    more = {name for name in found - set(checkout()) if not any(each.startswith(f"{name}/") for each in found)}
    made = {name for name in more if name in ("PKG-INFO", "setup.cfg") or name.startswith("robodyn.egg-info/")}
    assert more == made


def test_the_wheel_is_the_package(built: Path) -> None:
    with zipfile.ZipFile(built / f"{NAME}-py3-none-any.whl") as archive:
        names = archive.namelist()
        said = archive.read(f"{NAME}.dist-info/METADATA").decode()
        entries = archive.read(f"{NAME}.dist-info/entry_points.txt").decode()
    package = {name for name in checkout() if name.startswith("robodyn/")}
    info = {name for name in names if name.startswith(f"{NAME}.dist-info/")}
    assert set(names) - info == package
    assert {f"{NAME}.dist-info/licenses/LICENSE", f"{NAME}.dist-info/METADATA"} <= info
    assert "robodyn = robodyn.tools.cli:main" in entries
    assert f"\nVersion: {robodyn.__version__}\n" in said and "\nRequires-Python: >=3.11\n" in said
    simulators = ("drake", "gymnasium", "mujoco", "pybullet", "ros")
    for extra in ("bench", "casadi", "docs", "gpu", "jax", "lint", "test", "torch", *simulators):
        assert f"\nProvides-Extra: {extra}\n" in said


def test_the_wheel_answers_without_the_checkout(built: Path, tmp_path: Path) -> None:
    """And without a compiler on the path."""
    with zipfile.ZipFile(built / f"{NAME}-py3-none-any.whl") as archive:
        archive.extractall(tmp_path / "site")
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]); import numpy as np, robodyn as rd\n"
        "assert rd.__file__.startswith(sys.argv[1]), rd.__file__\n"
        "dyn = rd.Dynamics(rd.load_urdf(sys.argv[2]))\n"
        "assert dyn.engine.name == 'cpu'\n"
        "print(dyn.inverse_dynamics(*np.zeros((3, 5, 6))).shape)\n"
    )
    environment = {
        "PATH": str(tmp_path / "nothing"),
        "HOME": str(tmp_path),
        "ROBODYN_CACHE_DIR": str(tmp_path / "cache"),
    }
    command = [sys.executable, "-c", program, str(tmp_path / "site"), str(ROOT / "models" / "arm6.urdf")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert (done.returncode, done.stdout) == (0, "(5, 6)\n"), done.stderr
