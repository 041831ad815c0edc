"""The browser of episodes: `python -m agents view` writes one page that needs no network, or serves it for live runs.

`collect` finds the episodes, `pack` makes them small, `page` writes the page, `serve` follows a run, `command` is the
command. The page itself is `view.html` and `view.css`, and the scripts `text.js`, `list.js`, `episode.js` and
`start.js`, which share one scope.
"""
