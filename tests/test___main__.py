"""The command's start: the command line as it is, and one sentence for Ctrl-C while it loads."""

import os
import subprocess
import sys
from pathlib import Path

import poskernel

# Ctrl-C comes exactly when the command line asks for one of the libraries it loads.
INTERRUPTED = """
import os, signal, sys

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == "cyclopts":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
from poskernel.__main__ import main
sys.exit(main())
"""


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(Path(poskernel.__file__).parent.parent)}
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, env=environment, check=False)


def test_ctrl_c_while_loading_is_one_sentence() -> None:
    result = run("-c", INTERRUPTED)
    assert result.returncode == 130
    assert result.stderr == "poskernel: interrupted before anything had begun.\n"


def test_the_module_is_the_command_with_its_exit_codes() -> None:
    result = run("-m", "poskernel", "--version")
    assert (result.returncode, result.stdout.strip()) == (0, poskernel.__version__)
    result = run("-m", "poskernel", "predict", "rop", "prev")
    assert result.returncode == 2
    assert result.stderr.startswith("poskernel: ")
