"""Rust source with everything that is not code blanked out, so that a plain scan of it is not fooled."""

import re

_NOT_CODE = re.compile(
    r"""
      (?P<line>//[^\n]*)
    | (?P<block>/\*)
    | (?P<raw>\bb?c?r(?P<hashes>\#*)"[\s\S]*?"(?P=hashes))
    | (?P<string>"(?:\\[\s\S]|[^"\\])*")
    | (?P<char>'(?:\\(?:x[0-9a-fA-F]{2}|u\{[0-9a-fA-F_]+\}|[\s\S])|[^'\\\n])')
    """,
    re.VERBOSE,
)


def code_only(text: str) -> str:
    """Return `text` with comments, strings and characters replaced by spaces; offsets and lines stay."""
    parts = []
    at = 0
    while found := _NOT_CODE.search(text, at):
        parts.append(text[at : found.start()])
        end = _block_end(text, found.start()) if found.group("block") else found.end()
        parts.append(re.sub(r"[^\n]", " ", text[found.start() : end]))
        at = end
    parts.append(text[at:])
    return "".join(parts)


def _block_end(text: str, start: int) -> int:
    """Block comments nest in Rust."""
    depth = 0
    for mark in re.finditer(r"/\*|\*/", text[start:]):
        depth += 1 if mark.group() == "/*" else -1
        if depth == 0:
            return start + mark.end()
    return len(text)


def line_of(text: str, offset: int) -> int:
    """Return the number of the line that holds `offset`, from 1."""
    return text.count("\n", 0, offset) + 1


def closing_brace(code: str, opening: int) -> int:
    """Return the offset of the brace that closes the one at `opening`."""
    depth = 0
    for mark in re.finditer(r"[{}]", code[opening:]):
        depth += 1 if mark.group() == "{" else -1
        if depth == 0:
            return opening + mark.start()
    return len(code) - 1
