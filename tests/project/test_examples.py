"""Every script of examples/ runs, prints something and passes its own check."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from robots import own

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SCRIPTS = sorted(EXAMPLES.glob("[0-9]*.py"))

# Packages that an example may do without, but then shows nothing.
OPTIONAL = ("mujoco", "scipy", "pinocchio", "gymnasium")
# Those of extras, without which an example leaves out a part, or all.
PARTIAL = ("casadi", "jax", "torch", "distributed", "viser")
SLOW = ("27_quadruped_jumps", "31_quadruped_lands", "33_whole_body_control")
NIGHTLY = ("35_learning_to_walk_by_gradients",)  # a minute, as 32 takes

# A script takes a few seconds, the one that learns a minute; a machine that is busy or slow may take long.
TIMEOUT = 300


def run(script, folder, *arguments, **environment):
    """Run a script as a user would, in a folder of its own and where invalid arithmetic raises."""
    result = subprocess.run(
        [sys.executable, "-W", "error::RuntimeWarning", str(script), *map(str, arguments)],
        cwd=folder,
        env={**os.environ, "PYTHONUTF8": "1", **environment},
        capture_output=True,
        encoding="utf-8",
        timeout=TIMEOUT,
    )
    assert result.returncode == 0, f"{script.name} failed:\n{result.stdout}\n{result.stderr}"
    return result.stdout


def imports(script):
    """Top-level packages that a script imports."""
    return re.findall(r"^\s*(?:import|from) (\w+)", script.read_text(encoding="utf-8"), re.MULTILINE)


def test_there_are_examples():
    assert SCRIPTS, f"no scripts in {EXAMPLES}"


def scripts():
    """All; those that leave out a part without an extra run where it is installed."""
    for script in SCRIPTS:
        partial, slow = set(PARTIAL) & set(imports(script)), script.stem in SLOW
        marks = [pytest.mark.extras] if partial else [pytest.mark.matrix] if slow else []
        marks = [pytest.mark.nightly] if script.stem in NIGHTLY else marks
        yield pytest.param(script, id=script.stem, marks=marks)


@pytest.mark.parametrize("script", tuple(scripts()))
@pytest.mark.some(of=3, rest="matrix")
def test_example_runs_and_passes_its_check(script, tmp_path):
    for package in OPTIONAL:
        if package in imports(script) and importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    assert run(script, tmp_path).strip(), f"{script.name} printed nothing"
    assert not list(tmp_path.iterdir()), f"{script.name} left files behind"


@pytest.mark.parametrize("name", ["ball_joint_arm", "gripper", "humanoid", "oblique", "satellite"])
@pytest.mark.some(of=3, when="matrix")
def test_load_and_ask_takes_any_robot(name, tmp_path):
    printed = run(EXAMPLES / "01_load_and_ask.py", tmp_path, own(name))
    assert name in printed


def test_readme_lists_every_example():
    listed = re.findall(r"^\| `(\S+\.py)", (EXAMPLES / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert listed == [script.name for script in SCRIPTS]


def test_the_page_of_examples_has_every_one():
    text = (EXAMPLES.parent / "docs" / "examples.md").read_text(encoding="utf-8")
    names = [script.name for script in SCRIPTS]
    assert sorted(re.findall(r"^- \[(\S+\.py)\]", text, re.MULTILINE)) == names, "the list by task"
    assert re.findall(r"literalinclude\} \.\./examples/(\S+\.py)", text) == names, "the scripts"


@pytest.mark.parametrize("package", OPTIONAL + PARTIAL)
@pytest.mark.some(of=3, when="matrix")
def test_example_without_its_package_says_so(package, tmp_path):
    # Python runs sitecustomize before the script; None in sys.modules makes an import fail.
    (tmp_path / "sitecustomize.py").write_text(f"import sys\nsys.modules[{package!r}] = None\n", encoding="utf-8")
    needing = [script for script in SCRIPTS if package in imports(script)]
    assert needing, f"no example needs {package}"
    for script in needing:
        assert "is not installed" in run(script, tmp_path, PYTHONPATH=str(tmp_path))


@pytest.mark.extras
@pytest.mark.parametrize(
    "name", ["14_ilqr", "24_inverse_kinematics", "26_lqr_on_two_feet", "31_quadruped_lands", "33_whole_body_control"]
)
def test_an_example_draws_its_figure(name, tmp_path):
    pytest.importorskip("matplotlib")
    printed = run(EXAMPLES / f"{name}.py", tmp_path, "figure.svg")
    assert "figure.svg" in printed
    assert "<svg" in (tmp_path / "figure.svg").read_text(encoding="utf-8")


@pytest.mark.matrix
def test_ilqr_without_matplotlib_solves_and_draws_nothing(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['matplotlib'] = None\n", encoding="utf-8")
    printed = run(EXAMPLES / "14_ilqr.py", tmp_path, "figure.svg", PYTHONPATH=str(tmp_path))
    assert "Matplotlib is not installed" in printed
    assert not (tmp_path / "figure.svg").exists()
