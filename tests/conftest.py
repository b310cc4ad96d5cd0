"""The fixtures are plugins: one concern a file, in `fixtures`."""

pytest_plugins = [
    "tests.fixtures.session",
    "tests.fixtures.broker",
    "tests.fixtures.bridge",
    "tests.fixtures.administration",
    "tests.fixtures.node",
    "tests.fixtures.sidecar",
]
