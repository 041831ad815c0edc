"""The manual's page of options says what the settings declare.

`python -m tests.trainers.settings.test_options_page` writes it anew.
"""

from __future__ import annotations

from tests.shared_data import REPOSITORY
from trainers.settings.help import options_page

PAGE = REPOSITORY / "docs/options.md"


def test_the_page_is_that_of_the_settings() -> None:
    assert PAGE.read_text(encoding="utf-8") == options_page()


if __name__ == "__main__":
    PAGE.write_text(options_page(), encoding="utf-8")
