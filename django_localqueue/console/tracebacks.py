"""A traceback in parts: the project's own frames open, those of libraries folded."""

from __future__ import annotations

import re
from dataclasses import dataclass

_FRAME = re.compile(r'^  File "(?P<path>[^"\n]*)", line \d+')
#: What the paths of code have in common that isn't the project's.
_LIBRARIES = re.compile(
    r"[/\\](site-packages|dist-packages)[/\\]|[/\\]lib[/\\]python3[^/\\]*[/\\]"
    r"|[/\\]django_localqueue[/\\]|^<frozen |[/\\]Lib[/\\]"
)


@dataclass(frozen=True, slots=True)
class Part:
    """Some lines; ``frames`` is the number of library frames in them, 0 for all else."""

    text: str
    frames: int = 0


def parts(text: str) -> list[Part]:
    """Return a traceback's text in parts that together are all of it."""
    found: list[Part] = []
    for lines, is_library in _frames(text.splitlines(keepends=True)):
        last = found[-1] if found else None
        joins = last is not None and bool(last.frames) == is_library
        block = "".join(lines)
        if last is not None and joins:
            found[-1] = Part(last.text + block, last.frames + is_library)
        else:
            found.append(Part(block, int(is_library)))
    return found


def _frames(lines: list[str]) -> list[tuple[list[str], bool]]:
    """Return the lines by frames, each with whether it is a library's."""
    blocks: list[tuple[list[str], bool]] = []
    in_frame = False
    for line in lines:
        frame = _FRAME.match(line)
        if frame:
            blocks.append(([line], bool(_LIBRARIES.search(frame["path"]))))
            in_frame = True
        elif in_frame and line.startswith("    "):
            blocks[-1][0].append(line)
        else:
            in_frame = False
            blocks.append(([line], False))
    return blocks
