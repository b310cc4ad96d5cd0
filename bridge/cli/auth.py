"""`busbridge auth check`: what a rules file grants, and what a token would be given."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from bridge.cli.settings import SettingsError
from bridge.commands.parser import add_examples
from bridge.model.entity import Right

if TYPE_CHECKING:
    from bridge.model.access_policy import AccessPolicy
    from bridge.model.access_rules import AccessRuleSet
    from bridge.model.issuers.issuer import Issuer


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command."""
    auth = commands.add_parser("auth", help="look at a rules file")
    verbs = auth.add_subparsers(dest="verb", required=True, metavar="VERB")
    check = verbs.add_parser("check", help="print what a rules file grants, entity by entity")
    check.add_argument("file", type=Path, metavar="FILE", help="the rules file of --auth")
    check.add_argument(
        "--token-file",
        metavar="PATH",
        help="a file with a token (-: standard input): it is verified, with keys that are fetched "
        "now, and what it is given is printed",
    )
    add_examples(
        check,
        "busbridge auth check rules.json",
        "busbridge auth check rules.json --token-file token.txt",
    )
    check.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print what a file grants, or what a token is given by it; return the exit code.

    Raises:
        SettingsError: the file, or the token's, cannot be used.
    """
    from bridge.cli.access_file import read_file  # with the packages of the extra `serve`

    if not arguments.file.is_file():
        raise SettingsError(f"auth check: there is no file {str(arguments.file)!r}.")
    policy = read_file(arguments.file)
    if arguments.token_file is None:
        print("\n".join(_said(policy)))
        return 0
    return asyncio.run(_check(policy, _token(arguments.token_file)))


def _token(name: str) -> str:
    from bridge.model.claims import token_in

    try:
        return token_in(sys.stdin.read() if name == "-" else Path(name).read_text())
    except (OSError, UnicodeError) as error:
        raise SettingsError(f"--token-file: {name!r} cannot be read: {error}.") from error


def _said(policy: AccessPolicy) -> Iterator[str]:
    """Yield the lines that describe a policy."""
    yield from _rules_said(policy.rules)
    for issuer in policy.issuers:
        yield f"issuer {', '.join(issuer.names)}"
        yield f"  audience {', '.join(issuer.audiences)}"
        yield f"  algorithms {', '.join(issuer.algorithms)}; keys from {issuer.keys}"
        yield from _grants_said(issuer)


def _rules_said(rules: AccessRuleSet) -> Iterator[str]:
    for scope, listed in (("", rules.namespace), *sorted(rules.entities.items())):
        for rule in listed:
            yield f"{_place(scope)}: {_rights(rule.rights)} by the shared access rule {rule.name!r}"


def _grants_said(issuer: Issuer) -> Iterator[str]:
    for grant in sorted(issuer.grants, key=lambda grant: grant.scope):
        values = " or ".join(repr(value) for value in sorted(grant.values))
        place = _place("/".join(grant.scope))
        yield f"  {place}: {_rights(grant.rights)} where {' > '.join(grant.claim)} is {values}"


async def _check(policy: AccessPolicy, text: str) -> int:
    """Print what a token is given; return 0 if it is given anything, else 1."""
    from bridge.access.access import Access
    from bridge.model.claims import cause_of, expiry_text
    from bridge.model.errors import ServiceBusError
    from bridge.model.issuers.granting import lacks_groups
    from bridge.model.issuers.web_token import KeyAwaited, WebToken

    access = Access(policy)
    try:
        try:
            claims = access.verify(text)
        except KeyAwaited as awaited:
            keys = access.keys_of(awaited.issuer)
            await keys.fetch_now()
            if keys.renewal.error:
                print(keys.sentence)
                return 1
            try:
                claims = access.verify(text)
            except KeyAwaited:
                print(f"refused: none of the keys of {awaited.issuer} has the token's key id")
                return 1
    except ServiceBusError as error:
        print(f"refused: {cause_of(error)}")
        return 1
    ends = expiry_text(claims.expires_s or 0.0)
    token = claims.proof
    if isinstance(token, WebToken):
        issuer = policy.by_name[token.issuer]
        print(f"subject {token.subject!r} of {token.issuer}, taken until {ends}")
        if lacks_groups(issuer, token.claims):
            print("groups: left out of the token, there were too many; give app roles instead")
    else:
        print(f"a shared access signature, taken until {ends}")
    places: dict[str, set[Right]] = {}
    for grant in claims.grants:
        scope = max(grant.rule_scope, grant.token_scope, key=len)
        places.setdefault("/".join(scope), set()).update(grant.rights)
    for place in sorted(places):
        print(f"{_place(place)}: {_rights(places[place])}")
    if not places:
        print("nothing is granted to it")
    return 0 if places else 1


def _place(scope: str) -> str:
    return scope or "every entity"


def _rights(rights: Iterable[Right]) -> str:
    return ", ".join(right.value for right in Right if right in set(rights))
