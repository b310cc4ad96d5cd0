"""`busbridge trust`: instructions for each SDK to trust the bridge's certificate.

The commands are for a shell; tests/acceptance/test_connecting.py runs them.
"""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path

from bridge.cli.options import add_options
from bridge.cli.settings import Settings, SettingsError, read_settings
from bridge.commands.parser import add_examples

STORE_PASSWORD = "changeit"
"""What Java's own store has; it holds no secret."""

_OPTIONS = ("data-dir", "host", "tls-cert", "tls-name")

_TEXT = """\
{heading}

Python (messages and administration)
    # in the code: ServiceBusClient.from_connection_string(..., connection_verify={python})
    # without a change of code, for all that this environment's Python trusts:
    cat {ca} >> "$(python -c 'import certifi; print(certifi.where())')"

JavaScript
    export NODE_EXTRA_CA_CERTS={ca}

Java (a copy of the store of its own authorities, with the bridge's beside them)
    install -m 600 "$(java -XshowSettings:properties -version 2>&1 | \
sed -n 's/^ *java.home = //p')/lib/security/cacerts" {store}
    keytool -importcert -noprompt -alias busbridge -file {ca} \
-keystore {store} -storepass {password}
    export JAVA_TOOL_OPTIONS="-Djavax.net.ssl.trustStore={store} \
-Djavax.net.ssl.trustStorePassword={password}"

Go (Linux)
    export SSL_CERT_FILE={ca}

.NET (Linux)
    export SSL_CERT_FILE={ca}
"""


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command."""
    trusting = commands.add_parser(
        "trust", help="print what each SDK needs to trust the bridge's certificate"
    )
    add_options(trusting, only=_OPTIONS)
    add_examples(trusting, "busbridge trust", "busbridge trust --data-dir /var/lib/busbridge")
    trusting.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the instructions, and make the certificate if missing; return the exit code.

    Raises:
        SettingsError: the certificate cannot be made, or the bridge has none.
    """
    print(advice(read_settings(arguments)), end="")
    return 0


def advice(settings: Settings) -> str:
    """Return the instructions."""
    if settings.tls is not None:
        return _advice(
            Path("ca.pem"),
            "The bridge's certificate was given with --tls-cert. Below, ca.pem stands for the "
            "certificate of its issuer; of a public issuer every SDK trusts it as it is.",
        )
    if not settings.has_own_certificate:
        raise SettingsError(
            f"On {settings.host}, which others can reach, the bridge has no certificate unless it "
            "is told its name: give --tls-name, or --tls-cert, here as to `busbridge serve`."
        )
    from bridge.cli.certified import own  # with the packages of the extra `serve`

    made = own(settings)
    return _advice(
        made.ca,
        f"The bridge's certificate is signed by {made.ca}\nand good until "
        f"{made.until:%Y-%m-%d}; it is for {', '.join(made.names)}.",
    )


def _advice(ca: Path, heading: str) -> str:
    return _TEXT.format(
        heading=heading,
        ca=shlex.quote(str(ca)),
        python=repr(str(ca)),
        store=shlex.quote(str(ca.with_name("truststore"))),
        password=STORE_PASSWORD,
    )
