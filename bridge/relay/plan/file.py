"""The relay's file: sides and routes, or every fault with its position."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from uuid import UUID

from bridge.relay.plan import keys
from bridge.relay.plan.chains import chain_faults
from bridge.relay.plan.faults import Fault, Faults, FaultyFile
from bridge.relay.plan.keys import Key
from bridge.relay.plan.positions import NoToml, Path, Position, Positions, read_toml
from bridge.relay.plan.route import RelayFile
from bridge.relay.plan.route_tables import RouteTables, is_top_level
from bridge.relay.plan.side_tables import Secrets, SideTables

_TABLES = {name: Key(name, "", "", "") for name in ("sides", "routes")}


@dataclass(frozen=True, slots=True)
class Reading:
    """A file that was read.

    Attributes:
        file: what it says; `None` if it has faults.
        faults: all that its text shows.
        positions: of its keys and values.
    """

    file: RelayFile | None
    faults: tuple[Fault, ...]
    positions: Positions
    _places: Mapping[str, int]

    def of_route(self, name: str, key: str = "") -> Position:
        """Return where a route of the file stands, or the value of one of its keys."""
        path: Path = ("routes", self._places[name])
        return self.positions.of_value((*path, key)) if key else self.positions.of_key(path)

    def whole(self) -> RelayFile:
        """Return what the file says; FaultyFile if it has faults."""
        if self.file is None:
            raise FaultyFile(self.faults)
        return self.file


def read_file(
    text: str,
    secrets: Secrets,
    new_id: Callable[[], UUID],
    *,
    allows_inline_secrets: bool = False,
) -> Reading:
    """Read a file; nothing is asked of any namespace.

    Args:
        secrets: gives the connection strings.
        new_id: the source of `newid()` in filters.
        allows_inline_secrets: whether connection strings may stand in the file.
    """
    try:
        values, positions = read_toml(text)
    except NoToml as error:
        fault = Fault(error.position, f"This is no TOML: {error.text}.")
        return Reading(None, (fault,), Positions(text), {})
    faults = Faults(positions)
    tables = {name: values.pop(name, None) for name in _TABLES}
    top = faults.table(values, (), keys.FILE | _TABLES)
    sides = SideTables(faults, secrets, allows_inline=allows_inline_secrets).read(tables["sides"])
    reader = RouteTables(faults, sides, new_id)
    routes = reader.read(tables["routes"])
    control = reader.place(("control",), top["control"]) if "control" in top else None
    if control is not None and (control.is_pattern or not is_top_level(control.path)):
        faults.add(("control",), "control: it is a queue: SIDE/QUEUE.")
    for each in routes.values():
        if each.order == "entity" and "control" not in top:
            faults.add(("routes", reader.places[each.name], "order"), _NO_CONTROL)
    for name, key, words in chain_faults(routes, reader.faulty):
        faults.add(("routes", reader.places[name], key), words)
    found = tuple(sorted(faults.found))
    file = None if found else RelayFile(sides, tuple(routes.values()), control)
    return Reading(file, found, positions, reader.places)


_NO_CONTROL = (
    'order = "entity" needs a control queue: put `control = "SIDE/QUEUE"` above all tables, and '
    "make the queue with `busbridge relay init`."
)
