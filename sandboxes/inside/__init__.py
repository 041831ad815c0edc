"""What runs inside a sandbox: standard library only, Python 3.8 or newer, no import from outside this folder.

The sources of these modules are sent to the sandbox's own Python when it starts (see `sandboxes.boot`), so nothing of
the checkout has to be readable from inside.
"""
