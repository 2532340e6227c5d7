"""What a machine lacks for the tests is installed, or those tests are skipped and the reason is said."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "scripts" / "install_test_needs.sh"
NOBODY = 65534


@pytest.fixture
def commands():
    """A folder that each user can enter, to hold the only commands that a machine has."""
    # Not below the folder of the test, which is closed to other users.
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def install(commands, *names, **options):
    """Run the script where there are these commands alone, so that Java is missing."""
    for name in names:
        (commands / name).symlink_to(shutil.which(name) or pytest.skip(f"there is no {name}"))
    # From standard input: another user may not read a checkout of root.
    with SCRIPT.open() as text:
        return subprocess.run(
            [shutil.which("bash"), "-s"], stdin=text, env={"PATH": str(commands)}, cwd="/",
            capture_output=True, text=True, timeout=30, check=False, **options,
        )  # fmt: skip


def test_a_machine_without_apt_skips_what_it_lacks(commands):
    done = install(commands)
    assert done.returncode == 0, done
    assert "are skipped: there is no apt-get to install them with" in done.stderr
    assert "openjdk-17-jre-headless" in done.stderr


def test_a_user_who_is_not_root_is_told_what_to_install(commands):
    # Without groups: root's own might be kept.
    other = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
    done = install(commands, "apt-get", "id", **other)
    assert done.returncode == 0, done
    assert "installing them needs root (apt-get install " in done.stderr
    assert "openjdk-17-jre-headless" in done.stderr
