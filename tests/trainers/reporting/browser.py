"""A page as its reader meets it: its tags and links, and what a browser says when it opens it."""

from __future__ import annotations

import os
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Page(HTMLParser):
    """Tags, links and script text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.handlers: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attrs:
            if name in ("src", "href", "action", "poster"):
                self.links.append(value or "")
            if name.startswith("on"):
                self.handlers.append(name)


def opens_without_messages(page: Path, folder: Path) -> None:
    """Chromium draws the page, and its console stays empty; `folder` takes picture and profile."""
    assert CHROMIUM is not None
    picture = folder / "page.png"
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"]
    flags += ["--disable-background-networking", "--disable-component-update", "--hide-scrollbars"]
    flags += ["--window-size=1280,2400", "--enable-logging=stderr"]
    done = subprocess.run(
        [CHROMIUM, *flags, f"--user-data-dir={folder / 'profile'}", f"--screenshot={picture}", page.as_uri()],
        capture_output=True,
        text=True,
        timeout=240,
        env={**os.environ, "HOME": str(folder)},
    )
    assert picture.exists(), done.stderr[-2000:]
    assert picture.stat().st_size > 50_000
    assert "CONSOLE" not in done.stderr, [line for line in done.stderr.splitlines() if "CONSOLE" in line]
