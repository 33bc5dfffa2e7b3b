"""docs/benchmarks.md: one section a benchmark, each written by its own command."""

from __future__ import annotations

from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "benchmarks.md"
HEAD = "# Benchmarks\n\nWhat fast means here, measured against others on the same work in the same run.\n\n"


def write(section: str) -> None:
    """Put the section in its place on the page, keeping all others. Its first line is its title."""
    text = PAGE.read_text(encoding="utf-8") if PAGE.is_file() else HEAD
    title = section.split("\n", 1)[0]
    if title in text:
        before, after = text.split(title, 1)
        rest = after.find("\n## ")
        text = before + section + (after[rest:] if rest >= 0 else "")
    else:
        text = text.rstrip("\n") + "\n\n" + section
    PAGE.write_text(text, encoding="utf-8")
