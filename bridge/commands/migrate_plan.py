"""`busbridge migrate plan`: what the move of a namespace takes, and what stands against it."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from bridge.commands.clock import now_ms
from bridge.commands.errors import WrongInput, sentence_of
from bridge.commands.exit_codes import ExitCode
from bridge.commands.migration.connection import names_at_target, unfit_as_target
from bridge.commands.migration.options import add_renumber, add_sides, sides_of
from bridge.commands.output import Output
from bridge.commands.parser import Commands, add_command
from bridge.commands.target import NamespaceLogin
from bridge.operations.count_text import counted

if TYPE_CHECKING:
    from bridge.model import entity as model
    from bridge.operations.migration.plan import MigrationPlan, MigrationSide
    from bridge.remote.namespace import RemoteNamespace

ENTITY_COLUMNS: Final = (
    "entity", "kind", "at_target", "active", "scheduled", "deferred", "dead_letter", "bytes",
    "counted",
)  # fmt: skip

RIGHT: Final = "Manage on both namespaces, which has Listen on the source's entities"


def register(verbs: Commands) -> None:
    """Add the command."""
    parser = add_command(
        verbs,
        "plan",
        "say what it takes to move a namespace into a bridge: what there is, what is not kept, "
        "what the target does not take, the steps, the time; it changes nothing",
        run=run,
        right=RIGHT,
        examples=(
            "busbridge migrate plan --from prod --to local",
            "busbridge migrate plan --from prod --to local 'orders*' --peek --json",
        ),
    )
    add_sides(parser)
    parser.add_argument(
        "--peek", action="store_true",
        help="look at all messages: deferred ones, sizes and the rate are known then",
    )  # fmt: skip
    add_renumber(parser, "plan a run that gives messages new numbers, beside the target's own")


async def run(arguments: argparse.Namespace, output: Output) -> int:
    """Write the plan; DIFFERENCES when something stands against it."""
    from bridge.commands.migration.connection import renumbering_name
    from bridge.commands.migration.holders import target_holds
    from bridge.commands.migration.sides import SideReading, chosen, own_queues_said
    from bridge.operations.migration import plan
    from bridge.remote.administration import RemoteAdministration
    from bridge.remote.namespace import RemoteNamespace

    source, target = sides_of(arguments)
    async with (
        RemoteAdministration(source.address, source.credential) as at_source,
        RemoteAdministration(target.address, target.credential) as at_target,
        RemoteNamespace(source.address, source.credential) as namespace,
        RemoteNamespace(target.address, target.credential) as other,
    ):
        unfit = unfit_as_target(target.name, await other.server_id())
        with output.progress(None, "reading definitions") as progress:
            reading = SideReading(at_source, progress)
            here = await reading.side()
            if left_out := own_queues_said(reading.kinds, arguments.entity):
                output.say(left_out)
            meant = chosen(reading.kinds, arguments.entity)
            if not meant:
                raise WrongInput(f"{source.name!r} has no such entity.")
            names = names_at_target(here, meant)
            every: list[str] = []

            def is_wanted(name: str) -> bool:
                every.append(name)
                return name.lower() in names

            there = await SideReading(at_target, progress).side(is_wanted)
            paths = [] if unfit else [path for path in there.by_path() if path in meant]
            holds = await target_holds(other, source, target, paths, every)
        renumbered_by = renumbering_name(source) if arguments.renumber else ""
        looks = _Looks(namespace, here, meant, output, renumbered_by)
        if not await looks.look(looks_at_all=arguments.peek):
            output.say("Stopped; nothing was changed: give the same command again.")
            return ExitCode.STOPPED
    made = plan.make(
        replace(here, counted=looks.counted),
        there,
        meant,
        now_ms=now_ms(),
        denied=looks.denied,
        requests=reading.requests,
        measured_per_s=looks.measured_per_s,
        unfit=unfit,
        renumbers=arguments.renumber,
        holds=holds,
    )
    _write(made, looks, source, target, output)
    return ExitCode.DIFFERENCES if made.count("refusal") else ExitCode.DONE


class _Looks:
    """Looks at the source's messages: at the first of each entity, or at all.

    Attributes:
        counted: what the entities hold, by path in lower case.
        denied: the entities that may not be peeked at, and what the namespace says.
        measured_per_s: messages that were read a second.
    """

    def __init__(
        self,
        namespace: RemoteNamespace,
        side: MigrationSide,
        chosen: set[str],
        output: Output,
        renumbered_by: str,
    ) -> None:
        self._renumbered_by = renumbered_by
        self._namespace = namespace
        self._side = side
        self._entities = [each for path, each in side.by_path().items() if path in chosen]
        self._output = output
        self.counted = dict(side.counted)
        self.denied: dict[str, str] = {}
        self.measured_per_s: float | None = None

    @property
    def allowed(self) -> list[str]:
        """The paths of entities that may be peeked at."""
        return [each.path for each in self._entities if each.path not in self.denied]

    async def look(self, *, looks_at_all: bool) -> bool:
        """Return whether it came to its end: a signal ends it before."""
        from bridge.commands.migration.peeking import MessageLook

        output = self._output
        with output.interruption.deferred() as asked:
            with output.progress(len(self._entities), "trying the right Listen") as progress:
                for entity in self._entities:
                    if asked.is_set():
                        return False
                    await self._try(entity)
                    progress.advance()
            if not looks_at_all:
                return True
            total = sum(self._side.of(each.path).total for each in self._entities)
            with output.progress(total, "looking at messages", in_lines=True) as progress:
                peeking = MessageLook(self._namespace, asked, progress, self._renumbered_by)
                for entity in self._entities:
                    if entity.path not in self.denied:
                        given = self._side.of(entity.path)
                        self.counted[entity.path.lower()] = await peeking.counted(entity, given)
            self.measured_per_s = peeking.measured_per_s
            return not asked.is_set()

    async def _try(self, entity: model.Entity) -> None:
        """Peek at one message: what is read later needs the same right, and the same status."""
        from bridge.remote.errors import RemoteNotFound, RemoteRefused, RemoteUnauthorized

        management = self._namespace.management_of(entity.path)
        try:
            await management.peek(1, 1)
        except (RemoteUnauthorized, RemoteRefused, RemoteNotFound) as error:
            self.denied[entity.path] = sentence_of(error)
        await management.close()


def _write(
    made: MigrationPlan,
    looks: _Looks,
    source: NamespaceLogin,
    target: NamespaceLogin,
    output: Output,
) -> None:
    """Write the tables; in lines of JSON each row names its part."""
    tables: list[tuple[str, list[dict[str, object]], tuple[str, ...]]] = [
        ("entity", _entity_rows(made), ENTITY_COLUMNS),
        ("finding", _finding_rows(made), ("level", "entity", "subject", "text")),
        ("step", _step_rows(made), ("step", "what", "entity", "text")),
        ("right", _right_rows(looks, source, target), ("namespace", "right", "entity", "has")),
        ("time", [_time_row(made)], ("messages", "reads", "credits_s", "measured_s", "text")),
    ]
    for part, rows, columns in tables:
        if rows:
            output.table([{"part": part, **row} for row in rows], columns)
    refusals = counted(made.count("refusal"), "refusal")
    losses = counted(made.count("loss"), "loss", "losses")
    output.say(f"{refusals}, {losses}. Nothing was changed.")


def _entity_rows(made: MigrationPlan) -> list[dict[str, object]]:
    rows = []
    for each in made.entities:
        counted = each.counted
        by_state = counted.counts
        rows.append({
            "entity": each.path,
            "kind": each.kind,
            "at_target": each.fate,
            "active": by_state.get("active", 0),
            "scheduled": by_state.get("scheduled", 0),
            "deferred": by_state.get("deferred", 0),
            "dead_letter": by_state.get("dead_letter", 0),
            "deferred_dead_letter": by_state.get("deferred_dead_letter", 0),
            "transfer": counted.transfer,
            "transfer_dead_letter": counted.transfer_dead_letter,
            "bytes": counted.size_bytes,
            "bytes_by_state": dict(counted.bytes),
            "largest_bytes": counted.largest[1] if counted.largest else None,
            "sessions": counted.sessions,
            "session_states": counted.session_states,
            "counted": "by peek" if counted.is_peeked else "as told",
        })  # fmt: skip
    return rows


def _finding_rows(made: MigrationPlan) -> list[dict[str, object]]:
    return [
        {"level": each.level, "entity": each.entity, "subject": each.subject, "text": each.text}
        for each in made.findings
    ]


def _step_rows(made: MigrationPlan) -> list[dict[str, object]]:
    return [
        {"step": number, "what": each.what, "entity": each.entity, "text": each.text}
        for number, each in enumerate(made.steps, start=1)
    ]


def _right_rows(
    looks: _Looks, source: NamespaceLogin, target: NamespaceLogin
) -> list[dict[str, object]]:
    """Return the rights that were tried: both namespaces have listed their entities."""
    tried = [(source.name, "Manage", "", True), (target.name, "Manage", "", True)]
    tried += [(source.name, "Listen", path, False) for path in looks.denied]
    if looks.allowed and not looks.denied:
        tried.append((source.name, "Listen", "", True))
    else:
        tried += [(source.name, "Listen", path, True) for path in looks.allowed]
    return [
        {"namespace": name, "right": right, "entity": path, "has": has}
        for name, right, path, has in tried
    ]


def _time_row(made: MigrationPlan) -> dict[str, object]:
    time = made.time
    return {
        "messages": time.messages,
        "reads": time.reads,
        "credits_s": time.credit_s,
        "measured_per_s": time.measured_per_s,
        "measured_s": time.measured_s,
        "text": _time_sentence(made),
    }


def _time_sentence(made: MigrationPlan) -> str:
    time = made.time
    known = []
    if time.credit_s is not None:
        text = "by Azure's 1,000 credits a second, which a bridge does not count"
        known.append(f"{_time_text(time.credit_s)} {text}")
    if time.measured_s is not None:
        known.append(f"{_time_text(time.measured_s)} at the rate of the peek")
    if not known:
        return "The source's tier has credits of its own: --peek measures the rate."
    return f"The reads take {', '.join(known)}; the target's writes are not in it."


def _time_text(time_s: int) -> str:
    minutes, seconds = divmod(time_s, 60)
    hours, minutes = divmod(minutes, 60)
    parts = ((hours, "h"), (minutes, "min"), (seconds, "s"))
    return " ".join(f"{count:,} {unit}" for count, unit in parts if count) or "0 s"
