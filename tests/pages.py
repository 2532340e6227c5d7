"""Texts for users."""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent


def blocks(name):
    """The blocks of Python in a text."""
    return re.findall(r"^```python\n(.*?)^```", (ROOT / name).read_text(), re.DOTALL | re.MULTILINE)


def run_page(name):
    """Run them here, one after the other, as one program."""
    exec(compile("\n".join(blocks(name)), name, "exec"), {"__name__": "__main__"})
